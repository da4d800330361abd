"""Which hosts, clusters or tenants are meant: by name, or as text: ``cluster=east-1,gpu=H100``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from msgspec import Struct

from topmast.model.errors import MOST_TOLD, Faults, InvalidInput, refuse_all
from topmast.model.files.fields import nearest, no_such, one_of
from topmast.model.selector import like, parts_of
from topmast.model.states import HostState

MOST = 100_000
"""At most so many are named in one request."""
KEYS: Mapping[str, Mapping[str, str]] = {
    "host": {
        "host": "name", "region": "region", "cluster": "cluster", "datacenter": "datacenter",
        "pod": "pod", "rack": "rack", "gpu": "gpu_model", "state": "state",
    },
    "cluster": {"cluster": "name", "region": "region", "engine": "engine", "state": "state"},
    "tenant": {"tenant": "name", "parent": "parent"},
}  # fmt: skip
"""Of each kind: attributes of its views, by the keys of the text."""


STATES: Mapping[str, Sequence[str]] = {
    "host": tuple(HostState), "cluster": ("open", "partly", "closed", "down"), "tenant": (),
}  # fmt: skip
"""What they may be in."""


class Named(Protocol):
    """What a view of each kind has."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...


View = TypeVar("View", bound=Named)


class FleetSelector(Struct, frozen=True):
    """Which are meant: by attribute, the patterns of which one must be like it."""

    wanted: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Key, attribute, patterns."""

    def takes(self, view: Named) -> bool:
        """Whether one is meant. O(patterns)."""
        return all(like(patterns, _value(view, field)) for _, field, patterns in self.wanted)


def meant(kind: str, names: Sequence[str], selector: str, views: Sequence[View]) -> list[View]:
    """Those of ``views`` that are named or selected, at least one.

    Raises InvalidInput, and NotFound for a name that none has.
    """
    if len(names) > MOST:
        remedy = "send several requests, or a selector"
        raise InvalidInput(f"more than {MOST} {kind}s", field=f"{kind}s", remedy=remedy)
    faults = Faults()
    if bool(names) == bool(selector.strip()):
        remedy = f"{kind}=* selects all of them"
        faults.add(f"name {kind}s, or give a selector", f"{kind}s", remedy)
    of, wanted = {view.name: view for view in views}, list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in of]
    faults.of(lambda: refuse_all(no_such(kind, n, of, f"{kind}s") for n in unknown[:MOST_TOLD]))
    found = faults.of(partial(selected, kind, selector, views)) if selector.strip() else []
    faults.refuse()
    return found or [of[name] for name in wanted]


def selected(
    kind: str, text: str, views: Sequence[View], *, may_be_none: bool = False
) -> list[View]:
    """Those that a text selects. Raises InvalidInput. O(views x patterns).

    ``may_be_none``: it is no error if none is in a state, or like a pattern with a star.
    """
    faults = Faults()
    selector = faults.rest_of(partial(fleet_selector_of, kind, text)) or FleetSelector(())
    faults.of(lambda: refuse_all(_unlike(kind, selector, views, may_be_none)))
    faults.refuse()
    found = [view for view in views if selector.takes(view)]
    if not (found or may_be_none):
        message = f"selects no {kind}: none has all of this"
        raise InvalidInput(message, field="selector")
    return found


def _unlike(
    kind: str, selector: FleetSelector, views: Sequence[Named], may_be_none: bool
) -> Iterator[InvalidInput]:
    """The patterns that none is like, each with what is near it.

    None need be in a state, or like a pattern with a star, that is one of several.
    """
    for key, field, patterns in selector.wanted:
        there = list(dict.fromkeys(_value(view, field) for view in views))
        known = [*there, *STATES[kind]] if key == "state" else there
        nothing = not (may_be_none or any(like(patterns, value) for value in there))
        for pattern in patterns:
            if nothing or ("*" not in pattern and pattern not in known):
                message = f"selects no {kind}: none has {key}={pattern}"
                remedy = "" if pattern in known else one_of(pattern, known)
                yield InvalidInput(message, field="selector", remedy=remedy)


def _value(view: Named, field: str) -> str:
    return getattr(view, field) or ""


def fleet_selector_of(kind: str, text: str) -> FleetSelector:
    """A selector as people write it.

    Raises InvalidInput, for all that cannot be read; ``rest`` is the selector without that.
    """
    keys, found, faults = KEYS[kind], dict[str, tuple[str, ...]](), Faults()
    for key, value in faults.rest_of(partial(parts_of, text, "selector")) or ():
        if key in keys:
            found[key] = (*found.get(key, ()), value)
        else:
            remedy = nearest(key, keys) or f"known: {', '.join(keys)}"
            faults.add(f"unknown key '{key}'", "selector", remedy)
    wanted = tuple((key, keys[key], patterns) for key, patterns in found.items())
    faults.refuse(FleetSelector(wanted))
    return FleetSelector(wanted)
