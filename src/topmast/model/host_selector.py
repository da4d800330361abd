"""Which hosts are meant, as text: ``cluster=east-1,rack=east-1-r7,gpu=H100``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from topmast.model.errors import InvalidInput
from topmast.model.files.fields import nearest, one_of
from topmast.model.selector import like, parts_of
from topmast.model.views import HostView

KEYS: Mapping[str, str] = {
    "host": "name", "region": "region", "cluster": "cluster", "datacenter": "datacenter",
    "pod": "pod", "rack": "rack", "gpu": "gpu_model", "state": "state",
}  # fmt: skip
"""Attributes of a host by the keys of the text."""


class HostSelector(Struct, frozen=True):
    """Which hosts are meant: by key, the patterns of which one must be like the attribute."""

    wanted: tuple[tuple[str, tuple[str, ...]], ...]

    def takes(self, host: HostView) -> bool:
        """Whether a host is meant. O(patterns)."""
        return all(like(patterns, getattr(host, KEYS[key])) for key, patterns in self.wanted)


def hosts_selected(text: str, views: Sequence[HostView], field: str = "selector") -> list[HostView]:
    """The hosts that a text selects, at least one. Raises InvalidInput. O(hosts x patterns)."""
    selector = host_selector_of(text, field)
    found = [view for view in views if selector.takes(view)]
    if not found:
        message, remedy = _why_none(selector, views)
        raise InvalidInput(message, field=field, remedy=remedy)
    return found


def _why_none(selector: HostSelector, views: Sequence[HostView]) -> tuple[str, str]:
    """Why no host is meant: the first pattern that no host is like, and what is near it."""
    for key, patterns in selector.wanted:
        there = dict.fromkeys(getattr(view, KEYS[key]) for view in views)
        if not any(like(patterns, value) for value in there):
            said = " or ".join(f"{key}={pattern}" for pattern in patterns)
            return f"selects no host: none has {said}", one_of(patterns[0], list(there))
    return "selects no host: none has all of this", ""


def host_selector_of(text: str, field: str = "selector") -> HostSelector:
    """A selector of hosts as people write it. Raises InvalidInput."""
    found: dict[str, tuple[str, ...]] = {}
    for key, value in parts_of(text, field):
        if key not in KEYS:
            remedy = nearest(key, KEYS) or f"known: {', '.join(KEYS)}"
            raise InvalidInput(f"unknown key '{key}'", field=field, remedy=remedy)
        found[key] = (*found.get(key, ()), value)
    return HostSelector(tuple(found.items()))
