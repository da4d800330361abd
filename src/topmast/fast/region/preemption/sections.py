"""Compiled kernels: the section of hosts where a gang on several of them has to stop least.

Each host offers to take some tasks at a price (`host_offers`), and the knapsack adds up the offers
of a section's hosts. A victim on several hosts of the section costs each its share of the price:
never more than the truth, so that the sum is a bound from below; then the search branches on such
victims, as `branching` does, until the bound is the truth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topmast.fast.region.inventory.allocation_table import NONE, AllocationTable, room_in
from topmast.fast.region.inventory.arrays import F64, I64, Arrays
from topmast.fast.region.preemption.branching import KEEP, MOST_BRANCHES, PREEMPT, UNDECIDED
from topmast.fast.region.preemption.host_offers import (
    Offers,
    Scratch,
    offers_on,
    reprice,
    slots_freed,
)
from topmast.fast.region.preemption.price import Terms, price_of, rate_of
from topmast.fast.region.search.kernels import EPSILON, INFINITE, NOWHERE, Question
from topmast.fast.region.search.knapsack import seat_alike
from topmast.jit import inner

OPEN_LIMIT = 64
"""Sections of one request that are branched on, at most."""

# --- a section ------------------------------------------------------------------------------------


class Seated(NamedTuple):
    """The tasks of each host (m) and the victims, by attempt (rows)."""

    hosts: I64
    tasks: I64
    victims: I64


@inner
def section_offer(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, s: Scratch, place: I64
) -> tuple[float, float, int]:
    """Bound and truth of the gang's score in a section, and the attempt to branch on."""
    r = _offers_in(a, h, q, p, s, place)
    bound, truth, branch = _seat(a, h, q, p, s, r, np.zeros(r.hosts.shape[0], np.int64))
    start = _start_of(q, place)
    return start + bound, start + truth, branch


@inner
def _offers_in(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, s: Scratch, place: I64
) -> Offers:
    return offers_on(a, h, p, s, _hosts_of(a, place), q.choice_gpus[place[1]], q.tasks)


@inner
def _seat(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, s: Scratch, r: Offers, taken: I64
) -> tuple[float, float, int]:
    """Seat the gang at the least price: bound, truth, the attempt to branch on.

    Writes the tasks of each host to ``taken`` (m) and the victims to the scratch. The last number
    is NONE if the bound is the truth. Both are infinite if the gang does not fit.
    O(m * n * tasks per host) for n tasks, besides the prices of stale hosts.
    """
    reprice(a, h, p, s, r, q.stranded)
    bound = seat_alike(r.prices, q.tasks, taken)
    if bound == INFINITE:
        return INFINITE, INFINITE, NONE
    for v in r.of:
        s.victim[v] = s.fate[v] == PREEMPT
        s.charged[v] = 0.0
    for i in range(taken.shape[0]):
        if taken[i] > 0:
            for n in range(r.first[i], r.first[i + 1]):
                if r.goes[taken[i], n]:
                    s.victim[r.of[n]] = True
                    s.charged[r.of[n]] += r.share[n]
    truth, branch = _whole_prices(s, r)
    for i in range(taken.shape[0]):
        if taken[i] > 0:
            free, going = a.whole[r.hosts[i]], r.goes[0]
            for n in range(r.first[i], r.first[i + 1]):
                going[n] = s.victim[r.of[n]]
                free += r.whole[n] if going[n] else 0
            free += slots_freed(a, h, s, r, i, going) if r.shared[i] else 0
            truth += q.stranded[free - taken[i] * r.gpus] - q.stranded[free]
    return bound, truth, branch


@inner
def _whole_prices(s: Scratch, r: Offers) -> tuple[float, int]:
    """The victims' prices, each once; of those on several hosts the one with most to pay."""
    prices, most_due, branch = 0.0, -1.0, NONE
    for n in range(r.of.shape[0]):
        v = r.of[n]
        if s.victim[v] and s.fate[v] != PREEMPT and s.charged[v] >= 0.0:
            prices += r.price[n]
            due = r.price[n] * (1.0 - s.charged[v])
            if r.share[n] < 1.0 and due > most_due:
                most_due, branch = due, v
            s.charged[v] = -1.0  # counted
    return prices, branch


# --- all sections ---------------------------------------------------------------------------------


@inner
def best_section(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, s: Scratch, best: float
) -> tuple[int, int, Seated]:
    """The best section for a gang on several hosts, below ``best``: cluster, choice, seats.

    Ties go to the first. O(sections * their hosts), `_solve_lowest`, and `_branch` for those with
    a bound below both their truth and ``best``, lowest first.
    """
    places = _sections(a, h, q, p)
    size = places.shape[0]
    bounds, truths = np.full(size, INFINITE), np.full(size, INFINITE)
    branches, undecided = np.full(size, NONE), np.empty(OPEN_LIMIT, np.int64)
    _solve_lowest(a, h, q, p, s, places, best, bounds, truths, branches)
    at, count = NOWHERE, 0
    for c in range(size):
        bound, truth = bounds[c], truths[c]
        if bound < truth - EPSILON and bound < min(best, truth) and count < OPEN_LIMIT:
            i = count
            while i > 0 and bounds[undecided[i - 1]] > bound:
                undecided[i] = undecided[i - 1]
                i -= 1
            undecided[i] = c
            count += 1
        if truth < best - EPSILON:
            best, at = truth, c
    tried = np.empty(MOST_BRANCHES, np.int64)
    fates, depth, left = np.empty(MOST_BRANCHES, np.int64), 0, MOST_BRANCHES
    for c in undecided[:count]:
        if branches[c] != NONE and bounds[c] < best - EPSILON and left > 0:
            better, left, found = _branch(
                a, h, q, p, s, places[c], branches[c], best, left, tried, fates
            )
            if found:
                best, at, depth = better, c, found
    if at == NOWHERE:
        none = np.empty(0, np.int64)
        return NOWHERE, NOWHERE, Seated(none, none, none)
    for d in range(depth):
        s.fate[tried[d]] = fates[d]
    seated = _seated(a, h, q, p, s, places[at])
    for d in range(depth):
        s.fate[tried[d]] = UNDECIDED
    return places[at, 0], places[at, 1], seated


