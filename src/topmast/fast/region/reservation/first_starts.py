"""Where and when a gang that finds no room now is expected to start first, by the expected ends."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from msgspec import Struct

from topmast.fast.region.inventory.allocation import Allocation, expected_end_s
from topmast.fast.region.inventory.columns import CPU_DECIMALS, Columns, Floats, Ints, cpus_of
from topmast.fast.region.inventory.index import index_of
from topmast.fast.region.inventory.overlay import Leaving
from topmast.model.bisection import fewest_with
from topmast.model.plan import PlacementRequest, Plan, Reservation, needs_of

Ends = list[tuple[float, str]]
"""Times and jobs, in order."""
Find = Callable[[Columns], Plan | None]
"""The best plan on free GPUs alone, in columns as they will be."""


def without(columns: Columns, held: Reservation) -> Columns:
    """The columns for jobs that must leave the reserved seats alone. O(slots)."""
    trial = columns.trial()
    trial.take(held.seats, needs_of(held.groups))
    return trial


class Aside(Struct):
    """What ``held`` takes of these slots and hosts (rows). ``hosts``: the rows in order."""

    held: Reservation
    hosts: Ints
    slots: Ints
    milli: Ints
    rows: Ints
    cpus: Floats
    memory: Ints


def _aside(columns: Columns, held: Reservation) -> Aside:
    """What a reservation takes, worked out once for these columns. O(its slots), or O(1)."""
    known = columns.aside
    if isinstance(known, Aside) and known.held is held:
        return known
    needs = needs_of(held.groups)
    milli, cpus, memory = dict[int, int](), dict[int, float](), dict[int, int]()
    for seat in held.seats:
        row = columns.index.get(seat.host)
        if row is None:
            continue  # the host left the fleet
        first = int(columns.offset[row])
        for slot in (s for s in seat.slots if s < columns.gpus[row]):
            milli[first + slot] = milli.get(first + slot, 0) + seat.slot_milli
        cpus[row] = cpus.get(row, 0.0) + cpus_of(needs[seat.group])
        memory[row] = memory.get(row, 0) + needs[seat.group].memory_bytes
    rows = np.array(list(cpus), np.int64)
    columns.aside = found = Aside(
        held, np.sort(rows), np.array(list(milli), np.int64),
        np.array(list(milli.values()), np.int64), rows, np.array(list(cpus.values())),
        np.array(list(memory.values()), np.int64),
    )  # fmt: skip
    return found


@contextmanager
def kept_out(columns: Columns, held: Reservation) -> Iterator[None]:
    """For its duration the reserved seats count as taken, in columns and index. O(their slots).

    For searches on free GPUs alone: the index does not know which attempts would have to go.
    Afterwards all is exactly as it was.
    """
    index, aside = index_of(columns), _aside(columns, held)
    hosts = columns.first_row + aside.hosts
    free = (columns.free_milli, columns.free_cpus, columns.free_memory)
    places = (aside.slots, aside.rows, aside.rows)
    before = [amount[at] for amount, at in zip(free, places, strict=True)]
    columns.free_milli[aside.slots] -= aside.milli
    columns.free_cpus[aside.rows] = np.round(before[1] - aside.cpus, CPU_DECIMALS)
    columns.free_memory[aside.rows] -= aside.memory
    index.changed(hosts)
    index.holders.refresh_each(hosts)
    try:
        yield
    finally:
        for amount, at, was in zip(free, places, before, strict=True):
            amount[at] = was
        index.changed(hosts)
        index.holders.refresh_each(hosts)


def ends_of(allocations: Mapping[str, Allocation], default_s: float, now: float) -> Ends:
    """The expected ends of attempts, each with its job, the first in front. O(n log n)."""
    return sorted((expected_end_s(a, default_s, now), a.job) for a in allocations.values())


def first_start(
    ask: PlacementRequest,
    region: str,
    columns: Columns,
    allocations: Mapping[str, Allocation],
    ends: Ends,
    find: Find,
    not_before_s: float = -math.inf,
) -> Reservation | None:
    """The earliest expected end at which the gang has a place, and that place.

    Bisection over the ends, for room only grows: O(log attempts) searches, between which attempts
    are let go or put back in one trial, O(attempts) in all. None is earlier than ``not_before_s``,
    and most often the place is there then: that is tried first.
    """
    leaving = Leaving(columns, [allocations[job] for _, job in ends])
    too_few = bisect_left(ends, not_before_s, key=lambda end: end[0])
    guess = bisect_right(ends, not_before_s, key=lambda end: end[0])
    found = fewest_with(lambda n: find(leaving.after(n)), len(ends), too_few, guess)
    if found is None:
        return None
    count, best = found
    from_s = ends[count - 1][0]
    return Reservation(ask.job, region, best.cluster, from_s, best.seats, ask.groups)
