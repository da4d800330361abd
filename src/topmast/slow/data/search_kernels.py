"""The kernels of `search`: moves of workloads between regions, with the replicas that follow them.

A state keeps every hard rule at all times, links and budget included. A move changes it in small
steps, each of which is written down, so that a move that does not pay is taken back step by step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from topmast.jit import inner, kernel

NOWHERE = -1
ADDED, DROPPED, LEFT, ENTERED = 0, 1, 2, 3


class Fixed(NamedTuple):
    """What a search does not change; the arrays of `columns`, with demand as lists by workload.
    ``cost`` [D, R] of a replica may hold prices of what is scarce on top of what it costs.
    """

    size: Any
    cost: Any
    can: Any
    held: Any
    homeless: Any
    least: Any
    storage: Any
    budget: Any
    link: Any
    edge_start: Any
    edge_table: Any
    reader_start: Any
    reader: Any
    loss: Any
    may: Any
    want_start: Any
    want_model: Any
    want: Any
    cpu: Any
    cpus: Any
    supply: Any
    room: Any
    prices: Any


class State(NamedTuple):
    """Where everything is: ``at`` [W] region or -1, ``users`` [D, R] workloads there that read
    it, ``placed`` [D, R], ``source`` [D, R] of copies, ``count`` [D] replicas, ``idle`` [D] of
    them unused, and what is used up: ``stored`` [R] and ``moved`` [1] and ``carried`` [R, R]
    bytes, ``load`` [R, G], ``busy`` [R] CPUs.
    """

    at: Any
    users: Any
    placed: Any
    source: Any
    count: Any
    idle: Any
    stored: Any
    moved: Any
    carried: Any
    load: Any
    busy: Any


class Log(NamedTuple):
    """Steps to take back: kind, table or workload, region, source; ``length`` [1]."""

    kind: Any
    table: Any
    region: Any
    source: Any
    length: Any


@inner
def _random(seed: Any) -> Any:
    """The next of a stream of 64-bit numbers (xorshift64*)."""
    value = seed[0]
    value ^= value >> np.uint64(12)
    value ^= value << np.uint64(25)
    value ^= value >> np.uint64(27)
    seed[0] = value
    return value * np.uint64(2685821657736338717)


@inner
def _below(seed: Any, limit: int) -> Any:
    """A number in 0..limit - 1."""
    return int((_random(seed) >> np.uint64(33)) % np.uint64(limit))


@inner
def _uniform(seed: Any) -> Any:
    """A number in [0, 1)."""
    return float(_random(seed) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@inner
def overload(f: Any, r: int, g: int, load: float) -> Any:
    """The price of ``load`` on a region's GPUs of a model. O(S)."""
    over = load - f.supply[r, g]
    if over <= 0.0:
        return 0.0
    cost = 0.0
    last = len(f.prices) - 1
    for s in range(last):
        part = min(over, f.room[r, g, s])
        cost += part * f.prices[s]
        over -= part
        if over <= 0.0:
            return cost
    return cost + over * f.prices[last]


@inner
def _source_for(f: Any, s: Any, d: int, r: int) -> Any:
    """The region to copy from with most room on its link; -1 for a new table, -2 where none has
    room.
    """
    if f.homeless[d]:
        return NOWHERE
    best, room = -2, -1.0
    for a in range(len(f.storage)):
        if f.held[d, a]:
            left = f.link[a, r] - s.carried[a, r]
            if left >= f.size[d] and left > room:
                best, room = a, left
    return best


@inner
def _fits(f: Any, s: Any, d: int, r: int) -> Any:
    """Whether a replica more is possible there now."""
    if not f.can[d, r] or s.stored[r] + f.size[d] > f.storage[r]:
        return False
    if f.held[d, r]:
        return True
    return s.moved[0] + f.size[d] <= f.budget and _source_for(f, s, d, r) != -2


