"""Compiled kernels: what a host can take of a gang of several groups, of shares, or without GPUs.

The options of a host are all vectors of tasks that fit on it, each with its change in stranded GPUs
(`scoring.stranded_change`). Hosts with equal lists are of one *kind*.

Times below are for H hosts, O options of a host, G groups.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topmast.fast.region.inventory.arrays import F64, I64, MILLI
from topmast.fast.region.search.kernels import EPSILON, INFINITE, NOWHERE
from topmast.fast.region.search.knapsack import Options, append, infinite, new_options, nowhere
from topmast.fast.region.search.share_packing import fewest_opened, packs
from topmast.fast.region.search.stranded import EASE, Left, Mixture, ease, stranded_of
from topmast.jit import inner, kernel

Bools = NDArray[np.bool_]

MICRO = 1_000_000
"""Millionths of a CPU."""


class Hosts(NamedTuple):
    """What is free in a region."""

    free_milli: I64
    """(slots) thousandths free of each GPU; below zero where a preemptor has claimed a victim's."""
    offset: I64
    """(H + 1) host h owns slots offset[h]:offset[h + 1]."""
    cpus: I64
    """(H) millionths."""
    memory: I64
    """(H) bytes."""
    usable: Bools
    """(H) in service, and not to be avoided."""
    model: I64
    """(H) the number of the host's model."""


class Gang(NamedTuple):
    """What is asked for; G groups, the last being the filler (of no tasks, if there is none)."""

    tasks: I64
    """(G) tasks."""
    milli: I64
    """(choices x G) thousandths of GPUs of a task."""
    shares: I64
    """(choices x G) the groups of shares, the largest share first, then NOWHERE."""
    cpus: I64
    memory: I64
    total: int
    """Tasks of all groups, and what they need together."""
    total_cpus: int
    total_memory: int
    right: Bools
    """(choices x G x H) whether the host's GPUs are of the model."""
    stride: I64
    """(G - 1) how far apart the states are that differ by one task of the group."""
    vectors: I64
    """(states x G - 1) tasks by group of each state; the last one is the whole gang."""
    stranded: F64
    """(W) the priced number of stranded GPUs on a host with f wholly free ones."""
    share_price: float
    """The price of a thousandth that is free of a GPU in shares."""
    mixture: Mixture
    """By which free GPUs are judged instead of the last two, if it applies."""
    choice_cost: F64
    level_cost: F64
    """(5) infinite for a level that is not allowed."""


class Places(NamedTuple):
    """The topology: clusters in the order of their names."""

    domain: I64
    """(5 x H) the number of the host's domain at each level."""
    first: I64
    """(C)"""
    last: I64
    hosts: I64
    """(H) 0, 1, ...; a cluster has the hosts first:last."""
    cost: F64
    """(C) what is the same for all plans of a cluster; infinite for one that may not be used."""


class Kinds(NamedTuple):
    """What hosts can take: kind k has options start[k]:start[k + 1]; a host of no use has none."""

    options: Options
    start: I64
    of_host: I64
    """(choices x H)"""
    most: I64
    """(K x G) tasks of each group that a host could take, if of that group alone."""
    rate: F64
    """(K) the least cost per thousandth of a GPU."""
    alone: F64
    """(K) the least cost of the whole gang on one such host."""


# --- one host -------------------------------------------------------------------------------------


@inner
def list_shares(g: Gang, choice: int, tasks: I64, items: I64) -> int:
    """Write the sizes of a vector's shares to ``items``, largest first; returns how many."""
    count = 0
    for i in range(g.shares.shape[1]):
        group = g.shares[choice, i]
        if group == NOWHERE:
            break
        for _ in range(tasks[group]):
            items[count] = g.milli[choice, group]
            count += 1
    return count


