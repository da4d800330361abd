"""Moves for the sake of packing: a gang joins another on its GPUs, so that the two can be packed.

Gandiva (OSDI '18): packing and migration. Only two on the very same GPUs are tried together, so a
gang without a partner to try moves onto the GPUs of one of its form elsewhere. It is never moved to
where more gangs lie, nor to where its part of the time would do less work; whether the two then go
well together is tried and measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import UNSET, Struct
from msgspec.structs import replace

from topmast.fast.region.inventory.allocation import Allocation
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.inventory.overlay import Overlay
from topmast.model.job import MILLI
from topmast.model.plan import Plan, Seat, capabilities_of

Slot = tuple[str, int]
LOOKED_AT = 128
"""Of the gangs that one could join, so many are looked at, the best first."""


class SharingSnapshot(Struct, frozen=True):
    """Gangs that may move, and how many gangs lie on each GPU and will."""

    columns: Columns
    able: list[Allocation]
    sharing: dict[Slot, int]
    awaited: dict[Slot, bool]
    """GPUs to which a gang is on the way."""
    may_try: Callable[[Allocation, Allocation], bool]
    """Whether two jobs may be tried together now."""
    failures: Callable[[str], int]
    """How often a job was tried in vain."""
    slow_on: Callable[[str], tuple[str, ...]]
    """Hosts where a job was measured to do less than before."""
    expected: Callable[[Allocation, Allocation], float | None]
    """The expected sum of speeds of the first beside the second on its GPUs (turns make 1)."""

    def crowd(self, allocation: Allocation) -> int:
        """How many lie, with itself, on the fullest of its GPUs. O(slots)."""
        return max([self.sharing[slot] for slot in slots_of(allocation)])


class Join(Struct, frozen=True):
    """A move onto another's GPUs, and how many gangs lie on the mover's before."""

    mover: Allocation
    other: Allocation
    to: Plan
    sharing: int
    expected: float | None


def joins(scene: SharingSnapshot, movers: Iterable[Allocation]) -> list[Join]:
    """For each mover without a partner to try, the best to join; each gang at most once.

    O(gangs x slots), and LOOKED_AT for each mover.
    """
    single = [a for a in scene.able if not a.paired and _is_plain(a)]
    lonely = _without_prospects(scene, single)
    hosts: dict[tuple[int, int], list[Allocation]] = {}
    # Those on the emptiest GPUs are joined first, then those least often tried in vain.
    order = sorted(lonely.values(), key=lambda a: (scene.crowd(a), scene.failures(a.job), a.job))
    for allocation in order:
        if not any(slot in scene.awaited for slot in slots_of(allocation)):
            hosts.setdefault(_form(allocation), []).append(allocation)
    found, gone = [], dict.fromkeys((a.job for a in single if a.job not in lonely), True)
    for mover in movers:
        if mover.job in gone or mover.job not in lonely:
            continue
        join = _best_for(scene, mover, hosts.get(_form(mover), ()), gone)
        if join is not None:
            gone[mover.job] = gone[join.other.job] = True
            found.append(join)
    return found


def _without_prospects(scene: SharingSnapshot, single: list[Allocation]) -> dict[str, Allocation]:
    """Gangs without a gang on their very GPUs that they may be tried with. O(gangs x slots)."""
    places: dict[tuple[Slot, ...], list[Allocation]] = {}
    for allocation in single:
        places.setdefault(slots_of(allocation), []).append(allocation)
    return {
        a.job: a
        for here in places.values()
        for a in here
        if not any(b is not a and scene.may_try(a, b) for b in here)
    }


def _best_for(
    scene: SharingSnapshot, mover: Allocation, hosts: Iterable[Allocation], gone: dict[str, bool]
) -> Join | None:
    """Of the first that it could join the one where its part of the time does most."""
    sharing, spec = scene.crowd(mover), mover.spec
    least = spec.speed_on(mover.plan.model) / sharing
    slow = scene.slow_on(mover.job)
    best: tuple[float, Join] | None = None
    for looked, other in enumerate(hosts):
        if looked >= LOOKED_AT:
            break
        expected, there = scene.expected(mover, other), scene.crowd(other)
        # A pair has the turns of two; what they do together in one is expected, or not known.
        part = (expected or 1.0) / (there + 1)
        speed = part * spec.speed_on(other.plan.model)
        if other.job in gone or other.job == mover.job or speed < least:
            continue
        if any(host in slow for host in other.plan.hosts):
            continue
        if (best is None or speed > best[0]) and scene.may_try(mover, other):
            to = place_on_gpus_of(scene.columns, mover, other)
            if to is not None:
                best = speed, Join(mover, other, to, sharing, expected)
    return None if best is None else best[1]


def place_on_gpus_of(columns: Columns, mover: Allocation, other: Allocation) -> Plan | None:
    """The other's seats in a time slice where they are free and memory lasts. O(slices x seats)."""
    resources = mover.spec.groups[0].resources
    listed = {a.model: a.gpus_milli // MILLI for a in resources.accelerators}
    model, each = other.plan.model, len(other.plan.seats[0].slots)
    if listed.get(model, listed.get(None)) != each:
        return None
    rows, needs = columns.rows_of(other.plan.hosts), capabilities_of(mover.spec)
    if any(row in columns.unable[need] for need in needs for row in rows):
        return None  # the engine of that cluster cannot run it
    name = mover.spec.groups[0].name
    seats = tuple(
        Seat(name, rank, seat.host, seat.slots) for rank, seat in enumerate(other.plan.seats)
    )
    for number in range(columns.slices):
        if _is_free(columns, seats, number, mover):
            return replace(
                other.plan, job=mover.job, seats=seats, score=0.0, terms={}, victims=(),
                data_s=0.0, data_bytes=0, time_slice=number or UNSET, colocated_with=UNSET,
            )  # fmt: skip
    return None


def _is_free(columns: Columns, seats: tuple[Seat, ...], time_slice: int, mover: Allocation) -> bool:
    if not columns.take_work(seat.host for seat in seats):
        return False
    trial, needs = Overlay(columns), mover.needs()
    trial.take(seats, needs, time_slice)
    return not trial.is_overdrawn(seats, needs, time_slice)


def _is_plain(allocation: Allocation) -> bool:
    """Whether it is one group of tasks with equally many GPUs, of a fixed number."""
    spec, seats = allocation.spec, allocation.plan.seats
    return (
        len(spec.groups) == 1
        and spec.elastic is None
        and len({len(seat.slots) for seat in seats}) == 1
    )


def _form(allocation: Allocation) -> tuple[int, int]:
    """Tasks, and the GPUs of each: two of one form can have the same seats."""
    return len(allocation.plan.seats), len(allocation.plan.seats[0].slots)


def slots_of(allocation: Allocation) -> tuple[Slot, ...]:
    """The GPUs of a gang, in order; two that lie there in different slices have the same."""
    return tuple(sorted((s.host, slot) for s in allocation.plan.seats for slot in s.slots))
