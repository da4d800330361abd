"""Which hosts are meant, as text: ``cluster=east-1,rack=r7,gpu=H100``."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from topmast.model.errors import InvalidInput
from topmast.model.files.fields import nearest
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


def host_selector_of(text: str, field: str = "selector") -> HostSelector:
    """A selector of hosts as people write it. Raises InvalidInput."""
    found: dict[str, tuple[str, ...]] = {}
    for key, value in parts_of(text, field):
        if key not in KEYS:
            remedy = nearest(key, KEYS) or f"known: {', '.join(KEYS)}"
            raise InvalidInput(f"unknown key '{key}'", field=field, remedy=remedy)
        found[key] = (*found.get(key, ()), value)
    return HostSelector(tuple(found.items()))