@inner
def _note(log: Any, kind: int, d: int, r: int, source: int) -> None:
    n = log.length[0]
    log.kind[n] = kind
    log.table[n] = d
    log.region[n] = r
    log.source[n] = source
    log.length[0] = n + 1


@inner
def _put(f: Any, s: Any, d: int, r: int, source: int) -> Any:
    """Add a replica; its cost."""
    s.placed[d, r] = True
    s.count[d] += 1
    s.stored[r] += f.size[d]
    if s.users[d, r] == 0:
        s.idle[d] += 1
    if not f.held[d, r]:
        s.moved[0] += f.size[d]
        s.source[d, r] = source
        if source >= 0:
            s.carried[source, r] += f.size[d]
    return f.cost[d, r]


@inner
def _take(f: Any, s: Any, d: int, r: int) -> Any:
    """Remove a replica; what it saves, as a negative cost."""
    s.placed[d, r] = False
    s.count[d] -= 1
    s.stored[r] -= f.size[d]
    if s.users[d, r] == 0:
        s.idle[d] -= 1
    if not f.held[d, r]:
        s.moved[0] -= f.size[d]
        if s.source[d, r] >= 0:
            s.carried[s.source[d, r], r] -= f.size[d]
    return -f.cost[d, r]


@inner
def _add(f: Any, s: Any, log: Any, d: int, r: int) -> Any:
    source = NOWHERE if f.held[d, r] else _source_for(f, s, d, r)
    _note(log, ADDED, d, r, source)
    return _put(f, s, d, r, source)


@inner
def _drop(f: Any, s: Any, log: Any, d: int, r: int) -> Any:
    _note(log, DROPPED, d, r, s.source[d, r])
    return _take(f, s, d, r)


@inner
def _settle(f: Any, s: Any, log: Any, d: int) -> Any:
    """Drop replicas that no workload uses, dearest first, down to the least; then let an unused one
    make way for a cheaper one that is held elsewhere. The change of cost. O(R^2) at worst, O(1)
    mostly.
    """
    cost = 0.0
    if s.idle[d] == 0:
        return 0.0
    regions = len(f.storage)
    while s.count[d] > f.least[d] and s.idle[d] > 0:
        worst = -1
        for r in range(regions):
            dearer = worst < 0 or f.cost[d, r] > f.cost[d, worst]
            if dearer and s.placed[d, r] and s.users[d, r] == 0:
                worst = r
        cost += _drop(f, s, log, d, worst)
    if s.idle[d] == 0:
        return cost
    for r in range(regions):
        if s.placed[d, r] and s.users[d, r] == 0:
            best = r
            for b in range(regions):
                cheaper = f.can[d, b] and f.cost[d, b] < f.cost[d, best]
                if cheaper and not s.placed[d, b] and _fits(f, s, d, b):
                    best = b
            if best != r:
                cost += _drop(f, s, log, d, r)
                cost += _add(f, s, log, d, best)
    return cost


@inner
def _leave(f: Any, s: Any, w: int) -> Any:
    """Stop serving a workload, and keep its replicas; the change of cost."""
    a = s.at[w]
    if a < 0:
        return -f.loss[w]
    cost = 0.0
    for k in range(f.want_start[w], f.want_start[w + 1]):
        g = f.want_model[k]
        before = s.load[a, g]
        s.load[a, g] = before - f.want[k]
        cost += overload(f, a, g, s.load[a, g]) - overload(f, a, g, before)
    s.busy[a] -= f.cpu[w]
    for e in range(f.edge_start[w], f.edge_start[w + 1]):
        d = f.edge_table[e]
        s.users[d, a] -= 1
        if s.users[d, a] == 0:
            s.idle[d] += 1
    s.at[w] = -1
    return cost


