"""Compiled kernels: the price for tasks of a plain gang on a host, by stopping attempts there.

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
OPEN_LIMIT = 64
"""Sections of one request that are kept to branch on."""


class Scratch(NamedTuple):
    """Room to work in, and the choices made so far."""

    fate: NDArray[np.int8]
    """(A) UNDECIDED, PREEMPT or KEEP."""
    spread: F64
    """(A) its parts in the section looked at: GPUs, or 1 on a host where it has none of its own."""
    charged: F64
    """(A) how much of its price the offers taken have paid."""
    victim: NDArray[np.bool_]
    """(A) whether it is a victim of the offers taken."""
    gone: NDArray[np.bool_]
    """(A) false but while a host is looked at without them."""
    unsettled: F64
    """(OPEN_LIMIT x 5) sections with a loose bound: bound, cluster, choice, level, section."""


@inner
def parts_of(h: AllocationTable, entry: int) -> float:
    """The parts of its attempt's price that an entry stands for: its GPUs, or 1 without any."""
    return float(h.entries[entry].whole) if h.entries[entry].whole > 0 else 1.0


@inner
def offers_of(
    a: Arrays, h: AllocationTable, p: Terms, s: Scratch, host: int, gpus: int,
    stranded: F64, price: F64, items: I64, chosen: NDArray[np.bool_],
) -> int:  # fmt: skip
    """What it costs to let a host take 0 to so many tasks, written to ``price`` (tasks + 1).

    ``items`` (at least the host's entries) gets the attempts that might go, their number is
    returned; ``chosen`` (tasks + 1 x items) tells which of them go. O(items * W), or
    O(2**items * items) where sets are tried.
    """
    for t in range(price.shape[0]):
        price[t] = INFINITE if t else 0.0
        for i in range(chosen.shape[1]):
            chosen[t, i] = False
    costs = np.zeros(items.shape[0])
    count, odd = _items(h, p, s, host, items, costs)
    costs = costs[:count]
    free = a.whole[host]
    if not odd and p.cpus == 0.0 and p.memory == 0.0 and count <= ITEMS_LIMIT:
        _by_knapsack(h, s, free, gpus, stranded, price, items[:count], costs, chosen)
    elif count <= SETS_LIMIT:
        _by_sets(a, h, p, s, host, gpus, stranded, price, items[:count], costs, chosen)
    else:
        _by_rate(a, h, p, s, host, gpus, stranded, price, items[:count], costs, chosen)
    return count


@inner
def _items(
    h: AllocationTable, p: Terms, s: Scratch, host: int, items: I64, costs: F64
) -> tuple[int, bool]:
    """The main entries of the attempts that go or might go, and whether shares are among them.

    ``costs``: what the host pays for each; nothing for one that goes anyhow.
    """
    count, odd = 0, False
    entry = h.hosts[host].first
    while entry != NONE:
        v = h.entries[entry].of
        if s.fate[v] != KEEP:
            price = price_of(h, p, v)
            if price < INFINITE and h.entries[entry].slot != NONE:
                odd = True
            elif price < INFINITE:
                items[count] = entry
                if s.fate[v] != PREEMPT:
                    costs[count] = price * (parts_of(h, entry) / s.spread[v] if p.shared else 1.0)
                count += 1
        entry = h.entries[entry].after
    return count, odd


@inner
def _by_knapsack(
    h: AllocationTable, s: Scratch, free: int, gpus: int, stranded: F64, price: F64,
    items: I64, costs: F64, chosen: NDArray[np.bool_],
) -> None:  # fmt: skip
    """Exactly, by the number of GPUs freed; a set of items is the bits of a number."""
    total = 0
    for i in range(items.shape[0]):
        total += h.entries[items[i]].whole
    least = np.full(total + 1, INFINITE)
    sets = np.zeros(total + 1, np.int64)
    _fill_knapsack(h, s, items, costs, least, sets)
    for t in range(1, price.shape[0]):
        for freed in range(max(0, t * gpus - free), total + 1):
            if least[freed] < INFINITE:
                left = free + freed
                cost = least[freed] + stranded[left - t * gpus] - stranded[left]
                if cost < price[t]:
                    price[t] = cost
                    for i in range(items.shape[0]):
                        chosen[t, i] = (sets[freed] >> i) & 1


@inner
def _fill_knapsack(
    h: AllocationTable, s: Scratch, items: I64, costs: F64, least: F64, sets: I64
) -> None:  # fmt: skip
    """The ``least`` price to free just so many GPUs, and the set in ``sets``. O(items * GPUs).

    least[i][f] = min(least[i - 1][f], least[i - 1][f - GPUs of item i] + its cost), in place,
    largest f first.
    """
    least[0] = 0.0
    done = 0
    for i in range(items.shape[0]):
        size = h.entries[items[i]].whole
        bit = np.int64(1) << i
        if s.fate[h.entries[items[i]].of] == PREEMPT:  # it goes anyhow
            for freed in range(done, -1, -1):
                least[freed + size], sets[freed + size] = least[freed], sets[freed] | bit
            for freed in range(size):
                least[freed] = INFINITE
        elif size > 0:
            for freed in range(done, -1, -1):
                cost = least[freed] + costs[i]
                if cost < least[freed + size]:
                    least[freed + size], sets[freed + size] = cost, sets[freed] | bit
        done += size


