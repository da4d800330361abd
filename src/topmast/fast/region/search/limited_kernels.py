"""Compiled kernels: what equal tasks cost on hosts by their free GPUs, and how a gang is seated.

What t tasks cost on a host stands in ``costs`` (t - 1, H). Times are as in `kernels.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topmast.fast.region.inventory.arrays import F64, I64, Arrays
from topmast.fast.region.search.kernels import EPSILON, EXACT_TASKS, INFINITE
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
    """What t tasks cost on hosts by their free GPUs and loads, to ``costs``, up to their room."""
    for i in range(hosts.shape[0]):
        host = hosts[i]
        count_costs(a.whole[host], min(room[host], tasks), gpus, stranded, loads, host, costs)


@inner
def count_costs(
    free: int, most: int, gpus: int, stranded: F64, loads: Loads, host: int, costs: F64
) -> None:
    """What up to ``most`` tasks cost on a host with so many free GPUs. O(most)."""
    for t in range(1, most + 1):
        change = stranded[free - t * gpus] - stranded[free]
        if loads.apply:
            change += t * (loads.base[host] + t * loads.rise[host])
        costs[t - 1, host] = change


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
