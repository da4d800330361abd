"""When a gang that has no room now may start first, in all regions at once: a bound from below.

Attempts are taken to end when expected. `first_room` lets them go in that order and counts the
tasks that fit into the widest sections open to the gang. It counts no less than there will be: a
GPU that is given back counts as free, claimed or not. So no region has a place before its bound,
and only the region of the earliest one needs to be searched.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from topmast.fast.region.inventory.allocation import OVERRUNS_S
from topmast.fast.region.inventory.allocation_table import NONE, AllocationTable
from topmast.fast.region.inventory.arrays import I64, MILLI, Arrays
from topmast.fast.region.inventory.columns import Floats, Ints, cpus_of
from topmast.fast.region.inventory.index import Index
from topmast.fast.region.search.compiled import Choice, choices_in
from topmast.fast.region.search.kernels import NOWHERE, fitting
from topmast.jit import kernel
from topmast.model.job import Level
from topmast.model.plan import PlacementRequest

SPARE = 1e-6
"""CPUs are counted as so many tasks more, for they are not rounded at each step here."""


def bounds_s(
    index: Index, ask: PlacementRequest, regions: Iterable[str], default_s: float, now: float
) -> dict[str, float]:
    """By region, a bound from below on the first start of a gang of equal whole-GPU tasks, if any.

    O(A log A + entries + hosts), for A attempts.
    """
    rows = np.flatnonzero(index.holders.of_region != NONE)
    end_s = _ends_s(index, rows, default_s, now)
    by_end = np.argsort(end_s, kind="stable")
    rows, end_s = rows[by_end], end_s[by_end]
    needs = ask.groups[0].resources
    need = (cpus_of(needs), float(needs.memory_bytes))
    first_s = np.full(len(index.parts), np.inf)
    for choice in choices_in(index, ask):
        section = _section_of(index, ask, choice)
        counts = first_room(
            index.arrays, index.holders.held, rows, index.holders.of_region, section,
            ask.groups[0].count, choice.gpus, *need, len(index.parts),
        )  # fmt: skip
        by_count = np.concatenate([[-np.inf], end_s, [np.inf]])  # the last for NOWHERE
        first_s = np.minimum(first_s, by_count[counts])
    number = {part.region: n for n, part in enumerate(index.parts)}
    found = {region: float(first_s[number[region]]) for region in regions}
    return {region: at_s for region, at_s in found.items() if at_s < np.inf}


def _ends_s(index: Index, rows: Ints, default_s: float, now: float) -> Floats:
    """`expected_end_s` of all these attempts. O(rows)."""
    attempts = index.holders.held.attempts[rows]
    expected_s = np.where(np.isnan(attempts["expected_s"]), default_s, attempts["expected_s"])
    due_s = attempts["start_s"] + expected_s
    end_s = np.full(len(rows), now + OVERRUNS_S[-1])
    for more_s in reversed(OVERRUNS_S):
        end_s = np.where(due_s + more_s > now, due_s + more_s, end_s)
    end_s = np.where(due_s >= now, due_s, end_s)
    return np.where(attempts["stopping"], now, end_s)


def _section_of(index: Index, ask: PlacementRequest, choice: Choice) -> Ints:
    """By host (H): the widest section open to the gang; NOWHERE if it may not use the host."""
    required = Level.CLUSTER if ask.topology.required is None else ask.topology.required
    arrays = index.arrays
    hosts = len(arrays.whole)
    section = np.arange(hosts) if required is Level.HOST else arrays.section[int(required) - 1]
    usable = arrays.available & index.of_model[choice.model]
    if ask.cluster is not None:
        for part in index.parts:
            elsewhere = np.array(part.cluster_of) != ask.cluster
            usable[part.first_row : part.first_row + len(part.hosts)] &= ~elsewhere
    usable[index.excluded(ask)] = False
    return np.where(usable, section, NOWHERE)


@kernel
def first_room(
    a: Arrays, h: AllocationTable, rows: I64, of_region: I64, section: I64, tasks: int, gpus: int,
    cpus: float, memory: float, regions: int,
) -> I64:  # fmt: skip
    """How many of ``rows`` must go, from the first on, until a section of a region may have room.

    By region; NOWHERE if it never has. ``section`` (H): the one of each host. O(H + entries).
    """
    whole, free_milli = a.whole.copy(), a.free_milli.copy()
    free_cpus, free_memory = a.free_cpus.copy(), a.free_memory.copy()
    room_on = np.zeros(whole.shape[0], np.int64)
    room = np.zeros(max(whole.shape[0], a.hist_start.shape[0]), np.int64)
    for host in range(whole.shape[0]):
        if section[host] != NOWHERE:
            room_on[host] = fitting(
                whole[host] // gpus, free_cpus[host], free_memory[host], cpus, memory, SPARE
            )
            room[section[host]] += room_on[host]
    found = np.full(regions, NOWHERE)
    for n in range(rows.shape[0]):
        region = of_region[rows[n]]
        entry = h.attempts[rows[n]].entry
        while entry != NONE and found[region] == NOWHERE:
            host, slot = h.entries[entry].host, h.entries[entry].slot
            if section[host] != NOWHERE:
                if slot != NONE:
                    free_milli[slot] += h.entries[entry].milli
                    whole[host] += free_milli[slot] == MILLI
                else:
                    whole[host] += h.entries[entry].whole
                    free_cpus[host] += h.entries[entry].cpus
                    free_memory[host] += h.entries[entry].memory
                now = fitting(
                    whole[host] // gpus, free_cpus[host], free_memory[host], cpus, memory, SPARE
                )
                room[section[host]] += now - room_on[host]
                room_on[host] = now
                if room[section[host]] >= tasks:
                    found[region] = n + 1
            entry = h.entries[entry].more
    return found
