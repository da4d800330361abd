"""Compiled kernels of the exhaustive search: every cluster, GPU model, level and domain, in one call.

State is a tuple of arrays (`Arrays`) over all hosts of a process, sorted by region, cluster,
datacenter, pod and rack, so that every topology domain is a range of hosts. A *section* is the hosts of one
GPU model in one domain; ``hist[section, f]`` counts its hosts in service with f wholly free GPUs,
updated with each allocation. That index answers exactly what a walk over the hosts would:

- whether a gang fits a section: sum over f of hist[f] * (f // g) tasks;
- the least fragmentation it can cause there: hosts with equally many free GPUs are alike.

Times below are for H hosts, C clusters, S sections, W = widest host + 1, a gang of n tasks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

MILLI = 1000
HOST_LEVEL = 0
NOWHERE = -1
INFINITE = np.inf
EXACT_TASKS = 256
"""Gangs of up to so many tasks per group are seated at provably least fragmentation; larger ones
are filled up by the cheapest hosts first and the rest exactly."""


class Arrays(NamedTuple):
    """The columns. Changed only by `take` and `give_back` and `set_available` below."""

    free_milli: I64
    """(slots) thousandths free of each GPU; below zero where a preemptor has claimed a victim's."""
    offset: I64
    """(H + 1) host h owns slots offset[h]:offset[h + 1]."""
    whole: I64
    """(H) wholly free GPUs."""
    free_cpus: F64
    free_memory: F64
    model: I64
    """(H) number of the GPU model, -1 without GPUs."""
    available: I64
    """(H) 1 for a host in service."""
    section: I64
    """(4 x H) the host's section at the levels rack, pod, datacenter, cluster."""
    hist: I64
    """(S x W)"""
    first_host: I64
    """(S) a section's hosts lie in first_host[s]:last_host[s], among those of other models."""
    last_host: I64
    section_model: I64
    """(S)"""
    by_cluster: I64
    """(C x models x 4 x 2) the range in `sections` of each cluster's sections of a model and level."""
    sections: I64
    cluster_first: I64
    """(C) a cluster's hosts are cluster_first[c]:cluster_last[c]."""
    cluster_last: I64


class Question(NamedTuple):
    """One gang of ``tasks`` equal tasks; a choice is a GPU model with a count and a price.

    ``level_cost`` (5) is the locality term of a plan that spans a level, infinite where not
    allowed. ``cluster_cost`` (C) is what is the same for all plans of a cluster (data, balance),
    infinite for one that may not be used. ``stranded`` (W) is the expected number of stranded GPUs on a
    host with f free ones, times its weight.
    """

    tasks: int
    choice_model: I64
    choice_gpus: I64
    choice_cost: F64
    level_cost: F64
    cluster_cost: F64
    stranded: F64


@njit(cache=True, nogil=True)
def reindex(a: Arrays, host: int, before: int, after: int) -> None:
    """Move a host in service from one column of the histograms to another. O(levels)."""
    for level in range(4):
        section = a.section[level, host]
        a.hist[section, before] -= 1
        a.hist[section, after] += 1


@njit(cache=True, nogil=True)
def count_whole(a: Arrays, host: int) -> int:
    """Count a host's wholly free GPUs anew. O(its slots)."""
    count = 0
    for slot in range(a.offset[host], a.offset[host + 1]):
        if a.free_milli[slot] == MILLI:
            count += 1
    return count


@njit(cache=True, nogil=True)
def refresh(a: Arrays, host: int) -> None:
    """Bring a host's count of free GPUs, and the histograms, up to its slots. O(its slots)."""
    before = a.whole[host]
    after = count_whole(a, host)
    if before != after:
        a.whole[host] = after
        if a.available[host]:
            reindex(a, host, before, after)


@njit(cache=True, nogil=True)
def set_available(a: Arrays, host: int, available: int) -> None:
    """Put a host in or out of service. O(levels)."""
    if a.available[host] == available:
        return
    a.available[host] = available
    change = 1 if available else -1
    for level in range(4):
        a.hist[a.section[level, host], a.whole[host]] += change


@njit(cache=True, nogil=True)
def seating_cost(hist: I64, tasks: int, gpus: int, stranded: F64, limit: float) -> float:
    """The least change in stranded GPUs when ``tasks`` of ``gpus`` each sit on the hosts of ``hist`` (W).

    Infinite when they do not fit, or when no seating can be below ``limit``. A host with f free
    GPUs that takes t tasks changes stranded[f - t * gpus] - stranded[f]. Bounded knapsack over
    kinds of hosts: exact up to EXACT_TASKS. O(W * n * min(n, hosts) * W / gpus) at worst; O(W) when
    one kind of host at the best price per task suffices.
    """
    width = hist.shape[0]
    capacity = 0
    best_rate = INFINITE
    best_free, best_taken = 0, 1
    for free in range(gpus, width):
        if hist[free] == 0:
            continue
        most = free // gpus
        capacity += hist[free] * most
        for taken in range(1, most + 1):
            rate = (stranded[free - taken * gpus] - stranded[free]) / taken
            if rate < best_rate:
                best_rate, best_free, best_taken = rate, free, taken
    if capacity < tasks:
        return INFINITE
    least = best_rate * tasks
    if least >= limit:
        return INFINITE
    if tasks % best_taken == 0 and hist[best_free] * best_taken >= tasks:
        return least
    cost = np.full(tasks + 1, INFINITE)
    cost[0] = 0.0
    for free in range(gpus, width):
        most = free // gpus
        for _ in range(min(hist[free], tasks)):
            changed = False
            for total in range(tasks, 0, -1):
                for taken in range(1, min(most, total) + 1):
                    price = stranded[free - taken * gpus] - stranded[free]
                    with_host = cost[total - taken] + price
                    if with_host < cost[total]:
                        cost[total] = with_host
                        changed = True
            if not changed:
                break
    return cost[tasks]


