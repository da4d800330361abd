"""Which jobs are meant: the one mechanism of listings and of what is done to many jobs.

A selector is a text such as ``tenant=vision,state=PENDING,name=train-*``. Parts with different keys
must all hold; of parts with the same key one must. ``*`` stands for any characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Protocol

from msgspec import Struct, UnsetType
from msgspec.structs import replace

from topmast.model.errors import Faults, InvalidInput
from topmast.model.files.fields import nearest, one_of
from topmast.model.files.labels import LABEL_KEYS, is_label_key
from topmast.model.job import Band
from topmast.model.states import TERMINAL, JobState
from topmast.model.units import show

ACTIVE = "active"
LONGEST = 2_000
"""Characters of a selector."""
MOST_PARTS = 100
"""Each job is compared with each of them."""
MOST_STARS = 100
"""Each job is looked through for what stands between them."""


class Described(Protocol):
    """What a spec and a view of a job have in common."""

    @property
    def name(self) -> str:
        """The name that its user gave it."""
        ...

    @property
    def tenant(self) -> str:
        """The tenant that it counts for."""
        ...

    @property
    def user(self) -> str:
        """The user that submitted it."""
        ...

    @property
    def labels(self) -> dict[str, str] | UnsetType:
        """Its labels, by key."""
        ...

    @property
    def in_sweep(self) -> str:
        """The sweep that it belongs to."""
        ...


class Selector(Struct, frozen=True):
    """Which jobs are meant; an empty field means any."""

    states: tuple[JobState, ...] = ()
    tenants: tuple[str, ...] = ()
    """Patterns, as in all fields of texts."""
    users: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    """Where the latest attempt is or was."""
    hosts: tuple[str, ...] = ()
    bands: tuple[str, ...] = ()
    sweeps: tuple[str, ...] = ()
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Patterns, by the key of a label."""

    @property
    def takes_all(self) -> bool:
        """Whether it names nothing."""
        return self == _ALL

    @property
    def steps(self) -> int:
        """How many comparisons a look at one job may take: texts, and the stars in them."""
        texts = (
            self.tenants, self.users, self.names, self.clusters, self.hosts, self.sweeps,
            *(wanted for _, wanted in self.labels),
        )  # fmt: skip
        return sum(1 + pattern.count("*") for pattern in chain.from_iterable(texts))

    @property
    def counts_alike(self) -> bool:
        """Whether it means all jobs of a tenant, user, band and state, or none."""
        return replace(self, states=(), tenants=(), users=(), bands=()) == _ALL

    def takes_all_of(self, tenant: str, user: str, band: str, state: str) -> bool:
        """Whether jobs of these may be meant."""
        of_band = not self.bands or band in self.bands
        return self.takes_kind(tenant, state) and of_band and like(self.users, user)

    def takes_kind(self, tenant: str, state: str) -> bool:
        """Whether jobs of a tenant in a state may be meant."""
        return (not self.states or state in self.states) and like(self.tenants, tenant)

    def takes(
        self,
        of: Described,
        state: str,
        band: str,
        cluster: str | None,
        hosts: tuple[str, ...],
    ) -> bool:
        """Whether a job is meant. O(patterns), and O(hosts) if hosts are named."""
        return (
            self.takes_kind(of.tenant, state)
            and (not self.bands or band in self.bands)
            and like(self.users, of.user)
            and like(self.names, of.name)
            and like(self.sweeps, of.in_sweep)
            and like(self.clusters, cluster or "")
            and (not self.hosts or any(like(self.hosts, host) for host in hosts))
            and (not self.labels or self._has_labels(of.labels or _NO_LABELS))
        )

    def _has_labels(self, labels: Mapping[str, str]) -> bool:
        """Whether a job has each of the keys, with a value that is meant."""
        return all(key in labels and like(wanted, labels[key]) for key, wanted in self.labels)


_ALL = Selector()
_NO_LABELS: Mapping[str, str] = {}
LABEL = "label."
"""What stands before the key of a label."""
KEYS: Mapping[str, str] = {
    "state": "states", "tenant": "tenants", "user": "users", "name": "names",
    "cluster": "clusters", "host": "hosts", "band": "bands",
    "sweep": "sweeps",
}  # fmt: skip
"""Fields by the keys of the text."""


