"""What must hold of the books of a region."""

from __future__ import annotations

import numpy as np

from topmast.fast.invariants import require
from topmast.fast.region.inventory.allocation import AllocationPhase
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.inventory.index import index_of
from topmast.fast.region.state import RegionState


def check_hosts(placer: RegionState) -> None:
    """What hosts have free is what attempts and places leave of them; claims wait for attempts.

    O(hosts + attempts).
    """
    state, known = placer.state, placer.columns
    fresh, runs = Columns(state.region, known.slices), Columns(state.region, known.slices)
    for allocation in state.allocations.values():
        plan, job = allocation.plan, allocation.job
        fresh.take(plan.seats, allocation.needs(), plan.in_slice)
        if allocation.hold is AllocationPhase.CLAIMED:
            here = [other for other in allocation.waiting_for if other in state.allocations]
            require(here == allocation.waiting_for, f"{job} waits for attempts that are over")
            require(bool(here), f"{job} claims its slots and waits for no attempt")
        else:
            runs.take(plan.seats, allocation.needs(), plan.in_slice)
            require(not allocation.waiting_for, f"{job} runs and waits for victims")
    for job, place in state.places.items():
        fresh.take(place.plan.seats, place.needs, place.plan.in_slice)
        held = state.allocations.get(job)
        stops = held is None or held.hold is AllocationPhase.STOPPING
        require(stops, f"{job} runs and has a place kept")
    for name in ("free_milli", "free_cpus", "free_memory"):
        same = np.array_equal(getattr(known, name), getattr(fresh, name))
        require(same, f"{name} of region {placer.region} is not what attempts leave free")
        within = bool((getattr(runs, name) >= 0).all())
        require(within, f"{name} of region {placer.region}: more is allocated than is there")
    for host in known.index:
        wanted = placer.host_state(host)
        for row in known.rows_of((host,)):
            require(known.states[row] is wanted, f"{host} is searched as {known.states[row]}")


def check_index(columns: Columns) -> None:
    """The counts by which the search looks hosts up equal those counted from the slots.

    O(hosts x levels).
    """
    arrays = index_of(columns).arrays
    rows = slice(columns.first_row, columns.first_row + len(columns.hosts))
    same = np.array_equal(arrays.whole[rows], columns.whole_free())
    require(same, "the index counts other whole GPUs than are free")
    counted = np.zeros_like(arrays.hist)
    open_rows = np.flatnonzero(arrays.available)
    for level in range(arrays.section.shape[0]):
        bins = arrays.hist_start[arrays.section[level, open_rows]] + arrays.whole[open_rows]
        np.add.at(counted, bins, 1)
    require(np.array_equal(arrays.hist, counted), "the index counts hosts under other sizes")