@inner
def room_without(
    a: Arrays, h: AllocationTable, p: Terms, s: Scratch, host: int, gpus: int, items: I64,
    going: NDArray[np.bool_],
) -> tuple[int, int]:  # fmt: skip
    """Tasks that fit, and GPUs wholly free, without the ``going`` (items). O(entries ** 2)."""
    free = a.whole[host]
    cpus, memory = a.free_cpus[host], a.free_memory[host]
    for i in range(items.shape[0]):
        if going[i]:
            s.gone[h.entries[items[i]].of] = True
            free += h.entries[items[i]].whole
            cpus += h.entries[items[i]].cpus
            memory += h.entries[items[i]].memory
    entry = h.hosts[host].first
    while entry != NONE:
        if h.entries[entry].slot != NONE and s.gone[h.entries[entry].of]:
            free += _slot_is_freed(a, h, host, entry, s.gone)
        entry = h.entries[entry].after
    for i in range(items.shape[0]):
        s.gone[h.entries[items[i]].of] = False
    return fitting(free // gpus, cpus, memory, p.cpus, p.memory, EPSILON), free


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
    a: Arrays, h: AllocationTable, p: Terms, s: Scratch, host: int, gpus: int,
    stranded: F64, price: F64, items: I64, costs: F64, chosen: NDArray[np.bool_],
) -> None:  # fmt: skip
    """Exactly, by every set of items."""
    count = items.shape[0]
    deepest = _highest(stranded)  # no seats can lower what is stranded by more
    going = np.zeros(count, np.bool_)
    for which in range(np.int64(1) << count):
        cost, skip = 0.0, False
        for i in range(count):
            going[i] = (which >> i) & 1
            skip = skip or (s.fate[h.entries[items[i]].of] == PREEMPT and not going[i])
            cost += costs[i] if going[i] else 0.0
        if skip or cost - deepest >= _highest(price):
            continue
        room, free = room_without(a, h, p, s, host, gpus, items, going)
        for t in range(1, min(room + 1, price.shape[0])):
            with_seats = cost + stranded[free - t * gpus] - stranded[free]
            if with_seats < price[t]:
                price[t] = with_seats
                for i in range(count):
                    chosen[t, i] = going[i]


@inner
def _highest(values: F64) -> float:
    highest = -INFINITE
    for value in values:
        highest = max(highest, value)
    return highest


@inner
def _by_rate(
    a: Arrays, h: AllocationTable, p: Terms, s: Scratch, host: int, gpus: int,
    stranded: F64, price: F64, items: I64, costs: F64, chosen: NDArray[np.bool_],
) -> None:  # fmt: skip
    """Not exactly: the cheapest by GPU go until the tasks fit, then those that need not go stay."""
    count = items.shape[0]
    going = np.zeros(count, np.bool_)
    for i in range(count):
        going[i] = s.fate[h.entries[items[i]].of] == PREEMPT
    order = np.zeros(count, np.int64)
    _by_rising_rate(h, items, costs, order)
    at = 0
    for t in range(1, price.shape[0]):
        while True:
            room, free = room_without(a, h, p, s, host, gpus, items, going)
            if room >= t or at == count:
                break
            going[order[at]] = True
            at += 1
        if room < t:
            return
        for i in range(count):
            chosen[t, i] = going[i]
        for back in range(at - 1, -1, -1):
            i = order[back]
            if s.fate[h.entries[items[i]].of] == PREEMPT:
                continue
            chosen[t, i] = False
            room, left = room_without(a, h, p, s, host, gpus, items, chosen[t])
            if room < t:
                chosen[t, i] = True
            else:
                free = left
        cost = 0.0
        for i in range(count):
            cost += costs[i] if chosen[t, i] else 0.0
        price[t] = cost + stranded[free - t * gpus] - stranded[free]


@inner
def _by_rising_rate(h: AllocationTable, items: I64, costs: F64, order: I64) -> None:
    """Sort items by price per GPU, ties to the first: `np.argsort` compiles long. O(items ** 2)."""
    rates = np.zeros(items.shape[0])
    for i in range(items.shape[0]):
        rates[i] = costs[i] / max(0.5, float(h.entries[items[i]].whole))
        at = i
        while at > 0 and rates[order[at - 1]] > rates[i]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i


@inner
def price_by_gpus(
    h: AllocationTable, p: Terms, host: int, free: int, need: int, stranded: F64, least: F64
) -> float:
    """A host's offer for one task, where only whole GPUs count; NaN where shares are in the way.

    ``least`` is room for the GPUs that might be freed, and one. O(entries * W).
    """
    for freed in range(least.shape[0]):
        least[freed] = INFINITE if freed else 0.0
    done = 0
    entry = h.hosts[host].first
    while entry != NONE:
        price = price_of(h, p, h.entries[entry].of)
        size = h.entries[entry].whole
        if price < INFINITE and h.entries[entry].slot != NONE:
            return np.nan
        if price < INFINITE and size > 0:
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
def most_entries(h: AllocationTable, hosts: I64) -> int:
    """The most attempts on any of some hosts. O(entries)."""
    most = 0
    for host in hosts:
        most = max(most, entries_on(h, host))
    return most


@inner
def entries_on(h: AllocationTable, host: int) -> int:
    """The attempts on a host, each by its main entry. O(entries)."""
    count = 0
    entry = h.hosts[host].first
    while entry != NONE:
        count += h.entries[entry].slot == NONE
        entry = h.entries[entry].after
    return count