@njit(cache=True, nogil=True)
def holds(hist: I64, tasks: int, gpus: int) -> bool:
    """Whether the hosts of ``hist`` (W) could take ``tasks`` of ``gpus`` each. O(W)."""
    capacity = 0
    for free in range(gpus, hist.shape[0]):
        capacity += hist[free] * (free // gpus)
    return capacity >= tasks


@njit(cache=True, nogil=True)
def best_plan(a: Arrays, q: Question) -> tuple[float, int, int, int, int]:
    """The best place for a gang on free GPUs: score, cluster, choice, level, section or free GPUs.

    Looks at every cluster, choice, level and section. What is skipped cannot win: a cluster whose
    sections together lack the room, and a section whose level and best rate per task already cost
    more than what was found. Ties go to the first cluster, choice, level, section. At host level
    the last number says how many GPUs the host to take has free; the first such host is meant.
    O(C * choices * W + sections looked at * W).
    """
    best = INFINITE
    at_cluster, at_choice, at_level, at_place = NOWHERE, NOWHERE, NOWHERE, NOWHERE
    width = a.hist.shape[1]
    for cluster in range(a.cluster_first.shape[0]):
        if q.cluster_cost[cluster] == INFINITE:
            continue
        for choice in range(q.choice_model.shape[0]):
            model, gpus = q.choice_model[choice], q.choice_gpus[choice]
            price = q.cluster_cost[cluster] + q.choice_cost[choice]
            at = a.by_cluster[cluster, model, 3, 0]
            if at == a.by_cluster[cluster, model, 3, 1]:
                continue
            all_hosts = a.hist[a.sections[at]]
            needed = gpus * q.tasks
            for free in range(needed, width):
                if all_hosts[free] > 0:
                    change = q.stranded[free - needed] - q.stranded[free]
                    score = price + q.level_cost[HOST_LEVEL] + change
                    if score < best:
                        best, at_cluster, at_choice = score, cluster, choice
                        at_level, at_place = HOST_LEVEL, free
            if q.tasks == 1 or not holds(all_hosts, q.tasks, gpus):
                continue
            for level in range(1, 5):
                if q.level_cost[level] == INFINITE:
                    break
                start = price + q.level_cost[level]
                low = a.by_cluster[cluster, model, level - 1, 0]
                high = a.by_cluster[cluster, model, level - 1, 1]
                for at in range(low, high):
                    section = a.sections[at]
                    change = seating_cost(
                        a.hist[section], q.tasks, gpus, q.stranded, best - start
                    )
                    if start + change < best:
                        best, at_cluster, at_choice = start + change, cluster, choice
                        at_level, at_place = level, section
    return best, at_cluster, at_choice, at_level, at_place


@njit(cache=True, nogil=True)
def seat(
    a: Arrays,
    first: int,
    last: int,
    model: int,
    room: I64,
    tasks: int,
    gpus: int,
    stranded: F64,
    taken: I64,
) -> float:
    """Seat a gang on the hosts first:last of one model at least change in stranded GPUs.

    ``room`` (last - first): how many tasks each host may take at most. Writes the tasks of each host to
    ``taken`` (last - first) and returns the change, infinite if they do not fit. Exact: a bounded
    knapsack over hosts, of which no more of a kind are looked at than there are tasks; ties go to
    the first hosts. O(hosts + kinds * n * n * tasks per host).
    """
    count = last - first
    taken[:] = 0
    width = stranded.shape[0]
    looked = np.zeros((width, tasks + 1), np.int64)
    hosts = np.empty(count, np.int64)
    n_hosts = 0
    for i in range(count):
        host = first + i
        most = min(room[i], tasks)
        if most <= 0 or a.model[host] != model or not a.available[host]:
            continue
        free = a.whole[host]
        if looked[free, most] < tasks:
            looked[free, most] += 1
            hosts[n_hosts] = i
            n_hosts += 1
    cost = np.full((n_hosts + 1, tasks + 1), INFINITE)
    chose = np.zeros((n_hosts + 1, tasks + 1), np.int16)
    cost[0, 0] = 0.0
    for n in range(n_hosts):
        i = hosts[n]
        free = a.whole[first + i]
        most = min(room[i], tasks)
        for total in range(tasks + 1):
            cost[n + 1, total] = cost[n, total]
            for t in range(1, min(most, total) + 1):
                price = cost[n, total - t] + stranded[free - t * gpus] - stranded[free]
                if price < cost[n + 1, total]:
                    cost[n + 1, total] = price
                    chose[n + 1, total] = t
    if cost[n_hosts, tasks] == INFINITE:
        return INFINITE
    left = tasks
    for n in range(n_hosts, 0, -1):
        t = chose[n, left]
        taken[hosts[n - 1]] = t
        left -= t
    return cost[n_hosts, tasks]
