"""Compiled kernels of the exhaustive search: every cluster, GPU model, level, domain in one call.

State is a tuple of arrays (`inventory/arrays.py` defines a section, and its ``hist``). For a gang
that CPUs and memory do not limit, that index answers exactly what a walk over the hosts would:

- whether a gang fits a section: sum over f of hist[f] * (f // g) tasks;
- the least fragmentation it can cause there: hosts with equally many free GPUs are alike.

Times below are for H hosts, C clusters, S sections, W = widest host + 1, a gang of n tasks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topmast.fast.region.inventory.arrays import F64, I64, Arrays, hist_of
from topmast.jit import inner, kernel

HOST_LEVEL = 0
NOWHERE = -1
INFINITE = np.inf
EPSILON = 1e-9
"""A plan is better than another by more than this: sums in another order round differently."""
EXACT_TASKS = 256
"""Gangs of up to so many tasks per group are seated at provably least fragmentation; larger ones
are filled up by the cheapest hosts first and the rest exactly."""


class Question(NamedTuple):
    """One gang of ``tasks`` equal tasks; a choice is a GPU model with a count and a price."""

    tasks: int
    choice_model: I64
    choice_gpus: I64
    choice_cost: F64
    level_cost: F64
    """(5) the locality term of a plan that spans a level; infinite where not allowed."""
    cluster_cost: F64
    """(C) what is the same for all plans of a cluster (data, balance); infinite: not to be used."""
    stranded: F64
    """(W) the expected number of stranded GPUs on a host with f free ones, times its weight."""


class Rates(NamedTuple):
    """What tasks change at best on a host with f free GPUs, for each choice of a question."""

    rate: F64
    """(choices x W) for each of the tasks that it takes then; infinite where it takes none."""
    taken: I64
    """(choices x W) how many these are."""


@inner
def fitting(
    most: int, free_cpus: float, free_memory: float, cpus: float, memory: float, spare: float
) -> int:
    """Of ``most`` tasks those for which CPUs and memory last; 0 of either of a task is no limit.

    CPUs may lack the ``spare`` part of a task: sums in another order round differently. Compared
    before it is cut to whole tasks: a host without a limit has infinitely much.
    """
    if cpus > 0.0 and free_cpus / cpus + spare < most:
        most = int(max(0.0, free_cpus / cpus + spare))
    if memory > 0.0 and free_memory / memory < most:
        most = int(max(0.0, free_memory / memory))
    return most


@inner
def rates_of(q: Question) -> Rates:
    """The same on every host of a kind, so worked out once. O(choices * W * tasks on a host)."""
    width = q.stranded.shape[0]
    rates = Rates(
        np.full((q.choice_gpus.shape[0], width), INFINITE),
        np.ones((q.choice_gpus.shape[0], width), np.int64),
    )
    for choice in range(q.choice_gpus.shape[0]):
        gpus = q.choice_gpus[choice]
        for free in range(gpus, width):
            for taken in range(1, min(free // gpus, q.tasks) + 1):
                rate = (q.stranded[free - taken * gpus] - q.stranded[free]) / taken
                if rate < rates.rate[choice, free]:
                    rates.rate[choice, free], rates.taken[choice, free] = rate, taken
    return rates


@inner
def seating_cost(
    hist: I64, tasks: int, gpus: int, stranded: F64, rate_of: F64, taken_of: I64, limit: float
) -> float:
    """The least change in stranded GPUs when ``tasks`` of ``gpus`` each sit on ``hist`` (W).

    Infinite when they do not fit, or when no seating can be below ``limit``. A host with f free
    GPUs that takes t tasks changes stranded[f - t * gpus] - stranded[f]; at best, for each task,
    rate_of[f], with taken_of[f] tasks. Exact up to EXACT_TASKS, a lower bound beyond. O(W) when one
    kind of host at the best price per task suffices, else one bounded knapsack over kinds of hosts.
    """
    capacity, free = _best_rate(hist, gpus, rate_of)
    if capacity < tasks:
        return INFINITE
    least: float = rate_of[free] * tasks
    if least + EPSILON > limit:
        return INFINITE
    taken = taken_of[free]
    if tasks % taken == 0 and hist[free] * taken >= tasks:
        return least
    if tasks > EXACT_TASKS:
        return least  # the seats of the winner are priced as they are
    return _knapsack_of_kinds(hist, tasks, gpus, stranded)


@inner
def _best_rate(hist: I64, gpus: int, rate_of: F64) -> tuple[int, int]:
    """Tasks that fit, and the kind of host with the least change per task. O(W)."""
    capacity, best_rate, best_free = 0, INFINITE, 0
    for free in range(gpus, hist.shape[0]):
        if hist[free] == 0:
            continue
        capacity += hist[free] * (free // gpus)
        if rate_of[free] < best_rate:
            best_rate, best_free = rate_of[free], free
    return capacity, best_free


@inner
def _knapsack_of_kinds(hist: I64, tasks: int, gpus: int, stranded: F64) -> float:
    """The least change exactly: hosts one by one, per kind at most tasks. O(W * n * n * W)."""
    cost = np.full(tasks + 1, INFINITE)
    cost[0] = 0.0
    for free in range(gpus, hist.shape[0]):
        for _ in range(min(hist[free], tasks)):
            changed = False
            for total in range(tasks, 0, -1):
                for taken in range(1, min(free // gpus, total) + 1):
                    price = stranded[free - taken * gpus] - stranded[free]
                    with_host = cost[total - taken] + price
                    if with_host < cost[total]:
                        cost[total] = with_host
                        changed = True
            if not changed:
                break
    result: float = cost[tasks]
    return result


@inner
def _one_host(hist: I64, needed: int, stranded: F64) -> tuple[float, int]:
    """The least change on a single host that takes the whole gang, and its free GPUs. O(W)."""
    best, at = INFINITE, NOWHERE
    for free in range(needed, hist.shape[0]):
        if hist[free] > 0:
            change = stranded[free - needed] - stranded[free]
            if change < best:
                best, at = change, free
    return best, at


@inner
def best_plan(a: Arrays, q: Question, rates: Rates) -> tuple[float, int, int, int, int]:
    """The best place for a gang on free GPUs: score, cluster, choice, level, section or free GPUs.

    Looks at every cluster, choice, level and section. What is skipped cannot win: a cluster with
    too little room in its sections together, and a section that by its level and best rate per task
    costs more than what was found. Ties go to the first cluster, choice, level, section. At host
    level the last number says how many GPUs the host to take has free; the first such host is
    meant. O(C * choices * W + sections looked at * W).
    """
    best = INFINITE
    at_cluster, at_choice, at_level, at_place = NOWHERE, NOWHERE, NOWHERE, NOWHERE
    for cluster in range(a.by_cluster.shape[0]):
        score, choice, level, place = best_in_cluster(a, q, rates, cluster, best)
        if score < best:
            best, at_cluster = score, cluster
            at_choice, at_level, at_place = choice, level, place
    return best, at_cluster, at_choice, at_level, at_place


@kernel
def best_place(
    free_milli: I64, offset: I64, whole: I64, available: NDArray[np.bool_], free_cpus: F64,
    free_memory: F64, section: I64, hist: I64, hist_start: I64, members: I64, member_start: I64,
    by_cluster: I64, tasks: int, choice_model: I64, choice_gpus: I64, choice_cost: F64,
    level_cost: F64, cluster_cost: F64, stranded: F64,
) -> tuple[int, int, int, int]:  # fmt: skip
    """`best_plan` without its score: cluster, choice, level, and section (at host level: host).

    Looks up the host itself. Takes the fields of `Arrays` and `Question` one by one: a tuple of
    arrays costs six times as much to hand over from Python, which is most of a call.
    """
    a = Arrays(
        free_milli, offset, whole, available, free_cpus, free_memory, section, hist, hist_start,
        members, member_start, by_cluster,
    )  # fmt: skip
    q = Question(tasks, choice_model, choice_gpus, choice_cost, level_cost, cluster_cost, stranded)
    _, cluster, choice, level, place = best_plan(a, q, rates_of(q))
    if cluster != NOWHERE and level == HOST_LEVEL:
        place = first_with(a, a.by_cluster[cluster, q.choice_model[choice], 3, 0], place)
    return cluster, choice, level, place


@inner
def best_in_cluster(
    a: Arrays, q: Question, rates: Rates, cluster: int, best: float
) -> tuple[float, int, int, int]:
    """The best place in one cluster: score below ``best``, choice, level, section or free GPUs."""
    at_choice, at_level, at_place = NOWHERE, NOWHERE, NOWHERE
    if q.cluster_cost[cluster] == INFINITE:
        return best, at_choice, at_level, at_place
    for choice in range(q.choice_model.shape[0]):
        model, gpus = q.choice_model[choice], q.choice_gpus[choice]
        price = q.cluster_cost[cluster] + q.choice_cost[choice]
        at = a.by_cluster[cluster, model, 3, 0]
        if at == a.by_cluster[cluster, model, 3, 1]:
            continue
        hist = hist_of(a, at)
        change, free = _one_host(hist, gpus * q.tasks, q.stranded)
        score = price + q.level_cost[HOST_LEVEL] + change
        if score < best:
            best, at_choice, at_level, at_place = score, choice, HOST_LEVEL, free
        if q.tasks > 1:
            capacity, free = _best_rate(hist, gpus, rates.rate[choice])
            # No section of the cluster has another kind of host, and none is cheaper than a rack.
            bound = price + q.level_cost[1] + rates.rate[choice, free] * q.tasks
            if capacity >= q.tasks and bound + EPSILON <= best:
                score, level, section = _best_section(a, q, rates, cluster, choice, price, best)
                if score < best:
                    best, at_choice, at_level, at_place = score, choice, level, section
    return best, at_choice, at_level, at_place


@inner
def _best_section(
    a: Arrays, q: Question, rates: Rates, cluster: int, choice: int, price: float, best: float
) -> tuple[float, int, int]:
    """The best of a cluster's sections of a model: score below ``best``, level, section."""
    at_level, at_section = NOWHERE, NOWHERE
    model, gpus = q.choice_model[choice], q.choice_gpus[choice]
    for level in range(1, 5):
        if q.level_cost[level] == INFINITE:
            break
        start = price + q.level_cost[level]
        low = a.by_cluster[cluster, model, level - 1, 0]
        high = a.by_cluster[cluster, model, level - 1, 1]
        for section in range(low, high):
            change = seating_cost(
                hist_of(a, section), q.tasks, gpus, q.stranded, rates.rate[choice],
                rates.taken[choice], best - start,
            )  # fmt: skip
            if start + change < best:
                best, at_level, at_section = start + change, level, section
    return best, at_level, at_section


@inner
def first_with(a: Arrays, section: int, free: int) -> int:
    """The first host in service of a section with so many wholly free GPUs. O(its hosts)."""
    for i in range(a.member_start[section], a.member_start[section + 1]):
        host: int = a.members[i]
        if a.available[host] and a.whole[host] == free:
            return host
    return NOWHERE
