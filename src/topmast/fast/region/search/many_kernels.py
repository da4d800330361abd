"""A compiled kernel that places many gangs, one after the other, each as if those before it ran.

It searches by `kernels.best_plan`, and seats by `limited_kernels.seat`, so that each gang sits
where a question of its own would have put it. In the end all arrays are as they were.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topmast.fast.region.inventory.arrays import F64, I64, MILLI, Arrays
from topmast.fast.region.search.kernels import (
    HOST_LEVEL,
    NOWHERE,
    Question,
    Rates,
    best_plan,
    first_with,
    nothing_known,
    rates_of,
)
from topmast.fast.region.search.limited_kernels import Loads, costs_by_counts, seat
from topmast.jit import inner, kernel


class Kinds(NamedTuple):
    """Kinds of gangs (K), as `Question` has one; the choices of all of them stand in a row."""

    tasks: I64
    first_choice: I64
    """(K + 1) kind k has the choices first_choice[k]:first_choice[k + 1]."""
    choice_model: I64
    choice_gpus: I64
    choice_cost: F64
    level_cost: F64
    """(K x 5)"""
    stranded: F64
    """(W) times its weight, as in `Question`."""
    table: F64
    """(W) without it."""


class Balance(NamedTuple):
    """What regions (R) cost: what is held of their GPUs, at a price."""

    region_of: I64
    """(C)"""
    held_milli: I64
    gpus: I64
    price: float
    fixed: float
    """What each costs besides."""
    cluster_cost: F64
    """(C) kept with each gang that is placed; infinite outside the regions asked."""


class Room(NamedTuple):
    """Space to work in, by host (H)."""

    room: I64
    costs: F64
    """(most tasks on a host x H)"""
    loads: Loads
    """That cost nothing."""


class Placed(NamedTuple):
    """Where the gangs (N) sit."""

    where: I64
    """(N x 4) cluster, choice, level, number of hosts."""
    change: F64
    """(N) how many more GPUs are expected to be stranded."""
    load: F64
    """(N) of the region, GPUs held over GPUs present, before the gang has its own."""
    hosts: I64
    """The hosts of all gangs in a row."""
    tasks: I64
    """Their tasks."""
    slots: I64
    """The slots of all tasks in a row, as the host numbers them."""


@kernel
def place_many(
    a: Arrays, kinds: Kinds, kind_of: I64, balance: Balance, space: Room, placed: Placed
) -> tuple[int, int]:
    """Place gangs of kinds ``kind_of`` (N) up to the first that fits nowhere.

    Returns how many, and the number of their slots. O(searches + hosts of the sections chosen).
    """
    count, host_at, slot_at = 0, 0, 0
    sections, clusters = a.hist_start.shape[0] - 1, a.by_cluster.shape[0]
    known = nothing_known(kinds.choice_gpus.shape[0], sections, clusters)
    all_rates = _all_rates(kinds, balance.cluster_cost)
    for n in range(kind_of.shape[0]):
        question = _question(kinds, kind_of[n], balance.cluster_cost)
        rates = _rates(kinds, all_rates, kind_of[n])
        first = kinds.first_choice[kind_of[n]]
        cluster, choice, level, place = best_plan(a, question, rates, known, first)
        if cluster == NOWHERE:
            break
        gpus = question.choice_gpus[choice]
        used = _seat(a, question, cluster, choice, level, place, space, placed, host_at)
        placed.where[n, 0], placed.where[n, 1] = cluster, choice
        placed.where[n, 2], placed.where[n, 3] = _level_of(a, placed, host_at, used), used
        placed.load[n] = _load(balance, balance.region_of[cluster])
        change = 0.0
        for at in range(host_at, host_at + used):
            host, take = placed.hosts[at], placed.tasks[at] * gpus
            change += _take(a, kinds.table, host, take, placed.slots, slot_at)
            slot_at += take
            for at_level in range(a.section.shape[0]):
                known.changes[a.section[at_level, host]] += 1
        known.changes[sections + cluster] += 1
        placed.change[n] = change
        host_at += used
        _book(balance, cluster, question.tasks * gpus)
        count += 1
    _undo(a, kinds, kind_of, placed, count)
    return count, slot_at


@inner
def _question(kinds: Kinds, kind: int, cluster_cost: F64) -> Question:
    low, high = kinds.first_choice[kind], kinds.first_choice[kind + 1]
    return Question(
        kinds.tasks[kind], kinds.choice_model[low:high], kinds.choice_gpus[low:high],
        kinds.choice_cost[low:high], kinds.level_cost[kind], cluster_cost, kinds.stranded,
    )  # fmt: skip


@inner
def _all_rates(kinds: Kinds, cluster_cost: F64) -> Rates:
    """Those of all choices of all kinds, one below the other. O(choices * W * tasks on a host)."""
    size = kinds.choice_gpus.shape[0], kinds.stranded.shape[0]
    found = Rates(np.empty(size), np.empty(size, np.int64))
    for kind in range(kinds.tasks.shape[0]):
        rates = rates_of(_question(kinds, kind, cluster_cost))
        low, high = kinds.first_choice[kind], kinds.first_choice[kind + 1]
        found.rate[low:high], found.taken[low:high] = rates.rate, rates.taken
    return found


@inner
def _rates(kinds: Kinds, all_rates: Rates, kind: int) -> Rates:
    low, high = kinds.first_choice[kind], kinds.first_choice[kind + 1]
    return Rates(all_rates.rate[low:high], all_rates.taken[low:high])


@inner
def _seat(
    a: Arrays, q: Question, cluster: int, choice: int, level: int, place: int, space: Room,
    placed: Placed, at: int,
) -> int:  # fmt: skip
    """Write the hosts of the gang, and the tasks of each, from ``at`` on; returns how many."""
    if level == HOST_LEVEL:
        section = a.by_cluster[cluster, q.choice_model[choice], 3, 0]
        placed.hosts[at] = first_with(a, section, place)
        placed.tasks[at] = q.tasks
        return 1
    gpus = q.choice_gpus[choice]
    hosts = a.members[a.member_start[place] : a.member_start[place + 1]]
    for i in range(hosts.shape[0]):
        host = hosts[i]
        space.room[host] = a.whole[host] // gpus if a.available[host] else 0
    costs_by_counts(a, hosts, space.room, gpus, q.tasks, q.stranded, space.loads, space.costs)
    taken = np.zeros(hosts.shape[0], np.int64)
    seat(a, hosts, space.room, q.tasks, space.costs, True, taken)
    used = 0
    for i in range(hosts.shape[0]):
        if taken[i] > 0:
            placed.hosts[at + used], placed.tasks[at + used] = hosts[i], taken[i]
            used += 1
    return used


@inner
def _take(a: Arrays, table: F64, host: int, count: int, slots: I64, at: int) -> float:
    """Take a host's lowest wholly free GPUs, written to ``slots``; what that strands. O(slots)."""
    first, shared, left = a.offset[host], 0, count
    for slot in range(first, a.offset[host + 1]):
        milli = a.free_milli[slot]
        if milli == MILLI and left > 0:
            a.free_milli[slot] = 0
            slots[at + count - left] = slot - first
            left -= 1
        elif 0 < milli < MILLI:
            shared += milli
    free = a.whole[host]
    before = table[free] + 0.5 * shared / MILLI  # in the order of `scoring.stranded_change`
    _count(a, host, -count)
    change: float = table[free - count] + 0.5 * shared / MILLI - before
    return change


