"""Compiled kernels of preemption for plain gangs: the victims of least cost, exactly.

Each host offers to take some tasks at a price (`host_offers`), and the knapsack adds up the offers
of a section's hosts. A victim on several hosts of the section costs each its share of the price:
never more than the truth, so that the sum is a bound from below; `branching` decides about such
victims until the bound is the truth.

Times are for H hosts, W = GPUs of the widest, n tasks, E entries.
"""

from __future__ import annotations

import numpy as np

from topmast.fast.region.inventory.allocation_table import NONE, AllocationTable, room_in
from topmast.fast.region.inventory.arrays import F64, I64, Arrays
from topmast.fast.region.preemption.branching import PREEMPT
from topmast.fast.region.preemption.host_offers import (
    OPEN_LIMIT,
    Scratch,
    entries_on,
    most_entries,
    offers_of,
    parts_of,
    price_by_gpus,
    room_without,
)
from topmast.fast.region.preemption.price import Terms, floor_of, price_of, rate_of
from topmast.fast.region.search.kernels import EPSILON, HOST_LEVEL, INFINITE, NOWHERE, Question
from topmast.fast.region.search.knapsack import seat_alike
from topmast.jit import inner, kernel

# --- a section ------------------------------------------------------------------------------------


@inner
def _spread_out(h: AllocationTable, s: Scratch, hosts: I64) -> None:
    """Add up the parts that attempts have on these hosts. O(entries)."""
    for start in (True, False):
        for host in hosts:
            entry = h.hosts[host].first
            while entry != NONE:
                if h.entries[entry].slot == NONE:
                    v = h.entries[entry].of
                    s.spread[v] = 0.0 if start else s.spread[v] + parts_of(h, entry)
                    s.charged[v] = 0.0
                    s.victim[v] = False
                entry = h.entries[entry].after