@kernel
def best_opening(
    g: Gang, items: I64, count: int, bins: I64, whole: int, taken: int
) -> tuple[float, int]:
    """The least change in stranded GPUs when a host gives ``taken`` whole GPUs and some shares.

    Also how many more of its ``whole`` free GPUs are opened for the shares: as few as will do, or
    more if that strands less. Infinite if they do not fit.
    """
    left = whole - taken
    if left < 0:
        return INFINITE, 0
    if count == 0:
        return g.stranded[left] - g.stranded[whole], 0
    shared = 0
    for i in range(count):
        shared += items[i]
    best, at = INFINITE, 0
    for opened in range(fewest_opened(items, count, bins, left), min(left, count) + 1):
        parts = g.share_price * (MILLI * opened - shared)
        change = g.stranded[left - opened] - g.stranded[whole] + parts
        if change < best - EPSILON:
            best, at = change, opened
    return best, at


@inner
def _left(g: Gang, whole: int, bins: I64, cpus: int, memory: int) -> Left:
    """What is free of a host, as the shapes of recent tasks see it. O(bins)."""
    parts, useless = 0.0, 0.0
    for milli in bins:
        parts += milli / MILLI
        useless += g.mixture.useless[milli]
    return Left(whole, parts, useless, cpus / MICRO, float(memory))


@inner
def _change_by_shapes(
    g: Gang, model: int, old: Left, bins: I64, items: I64, count: int, opened: int, new: Left,
    part: float,
) -> float:  # fmt: skip
    """The points for tasks on a host: ``count`` shares on its ``bins`` and on ``opened`` GPUs.

    ``new``: what is left, but for GPUs in shares. ``part`` of the gang's tasks are these.
    """
    after = np.empty(bins.shape[0] + opened, np.int64)
    for k in range(after.shape[0]):
        after[k] = bins[k] if k < bins.shape[0] else MILLI
    if count > 0:
        where = np.empty(count, np.int64)
        packs(items, count, bins, opened, where)
        for i in range(count):
            after[where[i]] -= items[i]
    left = _left(g, new.whole, after, 0, 0)
    left = Left(new.whole, left.parts, left.useless, new.cpus, new.memory)
    change = stranded_of(g.mixture, model, left) - stranded_of(g.mixture, model, old)
    return g.mixture.price * (change + EASE * part * ease(left))


