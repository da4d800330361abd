"""Compiled kernels of preemption for plain gangs: the victims of least cost, exactly.

The gang is on one host, or on several of a section (`sections`). Times are for H hosts.
"""

from __future__ import annotations

import numpy as np

from topmast.fast.region.inventory.allocation_table import AllocationTable, room_in
from topmast.fast.region.inventory.arrays import F64, I64, Arrays
from topmast.fast.region.preemption.host_offers import (
    Offers,
    Scratch,
    offers_on,
    price_by_gpus,
    reprice,
)
from topmast.fast.region.preemption.price import Terms, floor_of
from topmast.fast.region.preemption.sections import Seated, best_section
from topmast.fast.region.search.kernels import EPSILON, HOST_LEVEL, INFINITE, NOWHERE, Question
from topmast.jit import inner, kernel


@kernel
def best_place(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, gang: Terms, s: Scratch
) -> tuple[int, int, Seated]:
    """The place of least score: cluster, choice, seats; NOWHERE if there is none.

    ``gang`` is for all tasks together. One host wins over several that score the same.
    """
    best, cluster, choice, host = _best_host(a, h, q, gang, s)
    if q.tasks > 1:
        there, model, seated = best_section(a, h, q, p, s, best)
        if there != NOWHERE:
            return there, model, seated
    hosts, tasks = np.full(1, host), np.full(1, q.tasks)
    if host == NOWHERE:
        return NOWHERE, NOWHERE, Seated(hosts, tasks, hosts)
    r = _offer_of(a, h, q, gang, s, host, q.choice_gpus[choice] * q.tasks)
    return cluster, choice, Seated(hosts, tasks, r.of[r.goes[1]])


@inner
def _offer_of(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, s: Scratch, host: int, gpus: int
) -> Offers:
    """The offer of one host to take one task."""
    r = offers_on(a, h, p, s, np.full(1, host), gpus, 1)
    reprice(a, h, p, s, r, q.stranded)
    return r


@inner
def _least_change(stranded: F64, gpus: int) -> float:
    """What seats of so many GPUs change in stranded GPUs at least, on any host. O(W)."""
    least: float = INFINITE
    for free in range(gpus, stranded.shape[0]):
        change: float = stranded[free - gpus] - stranded[free]
        least = min(least, change)
    return least


@inner
def _host_floor(
    a: Arrays, h: AllocationTable, p: Terms, host: int, need: int, change: float
) -> float:
    """A floor of the price for a whole gang on a host; infinite if it cannot sit there. O(1)."""
    if not p.usable[host] or h.cleared[p.threshold, host] < need:
        return INFINITE
    missing = need - a.whole[host]
    if missing <= 0:
        return change
    floor: float = change + floor_of(h, p, host, missing) - EPSILON
    return floor


@inner
def _candidates(a: Arrays, h: AllocationTable, q: Question, p: Terms) -> I64:
    """Clusters and choices with a host that could hold the gang: cluster, choice, section."""
    found = np.zeros((a.by_cluster.shape[0] * q.choice_model.shape[0], 3), np.int64)
    count = 0
    for cluster in range(a.by_cluster.shape[0]):
        if q.cluster_cost[cluster] == INFINITE:
            continue
        for choice in range(q.choice_model.shape[0]):
            section = a.by_cluster[cluster, q.choice_model[choice], 3, 0]
            there = section < a.by_cluster[cluster, q.choice_model[choice], 3, 1]
            need = q.choice_gpus[choice] * q.tasks
            if there and room_in(a, h, p.threshold, section, need) > 0:
                found[count, 0], found[count, 1], found[count, 2] = cluster, choice, section
                count += 1
    return found[:count]


@inner
def _host_price(q: Question, cluster: int, choice: int) -> float:
    price: float = q.cluster_cost[cluster] + q.choice_cost[choice] + q.level_cost[HOST_LEVEL]
    return price


@inner
def _best_host(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, s: Scratch
) -> tuple[float, int, int, int]:
    """The best single host for the whole gang: score, cluster, choice, host; ties to the first.

    First the host with the lowest floor, then every other one that its floor does not rule out: a
    tie goes to the earlier. ``p`` is for the gang as one task. O(H + hosts looked at * offers).
    """
    candidates = _candidates(a, h, q, p)
    floors = np.empty(q.choice_model.shape[0] * a.whole.shape[0])
    step, lowest = 0, INFINITE
    at, place, host = NOWHERE, NOWHERE, NOWHERE
    for c in range(candidates.shape[0]):
        cluster, choice, section = candidates[c, 0], candidates[c, 1], candidates[c, 2]
        need = q.choice_gpus[choice] * q.tasks
        price = _host_price(q, cluster, choice)
        change = _least_change(q.stranded, need)
        for i in range(a.member_start[section], a.member_start[section + 1]):
            floors[step] = price + _host_floor(a, h, p, a.members[i], need, change)
            if floors[step] < lowest:
                lowest, at, place, host = floors[step], step, c, a.members[i]
            step += 1
    if at == NOWHERE:
        return INFINITE, NOWHERE, NOWHERE, NOWHERE
    step, first = -1, at
    need = q.choice_gpus[candidates[place, 1]] * q.tasks
    price = _host_price(q, candidates[place, 0], candidates[place, 1])
    best: float = price + _offer_of(a, h, q, p, s, host, need).prices[0, 1]
    simple, least = p.cpus == 0.0 and p.memory == 0.0, np.empty(q.stranded.shape[0])
    for c in range(candidates.shape[0]):
        cluster, choice, section = candidates[c, 0], candidates[c, 1], candidates[c, 2]
        need, price = q.choice_gpus[choice] * q.tasks, _host_price(q, cluster, choice)
        for i in range(a.member_start[section], a.member_start[section + 1]):
            step += 1
            floor, earlier = floors[step], step < at
            hopeful = floor < best - 2 * EPSILON or (earlier and floor <= best)
            if step == first or floor == INFINITE or not hopeful:
                continue
            offer, free = np.nan, a.whole[a.members[i]]
            if simple:
                offer = price_by_gpus(h, p, a.members[i], free, need, q.stranded, least)
            if np.isnan(offer):
                offer = _offer_of(a, h, q, p, s, a.members[i], need).prices[0, 1]
            if price + offer < best - EPSILON or (earlier and price + offer <= best + EPSILON):
                best, at, place, host = price + offer, step, c, a.members[i]
    if best == INFINITE:
        return INFINITE, NOWHERE, NOWHERE, NOWHERE
    return best, candidates[place, 0], candidates[place, 1], host
