"""The search on free GPUs for equal tasks, where more than the number of free GPUs counts.

CPUs, memory or hosts to avoid limit it, or free GPUs are judged by the shapes of recent tasks.

What tasks of a kind cost is kept by host and by section, and worked out anew only where hosts have
changed: a decision looks at every cluster, but at the hosts of those alone that changed since the
last one of the kind.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topmast.fast.region.inventory.arrays import F64, I64, Arrays
from topmast.fast.region.search.kernels import EPSILON, HOST_LEVEL, INFINITE, NOWHERE, fitting
from topmast.fast.region.search.limited_kernels import (
    ROUNDING,
    Loads,
    count_costs,
    least_on,
    seat,
)
from topmast.fast.region.search.stranded import (
    EASE,
    Left,
    Mixture,
    costs_on,
    ease,
    left_of,
    stranded_of,
)
from topmast.jit import inner, kernel

HOST_TO_CLUSTER = 5
"""Levels that a gang may span."""


class Kept(NamedTuple):
    """What is known of tasks of one kind."""

    seen: I64
    """(H) the version of the host as of which its room and costs are known."""
    room: I64
    """(H) tasks that the host could take."""
    costs: F64
    """(tasks on a host - 1, H) what they cost there."""
    as_of: I64
    """(S) the change of its cluster as of which a section that spans a cluster is known."""
    host: I64
    """(S) of such a section, the host that takes the whole gang at the least cost."""
    alone: F64
    """(S) and that cost; infinite where no host does."""
    bound: F64
    """(S) and what no seating on several hosts of any section of the cluster is below."""
    stale: NDArray[np.bool_]
    """(S) whether a section has a host that changed since the next two were worked out."""
    least: F64
    """(S) what no seating on several of its hosts is below; infinite where there is none."""
    exact: F64
    """(S) the least cost on several of its hosts; NaN: not worked out yet."""


def nothing_kept(tasks: int, hosts: int, sections: int) -> Kept:
    """Before the first decision; hosts take at most so many tasks."""
    return Kept(
        np.full(hosts, -1), np.empty(hosts, np.int64), np.empty((tasks, hosts)),
        np.full(sections, -1), np.empty(sections, np.int64), np.empty(sections),
        np.empty(sections), np.ones(sections, np.bool_), np.empty(sections), np.empty(sections),
    )  # fmt: skip


class Task(NamedTuple):
    """What is asked for: a gang of equal tasks."""

    tasks: int
    gpus: int
    cpus: float
    memory: float
    levels: int
    """It may span so many levels, of `HOST_TO_CLUSTER`."""


@kernel
def best_limited_plan(
    free_milli: I64, offset: I64, whole: I64, available: NDArray[np.bool_], free_cpus: F64,
    free_memory: F64, section: I64, hist: I64, hist_start: I64, members: I64, member_start: I64,
    by_cluster: I64, version: I64, changes: I64, by_shapes: bool, milli: I64, cpus: F64,
    memory: F64, right: NDArray[np.bool_], share: F64, useless: F64, price: float, seen: I64,
    room: I64,
    costs: F64, as_of: I64, at_host: I64, alone: F64, bound: F64, stale: NDArray[np.bool_],
    least: F64, exact: F64, tasks: int, gpus: int, task_cpus: float, task_memory: float,
    levels: int, choice_model: I64, choice_gpus: I64, choice_cost: F64, level_cost: F64,
    cluster_cost: F64, stranded: F64, by_loads: bool, base: F64, rise: F64, found: I64,
) -> tuple[float, int, int, int, float]:  # fmt: skip
    """The best place for a gang: score, cluster, choice, number of its hosts, points they pay.

    Of the choices by which a task takes so many ``gpus``. Writes the hosts, and the tasks on each,
    to ``found`` (2 x tasks). Takes the fields of `Arrays`, `Mixture`, `Kept`, `Task` and `Loads`
    one by one, as `kernels.best_place` does. Ties go to the first cluster, choice, level, section,
    host. O(C * choices + hosts of clusters that changed + sections that may win).
    """
    a = Arrays(
        free_milli, offset, whole, available, free_cpus, free_memory, section, hist, hist_start,
        members, member_start, by_cluster,
    )  # fmt: skip
    m = Mixture(by_shapes, milli, cpus, memory, right, share, useless, price)
    loads, alike = Loads(by_loads, base, rise), not (by_shapes or by_loads)
    k = Kept(seen, room, costs, as_of, at_host, alone, bound, stale, least, exact)
    t = Task(tasks, gpus, task_cpus, task_memory, levels)
    like, of_model = NOWHERE, NOWHERE
    best, on_host, on_rack = INFINITE, level_cost[HOST_LEVEL], level_cost[1]
    at_cluster, at_choice, place, is_section = NOWHERE, NOWHERE, NOWHERE, False
    for cluster in range(cluster_cost.shape[0]):
        if cluster_cost[cluster] == INFINITE:
            continue
        for choice in range(choice_model.shape[0]):
            model = choice_model[choice]
            widest = by_cluster[cluster, model, 3, 0]
            if widest == by_cluster[cluster, model, 3, 1] or choice_gpus[choice] != gpus:
                continue
            if as_of[widest] != changes[cluster]:
                as_of[widest] = changes[cluster]
                like = like if of_model == model else NOWHERE
                like = _look_at_cluster(a, version, m, k, t, cluster, model, like, stranded, loads)
                of_model = model
            start = cluster_cost[cluster] + choice_cost[choice]
            score = start + on_host + alone[widest]
            if score < best:
                best, at_cluster, at_choice = score, cluster, choice
                place, is_section = at_host[widest], False
            # No section is cheaper than one of a rack, nor below the bound of its cluster.
            if tasks > 1 and bound[widest] < best - (start + on_rack) - ROUNDING:
                score, at = _best_section(a, k, t, cluster, model, start, level_cost, best, alike)
                if score < best:
                    best, at_cluster, at_choice = score, cluster, choice
                    place, is_section = at, True
    if at_cluster == NOWHERE:
        return INFINITE, NOWHERE, NOWHERE, 0, 0.0
    hosts = _seated(a, k, t, place, is_section, alike, found)
    points = _points(a, m, t, choice_model[at_choice], hosts, found) if by_shapes else 0.0
    return best, at_cluster, at_choice, hosts, points


@inner
def _best_section(
    a: Arrays, k: Kept, t: Task, cluster: int, model: int, price: float, level_cost: F64,
    best: float, alike: bool,
) -> tuple[float, int]:  # fmt: skip
    """The best of a cluster's sections of a model: score below ``best``, section.

    ``alike``: tasks cost the same on hosts with as many free GPUs.
    """
    at = NOWHERE
    for level in range(1, t.levels):
        start = price + level_cost[level]
        low = a.by_cluster[cluster, model, level - 1, 0]
        high = a.by_cluster[cluster, model, level - 1, 1]
        for section in range(low, high):
            if k.least[section] < best - start - ROUNDING:
                if np.isnan(k.exact[section]):
                    hosts = a.members[a.member_start[section] : a.member_start[section + 1]]
                    taken = np.zeros(hosts.shape[0], np.int64)
                    k.exact[section] = seat(a, hosts, k.room, t.tasks, k.costs, alike, taken)
                if start + k.exact[section] < best:
                    best, at = start + k.exact[section], section
    return best, at


@inner
def _look_at_cluster(
    a: Arrays, version: I64, m: Mixture, k: Kept, t: Task, cluster: int, model: int, like: int,
    stranded: F64, loads: Loads,
) -> int:  # fmt: skip
    """Work out anew what the gang costs in a cluster, as its hosts are. O(its hosts + changes).

    ``like``: a host of the model that was priced before, or `NOWHERE`; returns the last one. Most
    hosts look like it, and to hand over tuples of arrays costs more than to compare two hosts.
    """
    members, section, free_milli, offset = a.members, a.section, a.free_milli, a.offset
    seen, room, costs, stale = k.seen, k.room, k.costs, k.stale
    free_cpus, free_memory = a.free_cpus, a.free_memory
    widest = a.by_cluster[cluster, model, 3, 0]
    alone, at = INFINITE, NOWHERE
    for i in range(a.member_start[widest], a.member_start[widest + 1]):
        host = members[i]
        if seen[host] != version[host]:
            seen[host] = version[host]
            for level in range(section.shape[0]):
                stale[section[level, host]] = True
            cpus, memory, most = free_cpus[host], free_memory[host], 0
            if a.available[host]:
                most = a.whole[host] // t.gpus
                most = fitting(most, cpus, memory, t.cpus, t.memory, EPSILON)
            room[host] = most
            if most > 0:
                same = like != NOWHERE and free_cpus[like] == cpus and free_memory[like] == memory
                if not m.apply:
                    few = min(most, t.tasks)
                    count_costs(a.whole[host], few, t.gpus, stranded, loads, host, costs)
                elif same and same_slots(free_milli, offset, host, like):
                    for n in range(min(most, t.tasks)):
                        costs[n, host] = costs[n, like]
                else:
                    _price(a, m, t, model, host, most, costs)
                    like = host
        if room[host] >= t.tasks and costs[t.tasks - 1, host] < alone:
            alone, at = costs[t.tasks - 1, host], host
    k.alone[widest], k.host[widest] = alone, at
    if t.tasks > 1:
        k.bound[widest] = _bound(a, k, t, cluster, model)
    return like


@inner
def same_slots(free_milli: I64, offset: I64, host: int, other: int) -> bool:
    """Whether two hosts have equally much free of each GPU. O(slots)."""
    first, count = offset[host], offset[host + 1] - offset[host]
    if offset[other + 1] - offset[other] != count:
        return False
    for slot in range(count):
        if free_milli[first + slot] != free_milli[offset[other] + slot]:
            return False
    return True


@inner
def _price(a: Arrays, m: Mixture, t: Task, model: int, host: int, most: int, costs: F64) -> None:
    """Work out what up to ``most`` tasks cost on a host by the shapes of recent tasks."""
    free = a.free_milli[a.offset[host] : a.offset[host + 1]]
    old = left_of(m, free, a.free_cpus[host], a.free_memory[host])
    now, task = stranded_of(m, model, old), (t.gpus, t.cpus, t.memory)
    costs_on(m, model, old, now, task, t.tasks, most, costs[:, host])


@inner
def _bound(a: Arrays, k: Kept, t: Task, cluster: int, model: int) -> float:
    """What no seating on several hosts of a section of the cluster is below; of sections anew."""
    bound = INFINITE
    for level in range(1, t.levels):
        low = a.by_cluster[cluster, model, level - 1, 0]
        high = a.by_cluster[cluster, model, level - 1, 1]
        for section in range(low, high):
            if k.stale[section]:
                hosts = a.members[a.member_start[section] : a.member_start[section + 1]]
                k.least[section] = least_on(hosts, k.room, t.tasks, k.costs)
                k.stale[section], k.exact[section] = False, np.nan
            bound = min(bound, k.least[section])
    return bound


@inner
def _seated(
    a: Arrays, k: Kept, t: Task, place: int, is_section: bool, alike: bool, found: I64
) -> int:
    """Write to ``found`` the hosts that take the gang, in order, and how many tasks each takes."""
    if not is_section:
        found[0, 0], found[1, 0] = place, t.tasks
        return 1
    hosts = a.members[a.member_start[place] : a.member_start[place + 1]]
    taken = np.zeros(hosts.shape[0], np.int64)
    seat(a, hosts, k.room, t.tasks, k.costs, alike, taken)
    count = 0
    for i in range(hosts.shape[0]):
        if taken[i] > 0:
            found[0, count], found[1, count] = hosts[i], taken[i]
            count += 1
    return count


@inner
def _points(a: Arrays, m: Mixture, t: Task, model: int, hosts: int, found: I64) -> float:
    """What the gang pays for the GPUs that it strands, added up as `scoring.shapes_cost` does."""
    points = 0.0
    for i in range(hosts):
        host, tasks = found[0, i], found[1, i]
        free = a.free_milli[a.offset[host] : a.offset[host + 1]]
        old = left_of(m, free, a.free_cpus[host], a.free_memory[host])
        cpus = 0.0
        for _ in range(tasks):
            cpus += t.cpus
        new = Left(
            old.whole - tasks * t.gpus, old.parts, old.useless, old.cpus - cpus,
            old.memory - tasks * t.memory,
        )  # fmt: skip
        change = stranded_of(m, model, new) - stranded_of(m, model, old)
        points += m.price * (change + EASE * (tasks / t.tasks) * ease(new))
    return points
