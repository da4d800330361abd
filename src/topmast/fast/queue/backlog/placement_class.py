"""Jobs that find a place, or none, alike: of several lines, for whose tenants and bands that makes no difference.

What one of them was told goes for all, until something changes that could help. Over quota
everything counts as opportunistic; within quota jobs are of one kin if they are of one band.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from msgspec import Struct

from topmast.model.job import Band, JobSpec, Resources, Topology
from topmast.model.plan import Binding, Reservation
from topmast.model.reason import PendingReason

Likeness = tuple[Hashable, ...]


class Refusal(Struct, frozen=True, gc=False):
    """What a job was told that found no place: the best of the reasons, and when time alone may help.

    ``choices``: the accelerators that it might have used; ``held``: the reservation that it had to respect.
    """

    choices: frozenset[int]
    held: Reservation | None
    reason: PendingReason
    retry_at_s: float | None

    @property
    def detail(self) -> str:
        """What there is to say beside the reason."""
        held = self.held
        return f"room in {held.region} is kept for {held.job}" if held else ""

    def covers(self, choices: tuple[int, ...], held: Reservation | None, now: float) -> bool:
        """Whether one of the kin that may use these, and must respect ``held``, would be told the same now."""
        return (
            (self.held is None or self.held == held)
            and self.choices.issuperset(choices)
            and (self.retry_at_s is None or now < self.retry_at_s)
        )


class Kin(Struct):
    """One kin. ``lines``: those of it, by number; ``refused``: those that are closed for what it was told.

    ``told``: by whether a reservation had to be respected.
    """

    number: int
    likeness: Likeness
    lines: dict[int, None] = {}
    refused: dict[int, None] = {}
    told: dict[bool, Refusal] = {}

    @property
    def over_quota(self) -> bool:
        """In which mode these are asked about."""
        return bool(self.likeness[0])

    def forget(self) -> None:
        """Something changed: what it was told may not be true any more."""
        self.refused.clear()
        self.told.clear()


class Kindred:
    """All kin, by likeness and number."""

    def __init__(self) -> None:
        self._by_likeness: dict[Likeness, Kin] = {}
        self._by_number: dict[int, Kin] = {}
        self._free_numbers: list[int] = []

    def __iter__(self) -> Iterator[Kin]:
        return iter(self._by_number.values())

    def get(self, number: int) -> Kin | None:
        """The kin of a number, if there is one."""
        return self._by_number.get(number)

    def join(self, likeness: Likeness, line: int) -> Kin:
        """The kin of one more line; nobody is of it yet if it has no other. O(1)."""
        kin = self._by_likeness.get(likeness)
        if kin is None:
            number = self._free_numbers.pop() if self._free_numbers else len(self._by_number)
            kin = self._by_likeness[likeness] = self._by_number[number] = Kin(number, likeness)
        kin.lines[line] = None
        return kin

    def leave(self, kin: Kin, line: int) -> None:
        """A line is no more. O(1)."""
        del kin.lines[line]
        kin.refused.pop(line, None)
        if not kin.lines:
            del self._by_likeness[kin.likeness], self._by_number[kin.number]
            self._free_numbers.append(kin.number)

    def forget(self) -> None:
        """Something changed that might help anyone. O(kin)."""
        for kin in self._by_number.values():
            kin.forget()


def likeness_of(
    spec: JobSpec,
    topology: Topology,
    avoid_hosts: tuple[str, ...],
    bound: Binding | None,
    over_quota: bool,
    granted: int | None = None,
    beside: str = "",
) -> Likeness:
    """All that decides whether a job finds a place: in what band it counts, and what it asks for."""
    return (
        over_quota,
        Band.OPPORTUNISTIC if over_quota else spec.band,
        wanted_of(spec),
        topology,
        spec.datasets,
        avoid_hosts,
        bound,
        granted,
        beside,
    )


def wanted_of(spec: JobSpec) -> tuple[tuple[int, int | None, Resources], ...]:
    """By group, how many tasks there are, or may be at least, and what each needs. O(groups)."""
    return tuple([(group.count, group.min_count, group.resources) for group in spec.groups])
