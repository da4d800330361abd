"""Compiled kernels for gangs limited by CPUs, memory or hosts to avoid: walks over hosts.

What t tasks cost on a host is worked out beforehand, in ``costs`` (t - 1, H) for each choice.
Times are as in `kernels.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topmast.fast.region.inventory.arrays import F64, I64, Arrays
from topmast.fast.region.search.kernels import (
    EPSILON,
    EXACT_TASKS,
    HOST_LEVEL,
    INFINITE,
    NOWHERE,
    Question,
    fitting,
)  # fmt: skip
from topmast.fast.region.search.knapsack import seat_alike
from topmast.jit import inner, kernel


class Loads(NamedTuple):
    """What t tasks pay for a host's load: t * (base[host] + t * rise[host]); never below 0.

    ``apply`` False: nothing anywhere. `loads.Loads` says how loads are computed.
    """

    apply: bool
    base: F64
    rise: F64


STEPS = 100
"""Loads are told apart in so many steps."""
ROUNDING = 1e-12
"""Equal prices may differ by so much, as the terms were added up in another order."""


@kernel
def costs_by_counts(
    a: Arrays, hosts: I64, room: I64, gpus: int, tasks: int, stranded: F64, loads: Loads, costs: F64
) -> None:
    """What t tasks cost on a host by its free GPUs and its load, to ``costs``, up to its room."""
    for i in range(hosts.shape[0]):
        host = hosts[i]
        free = a.whole[host]
        for t in range(1, min(room[host], tasks) + 1):
            change = stranded[free - t * gpus] - stranded[free]
            if loads.apply:
                change += t * (loads.base[host] + t * loads.rise[host])
            costs[t - 1, host] = change


@kernel
def best_limited_plan(
    a: Arrays, q: Question, room: I64, costs: F64, alike: bool
) -> tuple[float, int, int, int, int]:
    """`best_plan` for a gang that something besides free GPUs limits.

    ``room`` (choices x H): how many tasks each host could take; ``costs`` (choices x tasks x H):
    what they cost there; ``alike``: the same on hosts with as many free GPUs. At host level the
    last number is the host. Walks over all hosts: O(choices * H * levels), and a knapsack for each
    section that price and capacity do not rule out.
    """
    best = INFINITE
    at_cluster, at_choice, at_level, at_place = NOWHERE, NOWHERE, NOWHERE, NOWHERE
    for cluster in range(a.by_cluster.shape[0]):
        if q.cluster_cost[cluster] == INFINITE:
            continue
        for choice in range(q.choice_model.shape[0]):
            price = q.cluster_cost[cluster] + q.choice_cost[choice]
            change, host = _one_roomy_host(a, q, cluster, choice, room[choice], costs[choice])
            score = price + q.level_cost[HOST_LEVEL] + change
            if score < best:
                best, at_cluster, at_choice = score, cluster, choice
                at_level, at_place = HOST_LEVEL, host
            if q.tasks > 1:
                score, level, section = _best_roomy_section(
                    a, q, cluster, choice, price, best, room[choice], costs[choice], alike
                )
                if score < best:
                    best, at_cluster, at_choice = score, cluster, choice
                    at_level, at_place = level, section
    return best, at_cluster, at_choice, at_level, at_place


@inner
def _one_roomy_host(
    a: Arrays, q: Question, cluster: int, choice: int, room: I64, costs: F64
) -> tuple[float, int]:
    """The least cost on one host with room for the whole gang; that host. O(hosts)."""
    best, at_host = INFINITE, NOWHERE
    model = q.choice_model[choice]
    low, high = a.by_cluster[cluster, model, 3, 0], a.by_cluster[cluster, model, 3, 1]
    for section in range(low, high):
        for i in range(a.member_start[section], a.member_start[section + 1]):
            host = a.members[i]
            if room[host] >= q.tasks and costs[q.tasks - 1, host] < best:
                best, at_host = costs[q.tasks - 1, host], host
    return best, at_host


@inner
def _best_roomy_section(
    a: Arrays, q: Question, cluster: int, choice: int, price: float, best: float, room: I64,
    costs: F64, alike: bool,
) -> tuple[float, int, int]:  # fmt: skip
    """`_best_section` by the room of each host."""
    at_level, at_section = NOWHERE, NOWHERE
    model = q.choice_model[choice]
    for level in range(1, 5):
        if q.level_cost[level] == INFINITE:
            break
        start = price + q.level_cost[level]
        low = a.by_cluster[cluster, model, level - 1, 0]
        high = a.by_cluster[cluster, model, level - 1, 1]
        for section in range(low, high):
            hosts = a.members[a.member_start[section] : a.member_start[section + 1]]
            least = least_on(hosts, room, q.tasks, costs)
            if least < best - start - ROUNDING:  # a section as good as the best loses the tie
                taken = np.zeros(hosts.shape[0], np.int64)
                change = seat(a, hosts, room, q.tasks, costs, alike, taken)
                if start + change < best:
                    best, at_level, at_section = start + change, level, section
    return best, at_level, at_section


@inner
def least_on(hosts: I64, room: I64, tasks: int, costs: F64) -> float:
    """A price that no seating of the gang on ``hosts`` can be below. O(hosts * tasks).

    It is the least price itself where enough hosts take equally many tasks at the best rate.
    """
    capacity = 0
    best_rate, taken, at_best = INFINITE, 1, 0
    for i in range(hosts.shape[0]):
        host = hosts[i]
        most = min(room[host], tasks)
        capacity += most
        for t in range(1, most + 1):
            change = costs[t - 1, host]
            if change / t < best_rate:
                best_rate, taken, at_best = change / t, t, t
            elif change / t == best_rate and t == taken:
                at_best += t
    if capacity < tasks:
        return INFINITE
    least: float = best_rate * tasks
    # Else a hair below, so that rounding can never rule out the best.
    return least if at_best >= tasks and tasks % taken == 0 else least - EPSILON


@kernel
def seat(
    a: Arrays, hosts: I64, room: I64, tasks: int, costs: F64, alike: bool, taken: I64
) -> float:
    """Seat a gang on ``hosts`` at the least cost.

    ``room`` (H): how many tasks each host could take. Writes the tasks of each host to ``taken``
    (hosts) and returns the cost, infinite if they do not fit. A bounded knapsack over hosts, of a
    kind at most as many as tasks (all, where not ``alike``): exact up to EXACT_TASKS. Larger gangs
    fill the hosts of the best rate first, and only the rest is exact. Ties go to the first hosts.
    O(hosts + kinds * n * n * tasks per host).
    """
    taken[:] = 0
    done = 0.0
    left = tasks
    if tasks > EXACT_TASKS:
        done, left = _fill(hosts, room, tasks, costs, taken)
    change = _seat_exactly(a, hosts, room, left, costs, alike, taken)
    return done + change


@inner
def _fill(hosts: I64, room: I64, tasks: int, costs: F64, taken: I64) -> tuple[float, int]:
    """Fill hosts to their most, best rate first, until EXACT_TASKS are left; ties: first hosts.

    O(n * rates that differ), of which there are few: a sort would take long to compile.
    """
    rates = np.full(hosts.shape[0], INFINITE)
    for i in range(hosts.shape[0]):
        most = room[hosts[i]]
        if most > 0:
            rates[i] = costs[most - 1, hosts[i]] / most
    change = 0.0
    left = tasks
    rate = _next_above(-INFINITE, rates)
    while rate < INFINITE:
        for i in range(hosts.shape[0]):
            if rates[i] != rate:
                continue
            most = room[hosts[i]]
            if left - most < EXACT_TASKS:
                return change, left
            taken[i] = most
            left -= most
            change += rate * most
        rate = _next_above(rate, rates)
    return change, left


@inner
def _next_above(bound: float, values: F64) -> float:
    """The least value above the bound; infinite if there is none."""
    least = INFINITE
    for value in values:
        if bound < value < least:
            least = value
    return least


@inner
def _seat_exactly(
    a: Arrays, hosts: I64, room: I64, tasks: int, costs: F64, alike: bool, taken: I64
) -> float:
    """The exact part of `seat`, over untouched hosts: of those alike no more than tasks."""
    widest = 0
    for host in hosts:
        widest = max(widest, a.whole[host])
    looked = np.zeros((widest + 1, tasks + 1), np.int64)
    useful = np.empty(hosts.shape[0], np.int64)
    count, most_tasks = 0, 0
    for i in range(hosts.shape[0]):
        free, most = a.whole[hosts[i]], min(room[hosts[i]], tasks)
        enough = alike and looked[free, most] >= tasks
        if most > 0 and taken[i] == 0 and not enough:
            looked[free, most] += 1
            useful[count] = i
            count, most_tasks = count + 1, max(most_tasks, most)
    prices = np.full((count, most_tasks + 1), INFINITE)
    for n in range(count):
        host = hosts[useful[n]]
        for t in range(1, min(room[host], tasks) + 1):
            prices[n, t] = costs[t - 1, host]
    seats = np.zeros(count, np.int64)
    cost: float = seat_alike(prices, tasks, seats)
    for n in range(count):
        taken[useful[n]] = seats[n]
    return cost


@kernel
def room_on(
    a: Arrays, model_of: I64, models: I64, gpus: I64, cpus: float, memory: float, room: I64
) -> None:
    """How many tasks each host could take, written to ``room`` (choices x H). O(choices * H).

    ``models`` and ``gpus``: by choice. ``model_of`` (H) may say anything of a host without GPUs.
    """
    for choice in range(room.shape[0]):
        for host in range(room.shape[1]):
            room[choice, host] = 0
            if a.whole[host] < gpus[choice]:  # most hosts of a full fleet; a division takes longer
                continue
            if not a.available[host] or model_of[host] != models[choice]:
                continue
            most = a.whole[host] // gpus[choice]
            free_cpus, free_memory = a.free_cpus[host], a.free_memory[host]
            room[choice, host] = fitting(most, free_cpus, free_memory, cpus, memory, EPSILON)