@inner
def _seated(a: Arrays, h: AllocationTable, q: Question, p: Terms, s: Scratch, place: I64) -> Seated:
    """The seats in a section under the fates of now."""
    r = _offers_in(a, h, q, p, s, place)
    taken, victims = np.zeros(r.hosts.shape[0], np.int64), np.empty(r.of.shape[0], np.int64)
    _seat(a, h, q, p, s, r, taken)
    count = 0
    for v in r.of:
        if s.victim[v]:
            s.victim[v] = False
            victims[count] = v
            count += 1
    used = np.flatnonzero(taken)
    return Seated(r.hosts[used], taken[used], victims[:count])


@inner
def _solve_lowest(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, s: Scratch, places: I64, best: float,
    bounds: F64, truths: F64, branches: I64,
) -> None:  # fmt: skip
    """Solve the sections, lowest floor first, that may have a truth below ``best`` and the others.

    A floor gives way to a closer one before its section is solved: few are, as that costs some
    ten times as much. O(floors looked at * (sqrt(sections) + entries) + solved * `section_offer`).
    """
    size, run = places.shape[0], 1
    while run * run < size:
        run += 1
    floors, unpaid = np.full(run * run, INFINITE), np.empty(size)
    missing = np.empty(size, np.int64)
    for c in range(size):
        unpaid[c], missing[c], least = _section_floor(a, h, q, p, places[c])
        floors[c] = unpaid[c] + (missing[c] * least if missing[c] else 0.0)
    lowest = np.empty(run, np.int64)
    for k in range(run):
        lowest[k] = _lowest(floors, k * run, run)
    is_close = np.zeros(size, np.bool_)
    paid = np.empty(q.tasks)
    limit = best
    while True:
        at = lowest[0]
        for k in range(1, run):
            if floors[lowest[k]] < floors[at]:
                at = lowest[k]
        if not floors[at] < limit:
            return
        if is_close[at]:
            bounds[at], truths[at], branches[at] = section_offer(a, h, q, p, s, places[at])
            limit = min(limit, truths[at] + 2 * EPSILON)
            floors[at] = INFINITE
        else:
            closer = unpaid[at] + _least_paid(a, h, q, p, places[at], paid[: missing[at]])
            floors[at] = max(floors[at], closer)
            is_close[at] = True
        lowest[at // run] = _lowest(floors, at // run * run, run)


@inner
def _lowest(floors: F64, start: int, size: int) -> int:
    """Where the first of the lowest of some floors is. O(size)."""
    at = start
    for c in range(start + 1, start + size):
        if floors[c] < floors[at]:
            at = c
    return at


@inner
def _branch(
    a: Arrays, h: AllocationTable, q: Question, p: Terms, s: Scratch, place: I64, first: int,
    best: float, left: int, tried: I64, fates: I64,
) -> tuple[float, int, int]:  # fmt: skip
    """The best score in a section below ``best``, with how many branches left, and its decisions.

    ``first``: the attempt to decide about first. The decisions are written to ``tried`` and
    ``fates``, their number is returned; 0 if nothing better was found. Only the hosts of an
    attempt get another price by its fate.
    """
    r = _offers_in(a, h, q, p, s, place)
    taken, start = np.zeros(r.hosts.shape[0], np.int64), _start_of(q, place)
    waiting = np.empty((left + 1, 3), np.int64)
    path = np.empty(left, np.int64)
    depth, found, branch, count = 0, 0, first, 0
    while True:
        if branch != NONE:
            left -= 1
            for fate in (KEEP, PREEMPT):
                waiting[count, 0], waiting[count, 1], waiting[count, 2] = depth, branch, fate
                count += 1
        if count == 0:
            break
        count -= 1
        while depth > waiting[count, 0]:
            depth -= 1
            _decide(s, r, path[depth], UNDECIDED)
        path[depth] = waiting[count, 1]
        _decide(s, r, path[depth], waiting[count, 2])
        depth += 1
        paid = 0.0
        for d in range(depth):
            paid += price_of(h, p, path[d]) if s.fate[path[d]] == PREEMPT else 0.0
        bound, truth, branch = _seat(a, h, q, p, s, r, taken)
        bound, truth = start + paid + bound, start + paid + truth
        if truth < best - EPSILON:
            best, found = truth, depth
            for d in range(depth):
                tried[d], fates[d] = path[d], s.fate[path[d]]
        if bound >= best - EPSILON or left == 0:
            branch = NONE
    for d in range(depth):
        s.fate[path[d]] = UNDECIDED
    return best, left, found


@inner
def _decide(s: Scratch, r: Offers, v: int, fate: int) -> None:
    """Whether an attempt goes or stays; its hosts have other prices then. O(items)."""
    s.fate[v] = fate
    for i in range(r.hosts.shape[0]):
        for n in range(r.first[i], r.first[i + 1]):
            if r.of[n] == v:
                r.stale[i] = True


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