@inner
def price(
    g: Gang, choice: int, model: int, whole: int, bins: I64, cpus: int, memory: int, tasks: I64,
    items: I64,
) -> tuple[float, int]:  # fmt: skip
    """The cost of a vector of tasks on a host, and the fillers beside it; infinite if too large."""
    last = g.tasks.shape[0] - 1
    taken = 0
    used_cpus, used_memory = 0, 0
    for group in range(last):
        used_cpus += tasks[group] * g.cpus[group]
        used_memory += tasks[group] * g.memory[group]
        if g.milli[choice, group] >= MILLI:
            taken += tasks[group] * (g.milli[choice, group] // MILLI)
    if (used_cpus > 0 and used_cpus > cpus) or (used_memory > 0 and used_memory > memory):
        return INFINITE, 0
    count = list_shares(g, choice, tasks, items)
    change, opened = best_opening(g, items, count, bins, whole, taken)
    if change == INFINITE:
        return INFINITE, 0
    if g.mixture.apply:
        old = _left(g, whole, bins, cpus, memory)
        left = Left(
            whole - taken - opened, 0.0, 0.0, (cpus - used_cpus) / MICRO, memory - used_memory
        )
        part = tasks.sum() / g.total
        change = _change_by_shapes(g, model, old, bins, items, count, opened, left, part)
    fill = g.tasks[last]
    if g.cpus[last] > 0:
        fill = min(fill, max(0, cpus - used_cpus) // g.cpus[last])
    if g.memory[last] > 0:
        fill = min(fill, max(0, memory - used_memory) // g.memory[last])
    return change, fill


@inner
def list_vectors(
    g: Gang,
    choice: int,
    host: int,
    model: int,
    whole: int,
    bins: I64,
    cpus: int,
    memory: int,
    found: Options,
) -> int:
    """Write every vector of tasks that fits on a host to ``found``; returns how many. O(O * G).

    What fits also fits with a task less: a group is counted up until the vector does not fit.
    """
    groups = g.tasks.shape[0] - 1
    tasks = np.zeros(groups, np.int64)
    items = np.empty(g.total, np.int64)
    listed = 0
    state = 0
    cost, fill = 0.0, price(g, choice, model, whole, bins, cpus, memory, tasks, items)[1]
    while True:
        if state > 0 or fill > 0:
            found.state[listed] = state
            found.fill[listed] = fill
            found.cost[listed] = cost
            listed += 1
        at = 0
        while at < groups:
            if tasks[at] < g.tasks[at] and g.right[choice, at, host]:
                tasks[at] += 1
                state += g.stride[at]
                cost, fill = price(g, choice, model, whole, bins, cpus, memory, tasks, items)
                if cost < INFINITE:
                    break
            state -= tasks[at] * g.stride[at]
            tasks[at] = 0
            at += 1
        if at == groups:
            return listed


@inner
def list_bins(free: I64, shares: bool, bins: I64) -> tuple[int, int]:
    """Count a host's wholly free GPUs and write what is free of those in shares, fullest first.

    O(slots + bins^2). Nothing is written for a gang without ``shares``.
    """
    whole, count = 0, 0
    for i in range(free.shape[0]):
        if free[i] == MILLI:
            whole += 1
        elif shares and free[i] > 0:
            at = count
            while at > 0 and bins[at - 1] > free[i]:
                bins[at] = bins[at - 1]
                at -= 1
            bins[at] = free[i]
            count += 1
    return whole, count


# --- kinds of hosts -------------------------------------------------------------------------------


@inner
def _hash(found: Options, count: int) -> int:
    mixed = count
    for i in range(count):
        mixed = (mixed * 1_000_003 + found.state[i] * 8191 + found.fill[i]) & 0x3FFFFFFFFFFF
        mixed ^= int(found.cost[i] * 1e6) & 0xFFFFFFF
    return mixed


@inner
def _same(store: Options, start: int, end: int, found: Options, count: int) -> bool:
    if end - start != count:
        return False
    for i in range(count):
        if store.state[start + i] != found.state[i] or store.fill[start + i] != found.fill[i]:
            return False
        if store.cost[start + i] != found.cost[i]:
            return False
    return True


class _Looks(NamedTuple):
    """What tells hosts apart before options are listed; only the first of a kind is listed."""

    whole: I64
    parts: I64
    cpus: I64
    memory: I64
    bins: I64
    """(slots) what is free of the GPUs in shares, from the host's first slot on."""
    table: I64
    """A hash table of hosts."""


@inner
def _new_looks(h: Hosts) -> _Looks:
    total = h.usable.shape[0]
    size = 4
    while size < 2 * total:
        size *= 2
    return _Looks(
        np.zeros(total, np.int64),
        np.zeros(total, np.int64),
        np.zeros(total, np.int64),
        np.zeros(total, np.int64),
        np.zeros(h.free_milli.shape[0], np.int64),
        nowhere(size),
    )


@inner
def _first_like(looks: _Looks, h: Hosts, by_model: bool, right: Bools, host: int) -> int:
    """The first host noted that looks like this one, which may be itself. O(slots + G)."""
    offset = h.offset
    start, parts = offset[host], looks.parts[host]
    mixed = looks.whole[host] * 31 + looks.cpus[host] * 1_000_003 + looks.memory[host]
    for i in range(parts):
        mixed = mixed * 1_000_003 + looks.bins[start + i]
    at = (mixed ^ (mixed >> 17)) & (looks.table.shape[0] - 1)
    while looks.table[at] != NOWHERE:
        other: int = looks.table[at]
        same = (
            looks.whole[other] == looks.whole[host]
            and looks.cpus[other] == looks.cpus[host]
            and looks.memory[other] == looks.memory[host]
            and looks.parts[other] == parts
            and (not by_model or h.model[other] == h.model[host])
        )
        if same:
            for i in range(parts):
                same = same and looks.bins[offset[other] + i] == looks.bins[start + i]
            for group in range(right.shape[0]):
                same = same and right[group, other] == right[group, host]
        if same:
            return other
        at = (at + 1) & (looks.table.shape[0] - 1)
    looks.table[at] = host
    return host


@kernel
def kinds_of_hosts(h: Hosts, g: Gang, places: Places) -> Kinds:
    """List what every host can take on what is free, by choices. O(choices * H * O * G)."""
    choices, total = g.milli.shape[0], h.usable.shape[0]
    found = new_options(g.vectors.shape[0])
    store = new_options(max(64, g.vectors.shape[0]))
    start = np.zeros(choices * total + 2, np.int64)
    of_host = np.empty((choices, total), np.int64)
    looks = _new_looks(h)
    table = nowhere(looks.table.shape[0])
    count = 0
    for choice in range(choices):
        shares = g.shares[choice, 0] != NOWHERE or g.mixture.apply
        right = g.right[choice]
        for at in range(table.shape[0]):
            looks.table[at] = NOWHERE
            table[at] = NOWHERE
        for host in range(total):
            of_host[choice, host] = NOWHERE
        for cluster in range(places.first.shape[0]):
            if places.cost[cluster] == INFINITE:
                continue
            for host in range(places.first[cluster], places.last[cluster]):
                if not h.usable[host]:
                    continue
                low, high = h.offset[host], h.offset[host + 1]
                bins = looks.bins[low:high]
                whole, parts = list_bins(h.free_milli[low:high], shares, bins)
                looks.whole[host], looks.parts[host] = whole, parts
                looks.cpus[host] = min(max(0, h.cpus[host]), g.total_cpus)
                looks.memory[host] = min(max(0, h.memory[host]), g.total_memory)
                like = _first_like(looks, h, g.mixture.apply, right, host)
                if like != host:
                    of_host[choice, host] = of_host[choice, like]
                    continue
                cpus, memory = looks.cpus[host], looks.memory[host]
                listed = list_vectors(
                    g, choice, host, h.model[host], whole, bins[:parts], cpus, memory, found
                )
                if listed == 0:
                    continue
                at = _slot_of(table, store, start, found, listed)
                if table[at] == NOWHERE:
                    table[at] = count
                    store = append(store, start[count], found, listed)
                    start[count + 1] = start[count] + listed
                    count += 1
                of_host[choice, host] = table[at]
    return summary(g, store, start[: count + 1], of_host)


@inner
def _slot_of(table: I64, store: Options, start: I64, found: Options, count: int) -> int:
    """Where in the hash table of kinds that with the options ``found`` is, or belongs."""
    size = table.shape[0]
    at: int = _hash(found, count) & (size - 1)
    while table[at] != NOWHERE:
        kind = table[at]
        if _same(store, start[kind], start[kind + 1], found, count):
            break
        at = (at + 1) & (size - 1)
    return at


@kernel
def summary(g: Gang, store: Options, start: I64, of_host: I64) -> Kinds:
    """The kinds with what a bound needs to know of them. O(options * G)."""
    kinds = start.shape[0] - 1
    last = g.tasks.shape[0] - 1
    most = np.zeros((kinds, last + 1), np.int64)
    rate = infinite(kinds)
    alone = infinite(kinds)
    whole_gang = g.vectors.shape[0] - 1
    choice_of = np.zeros(kinds, np.int64)
    for choice in range(of_host.shape[0]):
        for host in range(of_host.shape[1]):
            if of_host[choice, host] != NOWHERE:
                choice_of[of_host[choice, host]] = choice
    for kind in range(kinds):
        for i in range(start[kind], start[kind + 1]):
            milli = 0
            for group in range(last):
                tasks = g.vectors[store.state[i], group]
                most[kind, group] = max(most[kind, group], tasks)
                milli += tasks * g.milli[choice_of[kind], group]
            most[kind, last] = max(most[kind, last], store.fill[i])
            if milli > 0:
                rate[kind] = min(rate[kind], store.cost[i] / milli)
            if store.state[i] == whole_gang and store.fill[i] >= g.tasks[last]:
                alone[kind] = min(alone[kind], store.cost[i])
    return Kinds(store, start, of_host, most, rate, alone)
