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


class Known(NamedTuple):
    """What places cost choices (K, of all kinds of gangs); worked out anew where hosts change.

    A section costs nothing but what a gang changes there: `best_plan` adds the prices.
    """

    changes: I64
    """(S + C) grow from 1 on when hosts of a section, or of a cluster, have changed."""
    seen: I64
    """(K x S + C) as of which change the rest is known; 0: never."""
    least: F64
    """(K x S + C) what no seating on several hosts can be below; infinite where there is none."""
    exact: F64
    """(K x S) the least change on several hosts; NaN: not worked out yet."""
    alone: F64
    """(K x C) the least change on one host."""
    free: I64
    """(K x C) free GPUs of that host."""


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
def _least_on_several(
    hist: I64, tasks: int, gpus: int, rate_of: F64, taken_of: I64
) -> tuple[float, bool]:
    """What ``tasks`` of ``gpus`` each change on ``hist`` (W) at least, and whether they reach it.

    Infinite when they do not fit. A host with f free GPUs that takes t tasks changes
    stranded[f - t * gpus] - stranded[f]; at best, for each task, rate_of[f], with taken_of[f]
    tasks. Reached where one kind of host at the best price per task suffices; of gangs beyond
    EXACT_TASKS the seats of the winner are priced as they are. O(W).
    """
    capacity, best_rate, best = 0, INFINITE, 0
    for free in range(gpus, hist.shape[0]):
        if hist[free] > 0:
            capacity += hist[free] * (free // gpus)
            if rate_of[free] < best_rate:
                best_rate, best = rate_of[free], free
    if capacity < tasks:
        return INFINITE, True
    taken = taken_of[best]
    suffices = tasks % taken == 0 and hist[best] * taken >= tasks
    return best_rate * tasks, suffices or tasks > EXACT_TASKS


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


@kernel
def best_place(
    free_milli: I64, offset: I64, whole: I64, available: NDArray[np.bool_], free_cpus: F64,
    free_memory: F64, section: I64, hist: I64, hist_start: I64, members: I64, member_start: I64,
    by_cluster: I64, tasks: int, choice_model: I64, choice_gpus: I64, choice_cost: F64,
    level_cost: F64, cluster_cost: F64, stranded: F64,
) -> tuple[int, int, int, int]:  # fmt: skip
    """`best_plan` for one gang: cluster, choice, level, and section (at host level: host).

    Looks up the host itself. Takes the fields of `Arrays` and `Question` one by one: a tuple of
    arrays costs six times as much to hand over from Python, which is most of a call.
    """
    a = Arrays(
        free_milli, offset, whole, available, free_cpus, free_memory, section, hist, hist_start,
        members, member_start, by_cluster,
    )  # fmt: skip
    q = Question(tasks, choice_model, choice_gpus, choice_cost, level_cost, cluster_cost, stranded)
    known = nothing_known(choice_model.shape[0], hist_start.shape[0] - 1, by_cluster.shape[0])
    cluster, choice, level, place = best_plan(a, q, rates_of(q), known, 0)
    if cluster != NOWHERE and level == HOST_LEVEL:
        place = first_with(a, a.by_cluster[cluster, q.choice_model[choice], 3, 0], place)
    return cluster, choice, level, place


@inner
def nothing_known(choices: int, sections: int, clusters: int) -> Known:
    """Before the first question."""
    places = choices, sections + clusters
    return Known(
        np.ones(sections + clusters, np.int64),
        np.zeros(places, np.int64),
        np.empty(places),
        np.empty((choices, sections)),
        np.empty((choices, clusters)),
        np.empty((choices, clusters), np.int64),
    )


@inner
def best_plan(
    a: Arrays, q: Question, rates: Rates, known: Known, first: int
) -> tuple[int, int, int, int]:
    """The best place for a gang on free GPUs: cluster, choice, level, section or free GPUs.

    ``first``: the row of its first choice in ``known``. Looks at every cluster, choice, level and
    section. What is skipped cannot win: a cluster with too little room in its sections together,
    and a section that by its level and best rate per task costs more than what was found. Ties go
    to the first cluster, choice, level, section. At host level the last number says how many GPUs
    the host to take has free; the first such host is meant.

    O(C * choices + sections looked at + W for each of these that is not known). Columns have names
    of their own here: to hand over a tuple of arrays costs more than to look at a cluster.
    """
    sections = known.exact.shape[1]
    changes, seen, least, alone = known.changes, known.seen, known.least, known.alone
    cluster_cost, choice_cost, on_host, on_rack = (
        q.cluster_cost, q.choice_cost, q.level_cost[HOST_LEVEL], q.level_cost[1]
    )  # fmt: skip
    best = INFINITE
    at_cluster, at_choice, at_level, at_place = NOWHERE, NOWHERE, NOWHERE, NOWHERE
    for cluster in range(cluster_cost.shape[0]):
        if cluster_cost[cluster] == INFINITE:
            continue
        at = sections + cluster
        for choice in range(choice_cost.shape[0]):
            row = first + choice
            if seen[row, at] != changes[at]:
                _look_at_cluster(a, q, rates, known, cluster, choice, row)
            price = cluster_cost[cluster] + choice_cost[choice]
            score = price + on_host + alone[row, cluster]
            if score < best:
                best, at_cluster, at_choice, at_level = score, cluster, choice, HOST_LEVEL
                at_place = known.free[row, cluster]
            # No section of the cluster has another kind of host, and none is cheaper than a rack.
            bound = price + on_rack + least[row, at]
            if bound < INFINITE and bound + EPSILON <= best:
                score, level, section = _best_section(
                    a, q, rates, known, cluster, choice, row, best
                )
                if score < best:
                    best, at_cluster, at_choice = score, cluster, choice
                    at_level, at_place = level, section
    return at_cluster, at_choice, at_level, at_place


@inner
def _best_section(
    a: Arrays, q: Question, rates: Rates, known: Known, cluster: int, choice: int, row: int,
    best: float,
) -> tuple[float, int, int]:  # fmt: skip
    """The best of a cluster's sections of a model: score below ``best``, level, section."""
    at_level, at_section, model = NOWHERE, NOWHERE, q.choice_model[choice]
    for level in range(1, 5):
        if q.level_cost[level] == INFINITE:
            break
        start = q.cluster_cost[cluster] + q.choice_cost[choice] + q.level_cost[level]
        low = a.by_cluster[cluster, model, level - 1, 0]
        high = a.by_cluster[cluster, model, level - 1, 1]
        for section in range(low, high):
            if known.seen[row, section] != known.changes[section]:
                _look_at_section(a, q, rates, known, section, choice, row)
            if known.least[row, section] + EPSILON > best - start:
                continue
            if np.isnan(known.exact[row, section]):
                hist, gpus = hist_of(a, section), q.choice_gpus[choice]
                known.exact[row, section] = _knapsack_of_kinds(hist, q.tasks, gpus, q.stranded)
            score = start + known.exact[row, section]
            if score < best:
                best, at_level, at_section = score, level, section
    return best, at_level, at_section


@inner
def _look_at_cluster(
    a: Arrays, q: Question, rates: Rates, known: Known, cluster: int, choice: int, row: int
) -> None:
    """What a choice costs in a cluster at least, as its hosts are now. O(W)."""
    at, model = known.exact.shape[1] + cluster, q.choice_model[choice]
    known.seen[row, at] = known.changes[at]
    known.alone[row, cluster] = known.least[row, at] = INFINITE
    section = a.by_cluster[cluster, model, 3, 0]
    if section == a.by_cluster[cluster, model, 3, 1]:
        return
    hist, gpus = hist_of(a, section), q.choice_gpus[choice]
    change, free = _one_host(hist, gpus * q.tasks, q.stranded)
    known.alone[row, cluster], known.free[row, cluster] = change, free
    if q.tasks > 1:
        known.least[row, at], _ = _least_on_several(
            hist, q.tasks, gpus, rates.rate[choice], rates.taken[choice]
        )


@inner
def _look_at_section(
    a: Arrays, q: Question, rates: Rates, known: Known, section: int, choice: int, row: int
) -> None:
    """What a choice costs in a section, as its hosts are now, as far as that is quick. O(W)."""
    known.seen[row, section] = known.changes[section]
    least, is_exact = _least_on_several(
        hist_of(a, section), q.tasks, q.choice_gpus[choice], rates.rate[choice], rates.taken[choice]
    )
    known.least[row, section] = least
    known.exact[row, section] = least if is_exact else np.nan


@inner
def first_with(a: Arrays, section: int, free: int) -> int:
    """The first host in service of a section with so many wholly free GPUs. O(its hosts)."""
    for i in range(a.member_start[section], a.member_start[section + 1]):
        host: int = a.members[i]
        if a.available[host] and a.whole[host] == free:
            return host
    return NOWHERE