@kernel
def section_offer(
    a: Arrays,
    h: AllocationTable,
    q: Question,
    p: Terms,
    s: Scratch,
    gpus: int,
    hosts: I64,
    taken: I64,
) -> tuple[float, float, int]:
    """Seat the gang on ``hosts`` (m) at the least price: bound, truth, the attempt to branch on.

    Writes the tasks of each host to ``taken`` (m) and the victims to the scratch. The last number
    is NONE if the bound is the truth. Both are infinite if the gang does not fit.
    O(m * n * tasks per host) besides the hosts' offers.
    """
    for i in range(taken.shape[0]):
        taken[i] = 0
    _spread_out(h, s, hosts)
    m = hosts.shape[0]
    k = p.threshold
    widest = 0
    for host in hosts:
        if p.usable[host]:
            widest = max(widest, min(q.tasks, h.cleared[k, host] // gpus))
    items = np.zeros(most_entries(h, hosts), np.int64)
    chosen = np.zeros((widest + 1, items.shape[0]), np.bool_)
    prices = np.full((m, widest + 1), INFINITE)
    for i in range(m):
        most = min(q.tasks, h.cleared[k, hosts[i]] // gpus)
        if p.usable[hosts[i]] and most > 0:
            offers_of(
                a, h, p, s, hosts[i], gpus, q.stranded, prices[i, : most + 1], items,
                chosen[: most + 1],
            )  # fmt: skip
    bound = seat_alike(prices, q.tasks, taken)
    if bound == INFINITE:
        return INFINITE, INFINITE, NONE
    for i in range(m):
        if taken[i] > 0:
            most = taken[i]
            count = offers_of(
                a, h, p, s, hosts[i], gpus, q.stranded, prices[i, : most + 1], items,
                chosen[: most + 1],
            )  # fmt: skip
            for j in range(count):
                v = h.entries[items[j]].of
                if chosen[most, j]:
                    s.victim[v] = True
                    s.charged[v] += parts_of(h, items[j]) / s.spread[v]
    truth, branch = _truth(a, h, q, p, s, gpus, hosts, taken, items)
    return bound, truth, branch


@inner
def _truth(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, s: Scratch, gpus: int,
    hosts: I64, taken: I64, items: I64,
) -> tuple[float, int]:  # fmt: skip
    """The victims' real cost, with all GPUs freed; and the one that paid the least part of it."""
    truth, branch = _whole_prices(h, p, s, hosts)
    for i in range(hosts.shape[0]):
        if taken[i] > 0:
            count = 0
            entry = h.hosts[hosts[i]].first
            while entry != NONE:
                if h.entries[entry].slot == NONE and s.victim[h.entries[entry].of]:
                    items[count] = entry
                    count += 1
                entry = h.entries[entry].after
            going = np.ones(count, np.bool_)
            _, free = room_without(a, h, p, s, hosts[i], gpus, items[:count], going)
            truth += q.stranded[free - taken[i] * gpus] - q.stranded[free]
    return truth, branch


@inner
def _whole_prices(h: AllocationTable, p: Terms, s: Scratch, hosts: I64) -> tuple[float, int]:
    """The victims' prices, each once; of those on several hosts the one with most to pay."""
    prices, most_due, branch = 0.0, -1.0, NONE
    for host in hosts:
        entry = h.hosts[host].first
        while entry != NONE:
            v = h.entries[entry].of
            if s.fate[v] == PREEMPT:
                s.victim[v] = True
            elif s.victim[v] and h.entries[entry].slot == NONE and s.charged[v] >= 0.0:
                price = price_of(h, p, v)
                prices += price
                due = price * (1.0 - s.charged[v])
                if s.spread[v] > parts_of(h, entry) and due > most_due:
                    most_due, branch = due, v
                s.charged[v] = -1.0  # counted
            entry = h.entries[entry].after
    return prices, branch


# --- the search -----------------------------------------------------------------------------------


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


@kernel
def best_host(
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
    best = _score_on(a, h, q, p, s, candidates[place, 0], candidates[place, 1], host)
    step, first = -1, at
    for c in range(candidates.shape[0]):
        cluster, choice, section = candidates[c, 0], candidates[c, 1], candidates[c, 2]
        for i in range(a.member_start[section], a.member_start[section + 1]):
            step += 1
            floor, earlier = floors[step], step < at
            hopeful = floor < best - 2 * EPSILON or (earlier and floor <= best)
            if step == first or floor == INFINITE or not hopeful:
                continue
            score = _score_on(a, h, q, p, s, cluster, choice, a.members[i])
            if score < best - EPSILON or (earlier and score <= best + EPSILON):
                best, at, place, host = score, step, c, a.members[i]
    if best == INFINITE:
        return INFINITE, NOWHERE, NOWHERE, NOWHERE
    return best, candidates[place, 0], candidates[place, 1], host


@inner
def _score_on(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, s: Scratch, cluster: int, choice: int,
    host: int,
) -> float:  # fmt: skip
    """The score of the whole gang on one host. O(a host's offers)."""
    need = q.choice_gpus[choice] * q.tasks
    price = _host_price(q, cluster, choice)
    if p.cpus == 0.0 and p.memory == 0.0:
        least = np.empty(h.cleared[-1, host] - a.whole[host] + 1)
        simple = price_by_gpus(h, p, host, a.whole[host], need, q.stranded, least)
        if not np.isnan(simple):
            return price + simple
    items = np.zeros(entries_on(h, host), np.int64)
    offers = np.zeros(2)
    chosen = np.zeros((2, items.shape[0]), np.bool_)
    offers_of(a, h, p, s, host, need, q.stranded, offers, items, chosen)
    score: float = price + offers[1]
    return score


@kernel
def best_section(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, s: Scratch, best: float
) -> tuple[float, int, int, int, int, int]:
    """The best section for a gang on several hosts, below ``best``; ties to the first.

    Score, cluster, choice, level, section, and the number of sections written to ``s.unsettled``:
    those with a bound below both their truth and ``best``.
    O(sections * their hosts), and `_solve_lowest`.
    """
    places = _sections(a, h, q, p)
    bounds = np.full(places.shape[0], INFINITE)
    truths = np.full(places.shape[0], INFINITE)
    _solve_lowest(a, h, q, p, s, places, best, bounds, truths)
    at, count = NOWHERE, 0
    for c in range(places.shape[0]):
        bound, truth = bounds[c], truths[c]
        if bound < truth - EPSILON and bound < min(best, truth) and count < OPEN_LIMIT:
            s.unsettled[count, 0] = bound
            s.unsettled[count, 1:] = places[c]
            count += 1
        if truth < best - EPSILON:
            best, at = truth, c
    if at == NOWHERE:
        return best, NOWHERE, NOWHERE, NOWHERE, NOWHERE, count
    return best, places[at, 0], places[at, 1], places[at, 2], places[at, 3], count


@inner
def _solve_lowest(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, s: Scratch, places: I64, best: float,
    bounds: F64, truths: F64,
) -> None:  # fmt: skip
    """Solve the sections, lowest floor first, that may have a truth below ``best`` and the others.

    A floor gives way to a closer one before its section is solved: few are, as that costs some
    twenty times as much. O(floors looked at * (sections + entries) + solved * `section_offer`).
    """
    floors, unpaid = np.empty(places.shape[0]), np.empty(places.shape[0])
    missing = np.empty(places.shape[0], np.int64)
    for c in range(places.shape[0]):
        unpaid[c], missing[c], least = _section_floor(a, h, q, p, places[c])
        floors[c] = unpaid[c] + (missing[c] * least if missing[c] else 0.0)
    is_close = np.zeros(places.shape[0], np.bool_)
    paid = np.empty(q.tasks)
    limit = best
    while True:
        lowest, at = limit, NOWHERE
        for c in range(places.shape[0]):
            if floors[c] < lowest:
                lowest, at = floors[c], c
        if at == NOWHERE:
            return
        if is_close[at]:
            bounds[at], truths[at] = _solved(a, h, q, p, s, places[at])
            limit = min(limit, truths[at] + 2 * EPSILON)
            floors[at] = INFINITE
        else:
            closer = unpaid[at] + _least_paid(a, h, q, p, places[at], paid[: missing[at]])
            floors[at] = max(floors[at], closer)
            is_close[at] = True


@inner
def _sections(a: Arrays, h: AllocationTable, q: Question, p: Terms) -> I64:
    """Those with room for the gang, tightest levels first: cluster, choice, level, section."""
    choices = q.choice_model.shape[0]
    found = np.zeros((a.member_start.shape[0] * choices, 4), np.int64)
    count = 0
    for level in range(1, 5):
        if q.level_cost[level] == INFINITE:
            break
        for cluster in range(a.by_cluster.shape[0]):
            if q.cluster_cost[cluster] == INFINITE:
                continue
            for choice in range(choices):
                model, gpus = q.choice_model[choice], q.choice_gpus[choice]
                low = a.by_cluster[cluster, model, level - 1, 0]
                high = a.by_cluster[cluster, model, level - 1, 1]
                for section in range(low, high):
                    if room_in(a, h, p.threshold, section, gpus) >= q.tasks:
                        found[count, 0], found[count, 1] = cluster, choice
                        found[count, 2], found[count, 3] = level, section
                        count += 1
    return found[:count]


@inner
def _start_of(q: Question, place: I64) -> float:
    """The price of a place before a host is chosen there."""
    price: float = q.cluster_cost[place[0]] + q.choice_cost[place[1]] + q.level_cost[place[2]]
    return price


@inner
def _solved(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, s: Scratch, place: I64
) -> tuple[float, float]:
    """Bound and truth of the gang's score in a section. As `section_offer`."""
    hosts = _hosts_of(a, place)
    taken = np.zeros(hosts.shape[0], np.int64)
    bound, truth, _ = section_offer(a, h, q, p, s, q.choice_gpus[place[1]], hosts, taken)
    start = _start_of(q, place)
    return start + bound, start + truth


@inner
def _hosts_of(a: Arrays, place: I64) -> I64:
    return a.members[a.member_start[place[3]] : a.member_start[place[3] + 1]]


@inner
def _section_floor(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, place: I64
) -> tuple[float, int, float]:
    """What the gang's score in a section cannot be below: O(hosts + W * tasks per host).

    That is a price without victims; the tasks that free GPUs do not hold; and what each of these
    costs more, at least.
    """
    gpus = q.choice_gpus[place[1]]
    room, widest = 0, 0
    least: float = INFINITE
    for host in _hosts_of(a, place):
        if p.usable[host] and h.cleared[p.threshold, host] >= gpus:
            room += a.whole[host] // gpus
            widest = max(widest, h.cleared[p.threshold, host])
            # One task more than free GPUs hold: that many must be freed for it, at the least.
            least = min(least, (gpus - a.whole[host] % gpus) * rate_of(h, p, host))
    rate: float = INFINITE
    for free in range(gpus, widest + 1):
        for t in range(1, min(q.tasks, free // gpus) + 1):
            rate = min(rate, (q.stranded[free - t * gpus] - q.stranded[free]) / t)
    return _start_of(q, place) + q.tasks * rate - EPSILON, max(0, q.tasks - room), least


@inner
def _least_paid(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, place: I64, paid: F64
) -> float:
    """What as many tasks as ``paid`` has room for cost at least, where GPUs must be freed for them.

    Infinite if too few may be freed now. Each host's tasks cost no less one after the other, so
    the cheapest of all hosts' are those that cost least together. O(entries + hosts * tasks).
    """
    gpus = q.choice_gpus[place[1]]
    paid[:] = INFINITE
    for host in _hosts_of(a, place):
        if not p.usable[host] or h.cleared[p.threshold, host] < gpus:
            continue
        able, whole, lowest, highest = _freed_on(a, h, p, host)
        tasks = (a.whole[host] + able) // gpus - a.whole[host] // gpus
        freed = gpus - a.whole[host] % gpus
        before = 0.0
        for _ in range(min(tasks, paid.shape[0])):
            # At the lowest price each, or all but what stays at the highest.
            sum_here = max(freed * lowest, whole - (able - freed) * highest)
            price = sum_here - before
            if price >= paid[-1]:
                break
            i = paid.shape[0] - 1
            while i > 0 and paid[i - 1] > price:
                paid[i] = paid[i - 1]
                i -= 1
            paid[i] = price
            before = sum_here
            freed += gpus
    total = 0.0
    for price in paid:
        total += price
    return total


@inner
def _freed_on(
    a: Arrays, h: AllocationTable, p: Terms, host: int
) -> tuple[int, float, float, float]:
    """GPUs of a host that may be freed, their price, and the lowest and highest price of one.

    A price is 0 where shares of GPUs may go. O(entries).
    """
    able, whole, lowest, highest = 0, 0.0, INFINITE, 0.0
    entry = h.hosts[host].first
    while entry != NONE:
        v, gpus = h.entries[entry].of, h.entries[entry].whole
        price = price_of(h, p, v)
        if price < INFINITE and h.entries[entry].slot != NONE:
            return h.cleared[p.threshold, host] - a.whole[host], 0.0, 0.0, 0.0
        if price < INFINITE and gpus > 0:
            price /= h.attempts[v].gpus
            able, whole = able + gpus, whole + gpus * price
            lowest, highest = min(lowest, price), max(highest, price)
        entry = h.entries[entry].after
    return able, whole, lowest, highest


# --- the victims ----------------------------------------------------------------------------------


@kernel
def victims_on(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, s: Scratch, host: int, gpus: int
) -> I64:
    """The attempts that go for a gang on one host. O(a host's offers)."""
    items = np.zeros(entries_on(h, host), np.int64)
    price = np.zeros(2)
    chosen = np.zeros((2, items.shape[0]), np.bool_)
    count = offers_of(a, h, p, s, host, gpus, q.stranded, price, items, chosen)
    found = np.zeros(count, np.int64)
    size = 0
    for i in range(count):
        if chosen[1, i]:
            found[size] = h.entries[items[i]].of
            size += 1
    return found[:size]


@kernel
def marked(h: AllocationTable, s: Scratch, hosts: I64) -> I64:
    """Attempts on these hosts that the last `section_offer` stops, each once. O(entries)."""
    found = np.zeros(hosts.shape[0] * max(1, most_entries(h, hosts)), np.int64)
    count = 0
    for host in hosts:
        entry = h.hosts[host].first
        while entry != NONE:
            v = h.entries[entry].of
            if s.victim[v]:
                s.victim[v] = False
                found[count] = v
                count += 1
            entry = h.entries[entry].after
    return found[:count]
