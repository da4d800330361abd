"""Compiled kernels: the price for tasks of a plain gang on hosts, by stopping attempts there.

A host offers to take t tasks at a price: the least sum of its victims' prices and of the change in
stranded GPUs, over all sets of attempts there that may be stopped. Where only whole GPUs count,
that is a knapsack by the GPUs that are freed; where CPUs, memory or shares of GPUs matter, a walk
over all sets.

Exact as far as SETS_LIMIT and ITEMS_LIMIT reach; beyond, the victims of least price per GPU are
taken. Times are for W = GPUs of the widest host.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topmast.fast.region.inventory.allocation_table import NONE, AllocationTable
from topmast.fast.region.inventory.arrays import F64, I64, MILLI, Arrays
from topmast.fast.region.preemption.branching import KEEP, PREEMPT
from topmast.fast.region.preemption.price import Terms, price_of
from topmast.fast.region.search.kernels import EPSILON, INFINITE, fitting
from topmast.jit import inner

ITEMS_LIMIT = 62
"""Attempts on one host among which the best set is found by a knapsack."""
SETS_LIMIT = 10
"""Attempts on one host of which all sets are tried, where more than whole GPUs counts."""

BOOLS = NDArray[np.bool_]


class Scratch(NamedTuple):
    """Room to work in, by attempt (A), and the choices made so far."""

    fate: NDArray[np.int8]
    """UNDECIDED, PREEMPT or KEEP."""
    spread: F64
    """Its parts on the hosts looked at: GPUs, or 1 on a host where it has none of its own."""
    charged: F64
    """How much of its price the offers taken have paid."""
    victim: BOOLS
    """Whether it is a victim of the offers taken."""
    gone: BOOLS
    """False but while a host is looked at without them."""


class Offers(NamedTuple):
    """What some hosts (m) offer to a gang, and the *items* (E) there: an attempt's on one host.

    An attempt on several of the hosts costs each of them its share of the price.
    """

    gpus: int
    """Of a task."""
    hosts: I64
    most: I64
    """(m) tasks that a host might take."""
    first: I64
    """(m + 1) host i has the items first[i]:first[i + 1], in the order of its list."""
    shared: BOOLS
    """(m) whether shares of its GPUs may go."""
    entry: I64
    """(E) in the table: the main one of its attempt."""
    of: I64
    """(E) the attempt."""
    whole: I64
    """(E) GPUs held wholly."""
    price: F64
    """(E) of the attempt; infinite if it may not go."""
    share: F64
    """(E) the part of the price that counts here."""
    stale: BOOLS
    """(m) whether the price is to be worked out anew."""
    prices: F64
    """(m x tasks of a host + 1)"""
    goes: BOOLS
    """(tasks of a host + 1 x E) the victims for so many tasks."""
    able: I64
    """Room for the items of a host that may go, and what it pays for each: (most on one host)."""
    cost: F64
    least: F64
    """Room for the knapsack: (GPUs that may be freed + 1)."""
    sets: I64


@inner
def offers_on(
    a: Arrays, h: AllocationTable, p: Terms, s: Scratch, hosts: I64, gpus: int, tasks: int
) -> Offers:
    """Offers of hosts to take up to so many tasks, yet without prices (see `reprice`). O(entries).

    Adds up the ``spread`` of the attempts there.
    """
    m = hosts.shape[0]
    first, most = np.zeros(m + 1, np.int64), np.zeros(m, np.int64)
    widest, deepest, freed = 0, 0, 0
    for i in range(m):
        count = entries_on(h, hosts[i])
        first[i + 1] = first[i] + count
        if p.usable[hosts[i]]:
            most[i] = min(tasks, h.cleared[p.threshold, hosts[i]] // gpus)
            widest, deepest = max(widest, most[i]), max(deepest, count)
            freed = max(freed, h.cleared[-1, hosts[i]] - a.whole[hosts[i]])
    size = first[m]
    r = Offers(
        gpus, hosts, most, first, np.zeros(m, np.bool_), np.empty(size, np.int64),
        np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size), np.empty(size),
        np.ones(m, np.bool_), np.full((m, widest + 1), INFINITE),
        np.zeros((widest + 1, size), np.bool_), np.empty(deepest, np.int64), np.empty(deepest),
        np.empty(freed + 1), np.empty(freed + 1, np.int64),
    )  # fmt: skip
    _list_items(h, p, s, r)
    return r


@inner
def _list_items(h: AllocationTable, p: Terms, s: Scratch, r: Offers) -> None:
    """Read the lists of the hosts, once for all prices."""
    n = 0
    for i in range(r.hosts.shape[0]):
        entry = h.hosts[r.hosts[i]].first
        while entry != NONE:
            v = h.entries[entry].of
            price = price_of(h, p, v)
            if h.entries[entry].slot != NONE:
                r.shared[i] = r.shared[i] or price < INFINITE
            else:
                whole = h.entries[entry].whole
                r.entry[n], r.of[n], r.whole[n], r.price[n] = entry, v, whole, price
                r.share[n] = float(whole) if whole > 0 else 1.0
                s.spread[v] = 0.0
                n += 1
            entry = h.entries[entry].after
    for n in range(r.of.shape[0]):
        s.spread[r.of[n]] += r.share[n]
    for n in range(r.of.shape[0]):
        r.share[n] /= s.spread[r.of[n]]


@inner
def reprice(a: Arrays, h: AllocationTable, p: Terms, s: Scratch, r: Offers, stranded: F64) -> None:
    """Work out anew what it costs to let the stale hosts take tasks, and the victims for them.

    For each O(items * W), or O(2**items * items) where sets are tried.
    """
    for i in range(r.hosts.shape[0]):
        if not r.stale[i] or r.most[i] == 0:
            continue
        r.stale[i] = False
        for t in range(r.most[i] + 1):
            r.prices[i, t] = INFINITE if t else 0.0
        count, free, going = 0, a.whole[r.hosts[i]], 0
        for n in range(r.first[i], r.first[i + 1]):
            fate = s.fate[r.of[n]]
            for t in range(r.most[i] + 1):
                r.goes[t, n] = fate == PREEMPT
            if fate == PREEMPT:
                going, free = going + 1, free + r.whole[n]
            elif r.price[n] < INFINITE and fate != KEEP:
                r.able[count], r.cost[count] = n, r.price[n] * r.share[n]
                count += 1
        simple = p.cpus == 0.0 and p.memory == 0.0
        if simple and r.shared[i]:
            simple = not _shares_may_go(h, p, s, r, i)
        if simple and count + going <= ITEMS_LIMIT:
            _by_knapsack(r, i, free, stranded, count)
        elif count + going <= SETS_LIMIT:
            _by_sets(a, h, p, s, r, i, stranded, count)
        else:
            _by_rate(a, h, p, s, r, i, stranded, count)


@inner
def _shares_may_go(h: AllocationTable, p: Terms, s: Scratch, r: Offers, i: int) -> bool:
    entry = h.hosts[r.hosts[i]].first
    while entry != NONE:
        v = h.entries[entry].of
        if h.entries[entry].slot != NONE and s.fate[v] != KEEP and price_of(h, p, v) < INFINITE:
            return True
        entry = h.entries[entry].after
    return False


@inner
def _by_knapsack(r: Offers, i: int, free: int, stranded: F64, count: int) -> None:
    """Exactly, by the number of GPUs freed; a set of items is the bits of a number.

    least[k][f] = min(least[k - 1][f], least[k - 1][f - GPUs of item k] + its cost), in place,
    largest f first. One function: a call with so many arrays takes longer than what it does.
    """
    least, sets = r.least, r.sets
    least[0], sets[0] = 0.0, 0
    total = 0
    for k in range(count):
        size, bit = r.whole[r.able[k]], np.int64(1) << k
        for freed in range(total + 1, total + size + 1):
            least[freed] = INFINITE
        for freed in range(total, -1, -1):
            cost = least[freed] + r.cost[k]
            if cost < least[freed + size]:
                least[freed + size], sets[freed + size] = cost, sets[freed] | bit
        total += size
    for t in range(1, r.most[i] + 1):
        best = np.int64(0)
        for freed in range(max(0, t * r.gpus - free), total + 1):
            left = free + freed
            cost = least[freed] + stranded[left - t * r.gpus] - stranded[left]
            if cost < r.prices[i, t]:
                r.prices[i, t], best = cost, sets[freed]
        for k in range(count):
            r.goes[t, r.able[k]] = (best >> k) & 1


@inner
def _room_without(
    a: Arrays, h: AllocationTable, p: Terms, s: Scratch, r: Offers, i: int, goes: BOOLS
) -> tuple[int, int]:
    """Tasks that fit, and GPUs wholly free, without the items (E) that go. O(entries ** 2)."""
    host = r.hosts[i]
    free, cpus, memory = a.whole[host], a.free_cpus[host], a.free_memory[host]
    for n in range(r.first[i], r.first[i + 1]):
        if goes[n]:
            free += r.whole[n]
            cpus += h.entries[r.entry[n]].cpus
            memory += h.entries[r.entry[n]].memory
    free += slots_freed(a, h, s, r, i, goes) if r.shared[i] else 0
    return fitting(free // r.gpus, cpus, memory, p.cpus, p.memory, EPSILON), free


@inner
def slots_freed(a: Arrays, h: AllocationTable, s: Scratch, r: Offers, i: int, goes: BOOLS) -> int:
    """GPUs held in shares that come free without the items that go. O(entries ** 2)."""
    for n in range(r.first[i], r.first[i + 1]):
        s.gone[r.of[n]] = goes[n]
    freed = 0
    entry = h.hosts[r.hosts[i]].first
    while entry != NONE:
        if h.entries[entry].slot != NONE and s.gone[h.entries[entry].of]:
            freed += _slot_is_freed(a, h, r.hosts[i], entry, s.gone)
        entry = h.entries[entry].after
    for n in range(r.first[i], r.first[i + 1]):
        s.gone[r.of[n]] = False
    return freed


@inner
def _slot_is_freed(
    a: Arrays, h: AllocationTable, host: int, share: int, gone: NDArray[np.bool_]
) -> int:
    """1 if those ``gone`` free a slot wholly, told for the first of its entries only."""
    slot = h.entries[share].slot
    milli = a.free_milli[slot]
    entry = h.hosts[host].first
    while entry != NONE:
        if h.entries[entry].slot == slot and gone[h.entries[entry].of]:
            if entry != share and milli == a.free_milli[slot]:
                return 0
            milli += h.entries[entry].milli
        entry = h.entries[entry].after
    return 1 if milli == MILLI else 0


@inner
def _by_sets(
    a: Arrays, h: AllocationTable, p: Terms, s: Scratch, r: Offers, i: int, stranded: F64,
    count: int,
) -> None:  # fmt: skip
    """Exactly, by every set of items."""
    deepest = _highest(stranded)  # no seats can lower what is stranded by more
    host, going = r.hosts[i], r.goes[0]
    for which in range(np.int64(1) << count):
        cost = 0.0
        for k in range(count):
            going[r.able[k]] = (which >> k) & 1
            cost += r.cost[k] if going[r.able[k]] else 0.0
        if cost - deepest >= _highest(r.prices[i, : r.most[i] + 1]):
            continue
        free, cpus, memory = a.whole[host], a.free_cpus[host], a.free_memory[host]
        for n in range(r.first[i], r.first[i + 1]):
            if going[n]:
                free += r.whole[n]
                cpus += h.entries[r.entry[n]].cpus
                memory += h.entries[r.entry[n]].memory
        free += slots_freed(a, h, s, r, i, going) if r.shared[i] else 0
        room = fitting(free // r.gpus, cpus, memory, p.cpus, p.memory, EPSILON)
        for t in range(1, min(room, r.most[i]) + 1):
            with_seats = cost + stranded[free - t * r.gpus] - stranded[free]
            if with_seats < r.prices[i, t]:
                r.prices[i, t] = with_seats
                for k in range(count):
                    r.goes[t, r.able[k]] = going[r.able[k]]


@inner
def _highest(values: F64) -> float:
    highest = -INFINITE
    for value in values:
        highest = max(highest, value)
    return highest


@inner
def _by_rate(
    a: Arrays, h: AllocationTable, p: Terms, s: Scratch, r: Offers, i: int, stranded: F64,
    count: int,
) -> None:  # fmt: skip
    """Not exactly: the cheapest by GPU go until the tasks fit, then those that need not go stay."""
    going, order = r.goes[0], _by_rising_rate(r, count)
    at = 0
    for t in range(1, r.most[i] + 1):
        while True:
            room, free = _room_without(a, h, p, s, r, i, going)
            if room >= t or at == count:
                break
            going[r.able[order[at]]] = True
            at += 1
        if room < t:
            return
        for k in range(count):
            r.goes[t, r.able[k]] = going[r.able[k]]
        for back in range(at - 1, -1, -1):
            n = r.able[order[back]]
            r.goes[t, n] = False
            room, left = _room_without(a, h, p, s, r, i, r.goes[t])
            if room < t:
                r.goes[t, n] = True
            else:
                free = left
        cost = 0.0
        for k in range(count):
            cost += r.cost[k] if r.goes[t, r.able[k]] else 0.0
        r.prices[i, t] = cost + stranded[free - t * r.gpus] - stranded[free]


@inner
def _by_rising_rate(r: Offers, count: int) -> I64:
    """Items by price per GPU, ties to the first: `np.argsort` compiles long. O(items ** 2)."""
    order, rates = np.empty(count, np.int64), np.empty(count)
    for k in range(count):
        rates[k] = r.cost[k] / max(0.5, float(r.whole[r.able[k]]))
        at = k
        while at > 0 and rates[order[at - 1]] > rates[k]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = k
    return order


@inner
def price_by_gpus(
    h: AllocationTable, p: Terms, host: int, free: int, need: int, stranded: F64, least: F64
) -> float:
    """A host's offer for one task, where only whole GPUs count; NaN where shares are in the way.

    ``least`` is room for the GPUs that might be freed, and one. O(entries * W).
    """
    least[0] = 0.0
    done = 0
    entry = h.hosts[host].first
    while entry != NONE:
        price = price_of(h, p, h.entries[entry].of)
        size = h.entries[entry].whole
        if price < INFINITE and h.entries[entry].slot != NONE:
            return np.nan
        if price < INFINITE and size > 0:
            for freed in range(done + 1, done + size + 1):
                least[freed] = INFINITE
            for freed in range(done, -1, -1):
                least[freed + size] = min(least[freed + size], least[freed] + price)
            done += size
        entry = h.entries[entry].after
    best = INFINITE
    for freed in range(max(0, need - free), done + 1):
        left = free + freed
        best = min(best, least[freed] + stranded[left - need] - stranded[left])
    return best


@inner
def entries_on(h: AllocationTable, host: int) -> int:
    """The attempts on a host, each by its main entry. O(entries)."""
    count = 0
    entry = h.hosts[host].first
    while entry != NONE:
        count += h.entries[entry].slot == NONE
        entry = h.entries[entry].after
    return count
