"""Many equal jobs of one task in one kernel call, each on the GPUs that those before it left."""

from __future__ import annotations

from numba import njit

from topmast.fast.placement.holdings import Holdings, refresh
from topmast.fast.placement.kernels import (
    I64,
    MILLI,
    NOWHERE,
    Arrays,
    Question,
    best_plan,
    first_with,
)


@njit(cache=True, nogil=True)
def place_singles(a: Arrays, h: Holdings, q: Question, count: int, hosts: I64) -> int:
    """Place up to ``count`` equal one-task jobs, one after the other, each taking its lowest free GPUs.

    Writes the host of each to ``hosts`` (count) and returns how many found a place. The same
    answers as one question after another. O(count * one `best_plan`).
    """
    for n in range(count):
        _, cluster, choice, _, free = best_plan(a, q)
        if cluster == NOWHERE:
            return n
        host = first_with(a, a.by_cluster[cluster, q.choice_model[choice], 3, 0], free)
        left = q.choice_gpus[choice]
        slot = a.offset[host]
        while left > 0:
            if a.free_milli[slot] == MILLI:
                a.free_milli[slot] = 0
                left -= 1
            slot += 1
        refresh(a, h, host)
        hosts[n] = host
    return count