@inner
def _enter(f: Any, s: Any, w: int, b: int) -> Any:
    """Serve a workload that is served nowhere, and has all its replicas there (b < 0: leave it
    unserved).
    """
    if b < 0:
        return f.loss[w]
    cost = 0.0
    for k in range(f.want_start[w], f.want_start[w + 1]):
        g = f.want_model[k]
        before = s.load[b, g]
        s.load[b, g] = before + f.want[k]
        cost += overload(f, b, g, s.load[b, g]) - overload(f, b, g, before)
    s.busy[b] += f.cpu[w]
    for e in range(f.edge_start[w], f.edge_start[w + 1]):
        d = f.edge_table[e]
        if s.users[d, b] == 0:
            s.idle[d] -= 1
        s.users[d, b] += 1
    s.at[w] = b
    return cost


@inner
def _move(f: Any, s: Any, log: Any, w: int, b: int) -> Any:
    """Serve ``w`` in ``b`` (-1: nowhere) with what that takes; the change of cost, or infinity
    where it does not fit: then what was done so far must be taken back. O(tables of w x R).
    """
    if b >= 0 and s.busy[b] + f.cpu[w] > f.cpus[b]:
        return np.inf
    _note(log, LEFT, w, s.at[w], 0)
    cost = _leave(f, s, w)
    begin, end = f.edge_start[w], f.edge_start[w + 1]
    if b >= 0:
        for e in range(begin, end):
            d = f.edge_table[e]
            if not s.placed[d, b]:
                if not _fits(f, s, d, b):
                    return np.inf
                cost += _add(f, s, log, d, b)
    _note(log, ENTERED, w, b, 0)
    cost += _enter(f, s, w, b)
    for e in range(begin, end):
        cost += _settle(f, s, log, f.edge_table[e])
    return cost


@inner
def _undo(f: Any, s: Any, log: Any, length: int) -> None:
    """Take steps back to where the log had ``length`` of them."""
    for n in range(log.length[0] - 1, length - 1, -1):
        kind, what, r = log.kind[n], log.table[n], log.region[n]
        if kind == ADDED:
            _take(f, s, what, r)
        elif kind == DROPPED:
            _put(f, s, what, r, log.source[n])
        elif kind == LEFT:
            _enter(f, s, what, r)
        else:
            _leave(f, s, what)
    log.length[0] = length


@inner
def _change(f: Any, s: Any, w: int, r: int, sign: float) -> Any:
    """What the overload of a region changes when ``w`` comes (1) or goes (-1). O(models of w)."""
    cost = 0.0
    for k in range(f.want_start[w], f.want_start[w + 1]):
        g = f.want_model[k]
        load = s.load[r, g]
        if max(load, load + sign * f.want[k]) > f.supply[r, g]:
            cost += overload(f, r, g, load + sign * f.want[k]) - overload(f, r, g, load)
    return cost


@inner
def _least_cost(f: Any, s: Any, w: int, b: int) -> Any:
    """At most what `_move` costs, found without a change: all that might be saved is. O(tables of
    w).
    """
    a = s.at[w]
    if b >= 0 and s.busy[b] + f.cpu[w] > f.cpus[b]:
        return np.inf
    cost = -f.loss[w] if a < 0 else _change(f, s, w, a, -1.0)
    cost += f.loss[w] if b < 0 else _change(f, s, w, b, 1.0)
    for e in range(f.edge_start[w], f.edge_start[w + 1]):
        d = f.edge_table[e]
        if s.idle[d] > 0:
            for r in range(len(f.storage)):
                if s.placed[d, r] and s.users[d, r] == 0 and r != b:
                    cost -= f.cost[d, r]
        if b >= 0 and not s.placed[d, b]:
            cost += f.cost[d, b]
        if a >= 0 and s.users[d, a] == 1:
            cost -= f.cost[d, a]
    return cost


@inner
def _follow(f: Any, s: Any, log: Any, d: int, a: int, b: int) -> Any:
    """Move all workloads that read ``d`` in ``a`` to ``b``, as far as that fits; the change of
    cost.

    O(readers of d x tables x R).
    """
    cost = 0.0
    for k in range(f.reader_start[d], f.reader_start[d + 1]):
        w = f.reader[k]
        if s.at[w] == a and (b < 0 or f.may[w, b]):
            length = log.length[0]
            change = _move(f, s, log, w, b)
            if change == np.inf:
                _undo(f, s, log, length)
            else:
                cost += change
    return cost