def parts_of(text: str, field: str) -> list[tuple[str, str]]:
    """The keys and values of a selector; none of an empty text.

    Raises InvalidInput, for all parts that cannot be read; ``rest`` are the others.
    """
    if len(text) > LONGEST:
        raise InvalidInput(f"longer than {LONGEST} characters", field=field)
    if text.count("*") > MOST_STARS:
        raise InvalidInput(f"more than {MOST_STARS} stars", field=field, remedy="leave out some")
    parts = text.split(",") if text.strip() else []
    if len(parts) > MOST_PARTS:
        raise InvalidInput(f"more than {MOST_PARTS} parts", field=field)
    faults = Faults()
    found = [
        faults.of(partial(_part, part, field)) for part in dict.fromkeys(map(str.strip, parts))
    ]
    faults.refuse(list(filter(None, found)))
    return found


def _part(part: str, field: str) -> tuple[str, str]:
    if not part.strip():  # a variable of the shell that is not set leaves such a part
        remedy = "write KEY=VALUE,KEY=VALUE, with one comma between two of them"
        raise InvalidInput("a part of it is empty", field=field, remedy=remedy)
    key, equals, value = (piece.strip() for piece in part.partition("="))
    if not equals or not value:
        remedy = "write KEY=VALUE, as in tenant=vision,state=PENDING"
        raise InvalidInput(f"'{part.strip()}' is not KEY=VALUE", field=field, remedy=remedy)
    return key, value


def selector_of(text: str, field: str = "selector") -> Selector:
    """A selector as people write it; an empty text means any job. Raises InvalidInput, for all."""
    found: dict[str, list[str]] = {}
    labels: dict[str, list[str]] = {}
    faults = Faults()
    for key, value in parts_of(text, field):
        if key.startswith(LABEL) and key != LABEL:
            faults.of(partial(check_label, key, field))
            labels.setdefault(key.removeprefix(LABEL), []).append(value)
            continue
        if key not in KEYS:
            remedy = nearest(key, KEYS) or f"known: {', '.join(KEYS)}, {LABEL}KEY"
            faults.add(f"unknown key '{key}'", field, remedy)
            continue
        found.setdefault(KEYS[key], []).append(value)
    each = [faults.of(partial(states_of, [name], field)) for name in found.pop("states", ())]
    bands = tuple(faults.of(partial(_band, name, field)) for name in found.pop("bands", ()))
    faults.refuse()
    states = tuple(state for one in each for state in one)
    named = {field: tuple(texts) for field, texts in found.items()}
    by_key = tuple((key, tuple(texts)) for key, texts in labels.items())
    return Selector(states=states, bands=bands, labels=by_key, **named)


def right_of(text: str) -> Selector:
    """The parts of a selector that can be read, of one that is refused for others of them."""
    right: list[str] = []
    if text.count("*") > MOST_STARS:
        return _ALL
    for part in text[:LONGEST].split(",")[:MOST_PARTS]:
        with suppress(InvalidInput):
            selector_of(part)
            right += [part] if part.strip() else []
    return selector_of(",".join(right))


def check_label(by: str, field: str) -> None:
    """Raises InvalidInput for ``label.KEY`` with a key that no label can have."""
    if by.startswith(LABEL) and not is_label_key(by.removeprefix(LABEL)):
        raise InvalidInput(f"{show(by)} names no label", field=field, remedy=LABEL_KEYS)


def states_of(names: list[str] | tuple[str, ...], field: str = "state") -> list[JobState]:
    """States by their names; ``active`` stands for all that do not end a job.

    Raises InvalidInput.
    """
    found: list[JobState] = []
    for name in names:
        if name.lower() == ACTIVE:
            found += [state for state in JobState if state not in TERMINAL]
        elif name.upper() in JobState.__members__:
            found.append(JobState[name.upper()])
        else:
            near = nearest(name.upper(), [state.name for state in JobState])
            remedy = near or f"one of {', '.join(JobState)}, active"
            raise InvalidInput(f"unknown state '{name}'", field=field, remedy=remedy)
    return found


def _band(name: str, field: str) -> str:
    if name.upper() not in Band.__members__:
        remedy = one_of(name, [band.name.lower() for band in Band])
        raise InvalidInput(f"unknown band '{name}'", field=field, remedy=remedy)
    return name.lower()


def like(patterns: tuple[str, ...], text: str) -> bool:
    """Whether a text is like one of the patterns; anything is, if there is none."""
    return not patterns or any(
        pattern == text or ("*" in pattern and _matches(pattern, text)) for pattern in patterns
    )


def _matches(pattern: str, text: str) -> bool:
    """Whether a text has the pieces between the stars, in their order.

    Each piece is taken where it comes first, so that nothing is tried twice.
    """
    head, *pieces, tail = pattern.split("*")
    at, end = len(head), len(text) - len(tail)
    if at > end or not text.startswith(head) or not text.endswith(tail):
        return False
    for piece in pieces:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True