@inner
def _count(a: Arrays, host: int, change: int) -> None:
    """A host has more or fewer wholly free GPUs. O(levels)."""
    free = a.whole[host]
    for level in range(a.section.shape[0]):
        start = a.hist_start[a.section[level, host]]
        a.hist[start + free] -= 1
        a.hist[start + free + change] += 1
    a.whole[host] = free + change


@inner
def _level_of(a: Arrays, placed: Placed, at: int, used: int) -> int:
    """The tightest level with the hosts in one domain. O(hosts)."""
    if used == 1:
        return HOST_LEVEL
    level, alike = HOST_LEVEL, False
    while not alike:
        first, alike = a.section[level, placed.hosts[at]], True
        for i in range(at + 1, at + used):
            alike = alike and a.section[level, placed.hosts[i]] == first
        level += 1
    return level


@inner
def _load(balance: Balance, region: int) -> float:
    """GPUs held over GPUs present."""
    if balance.gpus[region] <= 0:
        return 0.0
    load: float = balance.held_milli[region] / MILLI / balance.gpus[region]
    return load


@inner
def _book(balance: Balance, cluster: int, gpus: int) -> None:
    """More is held in a region: what its clusters cost. O(clusters)."""
    region = balance.region_of[cluster]
    balance.held_milli[region] += gpus * MILLI
    cost = balance.fixed + balance.price * _load(balance, region)
    for number in range(balance.region_of.shape[0]):
        if balance.region_of[number] == region and balance.cluster_cost[number] < np.inf:
            balance.cluster_cost[number] = cost


@inner
def _undo(a: Arrays, kinds: Kinds, kind_of: I64, placed: Placed, count: int) -> None:
    """Give everything back. O(slots taken)."""
    host_at, slot_at = 0, 0
    for n in range(count):
        choice = kinds.first_choice[kind_of[n]] + placed.where[n, 1]
        for at in range(host_at, host_at + placed.where[n, 3]):
            host, taken = placed.hosts[at], placed.tasks[at] * kinds.choice_gpus[choice]
            for i in range(slot_at, slot_at + taken):
                a.free_milli[a.offset[host] + placed.slots[i]] = MILLI
            _count(a, host, taken)
            slot_at += taken
        host_at += placed.where[n, 3]