@kernel
def fill(f: Any, s: Any, order: Any, prefer: Any, log: Any) -> Any:
    """Give every table its least replicas, in ``order``, where ``prefer`` [D, R] is highest and
    it fits.

    Returns the first table that cannot have them, or -1. O(D R^2).
    """
    for d in order:
        log.length[0] = 0
        while s.count[d] < f.least[d]:
            best = -1
            for r in range(len(f.storage)):
                better = best < 0 or prefer[d, r] > prefer[d, best]
                if better and not s.placed[d, r] and _fits(f, s, d, r):
                    best = r
            if best < 0:
                return d
            _add(f, s, log, d, best)
    return -1


@kernel
def place(f: Any, s: Any, tables: Any, regions: Any, log: Any) -> None:
    """Add replicas, where they fit, in the order given. O(pairs R)."""
    for i in range(len(tables)):
        log.length[0] = 0
        if not s.placed[tables[i], regions[i]] and _fits(f, s, tables[i], regions[i]):
            _add(f, s, log, tables[i], regions[i])


@kernel
def assign(f: Any, s: Any, order: Any, wish: Any, log: Any) -> None:
    """Serve workloads one after the other where ``wish`` [W] says, if that fits. O(edges R)."""
    for w in order:
        if wish[w] >= 0 and s.at[w] != wish[w]:
            log.length[0] = 0
            if _move(f, s, log, w, wish[w]) == np.inf:
                _undo(f, s, log, 0)


@kernel
def descend(f: Any, s: Any, works: Any, log: Any, sweeps: int) -> Any:
    """Move workloads to their best region while that pays; the change of cost. O(sweeps edges
    R^2).
    """
    total = 0.0
    for _ in range(sweeps):
        gained = 0.0
        for w in works:
            a = s.at[w]
            best, choice = -1e-9, -2
            for b in range(-1, len(f.storage)):
                if b == a or (b >= 0 and not f.may[w, b]):
                    continue
                if _least_cost(f, s, w, b) > best:
                    continue
                log.length[0] = 0
                cost = _move(f, s, log, w, b)
                _undo(f, s, log, 0)
                if cost < best:
                    best, choice = cost, b
            if choice != -2:
                log.length[0] = 0
                gained += _move(f, s, log, w, choice)
        total += gained
        if gained > -1e-7:
            break
    return total


@kernel
def anneal(
    f: Any, s: Any, works: Any, near: Any, near_count: Any, log: Any, seed: Any,
    steps: int, warm: float, cold: float, together: float,
) -> Any:  # fmt: skip
    """Random moves, worse ones taken with a chance that falls with the temperature; the change of
    cost.

    A part ``together`` of the moves takes along all that read one of a workload's tables in its
    region. ``near`` [W, R + 1]: the first ``near_count`` entries are where it may go. O(steps R).
    """
    total = 0.0
    if len(works) == 0:
        return 0.0
    factor = (cold / warm) ** (1.0 / max(1, steps))
    heat = warm
    for _ in range(steps):
        heat *= factor
        w = works[_below(seed, len(works))]
        b = near[w, _below(seed, near_count[w])]
        a = s.at[w]
        if a == b:
            continue
        limit = -heat * np.log(max(_uniform(seed), 1e-300))
        begin, end = f.edge_start[w], f.edge_start[w + 1]
        log.length[0] = 0
        if a >= 0 and end > begin and _uniform(seed) < together:
            cost = _follow(f, s, log, f.edge_table[begin + _below(seed, end - begin)], a, b)
        elif _least_cost(f, s, w, b) > limit:
            continue
        else:
            cost = _move(f, s, log, w, b)
        if cost > limit:
            _undo(f, s, log, 0)
        else:
            total += cost
    return total
