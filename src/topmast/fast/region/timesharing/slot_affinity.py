"""The GPUs of a gang that shares them in turns: those of one that grew, or of one of its size.

But only if these are no more crowded. A gang that grew can give up the GPUs beyond its request. And
only two on the very same GPUs can be packed: a gang beside one on a part of its GPUs would go
slower on all of them. The kernels tell which hosts are alike for a gang; among those, and on each,
the choice is free.
"""

from __future__ import annotations

from collections.abc import Iterator

from topmast.fast.region.inventory.allocation import AllocationPhase
from topmast.fast.region.inventory.columns import Bools, Columns, Ints
from topmast.model.job import MILLI

GROWN, SAME_SIZE, ANY = range(3)
"""Of equally crowded GPUs: those that a gang grew onto, those of one of the same size, any."""


class SlotAffinity:
    """The choice of a host, and of slots on it, among those that are equally good for a gang."""

    def host(self, columns: Columns, alike: Bools, row: int, count: int) -> int:
        """Of ``alike`` hosts one where gangs could give up so many GPUs, or have as many.

        ``row`` where there is none such. O(attempts + slices x slots of the hosts of such gangs).
        """
        first = row - row % columns.places
        own, crowd = self.slots(columns, row, columns.slots(row), [0] * count), _crowd(columns, row)
        best = (max((crowd[slot] for slot in own), default=0), ANY, row)
        for place, rank, slots in _liked(columns, count):
            there = first + place
            if alike[there] and bool((columns.slots(there)[slots] == MILLI).all()):
                crowd = _crowd(columns, place)
                best = min(best, (max(crowd[slot] for slot in slots), rank, there))
        return best[2]

    def slots(self, columns: Columns, row: int, free_milli: Ints, lowest: list[int]) -> list[int]:
        """As many wholly free slots as ``lowest``, with the fewest gangs in any slice.

        Of equally crowded ones those that a gang grew onto, then those of a single gang of this
        size. O(attempts + slices x slots).
        """
        count, place = len(lowest), row % columns.places
        crowd = _crowd(columns, row)
        free = [slot for slot, milli in enumerate(free_milli.tolist()) if milli == MILLI]
        plain = sorted(sorted(free, key=lambda slot: (crowd[slot], slot))[:count])
        choices = [(max((crowd[slot] for slot in plain), default=0), ANY, plain)]
        for at, rank, slots in _liked(columns, count):
            if at == place and set(slots) <= set(free):
                choices.append((max(crowd[slot] for slot in slots), rank, slots))
        return min(choices)[2]


def _crowd(columns: Columns, row: int) -> list[int]:
    """By slot of a host, in how many slices it is taken."""
    rows = range(row % columns.places, len(columns.hosts), columns.places)
    taken = [(columns.slots(row) != MILLI).tolist() for row in rows]
    return [sum(each) for each in zip(*taken, strict=True)]


def _liked(columns: Columns, count: int) -> Iterator[tuple[int, int, list[int]]]:
    """Hosts, and so many of their GPUs, on which a gang had better be, and how much so."""
    for place, slots in _gangs_of(columns, count):
        yield place, SAME_SIZE, slots
    for place, slots in _grown_onto(columns, count):
        yield place, GROWN, slots


def _grown_onto(columns: Columns, count: int) -> Iterator[tuple[int, list[int]]]:
    """On each host of a gang that grew by so many GPUs or more, the slots of its last tasks."""
    for allocation in columns.allocations.values() if count else ():
        elastic, plan = allocation.spec.elastic, allocation.plan
        if elastic is None or allocation.paired or allocation.hold is not AllocationPhase.RUNNING:
            continue
        spare_milli = (plan.tasks_of(elastic.name) - elastic.count) * plan.milli_per_task(
            elastic.name
        )
        if spare_milli < count * MILLI:
            continue
        slots: dict[str, list[int]] = {}
        for seat in reversed(plan.seats):
            if seat.group == elastic.name and seat.slot_milli == MILLI:
                slots.setdefault(seat.host, []).extend(seat.slots)
        for host, own in slots.items():
            if len(own) >= count and host in columns.index:
                yield columns.index[host], sorted(own[:count])


def _gangs_of(columns: Columns, count: int) -> Iterator[tuple[int, list[int]]]:
    """The host and slots of each gang, of any slice, on one host alone with so many GPUs."""
    for allocation in columns.allocations.values() if count else ():
        seats = allocation.plan.seats
        host = seats[0].host
        if sum(len(seat.slots) for seat in seats) != count or host not in columns.index:
            continue
        if all(seat.host == host and seat.slot_milli == MILLI for seat in seats):
            yield columns.index[host], sorted(slot for seat in seats for slot in seat.slots)
