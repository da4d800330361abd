"""Compiled kernels for gangs of several groups, of shares of GPUs, and of tasks without GPUs.

Tasks of a group are alike and hosts do not concern one another, so that the best seating on the hosts of a
domain is a bounded knapsack: one host after the other, the state being how many tasks of each group sit
already. What a host can take together is a list of *options*: a vector of tasks by group, and the change in
stranded GPUs that it causes (`scoring.stranded_change`). Hosts with equal lists are of one *kind*.

One group without GPUs, the *filler*, is left out of the vectors: its tasks change no score, so that each
option just tells how many of them fit beside it, and a state that they are seated *at least* so often.

Times below are for H hosts, S states (vectors of tasks x fillers), O options of a host.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topmast.jit import inner, kernel

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Bools = NDArray[np.bool_]

MILLI = 1000
NOWHERE = -1
INFINITE = np.inf
EPSILON = 1e-9
"""A plan is better than another by more than this: sums in another order round differently."""
PACKING_NODES = 20_000
"""Steps of the search for a packing of shares of several sizes into one host; then it counts as none."""


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


class Options(NamedTuple):
    """The options of all kinds of hosts, one kind after the other."""

    state: I64
    """The vector of tasks, as a number of a state."""
    fill: I64
    """Fillers that fit beside them."""
    cost: F64
    mask: I64
    """The victims that go for it: see `guises.py`."""


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


@inner
def nowhere(size: int) -> I64:
    """So many times NOWHERE."""
    made = np.empty(size, np.int64)
    for i in range(size):
        made[i] = NOWHERE
    return made


@inner
def infinite(size: int) -> F64:
    """So many times INFINITE."""
    made = np.empty(size, np.float64)
    for i in range(size):
        made[i] = INFINITE
    return made


# --- one host -------------------------------------------------------------------------------------------


@kernel
def packs(items: I64, count: int, bins: I64, opened: int, where: I64) -> bool:
    """Whether shares (``items``, largest first) fit into ``bins`` and so many whole GPUs.

    Backtracking, equal shares and equally full bins being interchangeable. Writes the bin of each
    to ``where``; bins beyond those given are the opened GPUs. At most PACKING_NODES steps.
    """
    total = bins.shape[0] + opened
    free = np.empty(total, np.int64)
    for k in range(total):
        free[k] = bins[k] if k < bins.shape[0] else MILLI
    for i in range(count):
        where[i] = NOWHERE
    at = 0
    for _ in range(PACKING_NODES):
        if at == count:
            return True
        least = where[at - 1] if at > 0 and items[at] == items[at - 1] else 0
        start = least
        if where[at] != NOWHERE:
            free[where[at]] += items[at]
            start = where[at] + 1
        found = NOWHERE
        for k in range(start, total):
            if free[k] < items[at]:
                continue
            tried = False
            for earlier in range(least, k):
                tried = tried or free[earlier] == free[k]
            if not tried:
                found = k
                break
        where[at] = found
        if found != NOWHERE:
            free[found] -= items[at]
            at += 1
        else:
            at -= 1
            if at < 0:
                return False
    return False


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
def fewest_opened(items: I64, count: int, bins: I64, whole: int) -> int:
    """How few of ``whole`` free GPUs have to be given out in shares; more than those if none will do.

    Shares of one size: O(bins). Several sizes: by trying.
    """
    if items[0] == items[count - 1]:
        fitting = 0
        for i in range(bins.shape[0]):
            fitting += bins[i] // items[0]
        each = MILLI // items[0]
        needed: int = max(0, (count - fitting + each - 1) // each)
        return needed
    where = np.empty(count, np.int64)
    for opened in range(min(whole, count) + 1):
        if packs(items, count, bins, opened, where):
            return opened
    return whole + 1


@kernel
def best_opening(
    g: Gang, items: I64, count: int, bins: I64, whole: int, taken: int
) -> tuple[float, int]:
    """The least change in stranded GPUs when a host gives ``taken`` whole GPUs and some shares.

    Also how many more of its ``whole`` free GPUs are opened for the shares: as few as will do, or more if
    that strands less. Infinite if they do not fit.
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
def price(
    g: Gang, choice: int, whole: int, bins: I64, cpus: int, memory: int, tasks: I64, items: I64
) -> tuple[float, int]:
    """The cost of a vector of tasks on a host, and how many fillers fit beside it; infinite if none does."""
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
    change, _ = best_opening(g, items, count, bins, whole, taken)
    if change == INFINITE:
        return INFINITE, 0
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
    whole: int,
    bins: I64,
    cpus: int,
    memory: int,
    found: Options,
) -> int:
    """Write every vector of tasks that fits on a host to ``found``; returns how many. O(O * G).

    What fits also fits with a task less, so that a group is counted up until the vector does not fit.
    """
    groups = g.tasks.shape[0] - 1
    tasks = np.zeros(groups, np.int64)
    items = np.empty(g.total, np.int64)
    listed = 0
    state = 0
    cost, fill = 0.0, price(g, choice, whole, bins, cpus, memory, tasks, items)[1]
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
                cost, fill = price(g, choice, whole, bins, cpus, memory, tasks, items)
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


# --- kinds of hosts -----------------------------------------------------------------------------------------


@inner
def new_options(size: int) -> Options:
    """Room for so many options."""
    return Options(
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.float64),
        np.zeros(size, np.int64),
    )


@inner
def append(store: Options, end: int, found: Options, count: int) -> Options:
    """Copy ``count`` options behind the first ``end`` of the store, which grows if need be."""
    size = store.state.shape[0]
    if end + count > size:
        while size < end + count:
            size *= 2
        bigger = new_options(size)
        _copy(store, end, bigger, 0)
        store = bigger
    _copy(found, count, store, end)
    return store


@inner
def _copy(source: Options, count: int, target: Options, start: int) -> None:
    for i in range(count):
        target.state[start + i] = source.state[i]
        target.fill[start + i] = source.fill[i]
        target.cost[start + i] = source.cost[i]
        target.mask[start + i] = source.mask[i]


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
    """What tells hosts apart before their options are listed; a host like an earlier one is not listed."""

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
def _first_like(looks: _Looks, offset: I64, right: Bools, host: int) -> int:
    """The first host noted that looks like this one, which may be itself. O(slots + G)."""
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
        shares = g.shares[choice, 0] != NOWHERE
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
                like = _first_like(looks, h.offset, right, host)
                if like != host:
                    of_host[choice, host] = of_host[choice, like]
                    continue
                cpus, memory = looks.cpus[host], looks.memory[host]
                listed = list_vectors(g, choice, host, whole, bins[:parts], cpus, memory, found)
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


# --- the hosts of a domain ---------------------------------------------------------------------------------


@inner
def useful_hosts(g: Gang, kinds: Kinds, choice: int, hosts: I64, looked: I64) -> I64:
    """Those that may take something, of a kind no more than there are tasks. ``looked`` (K): zeros."""
    useful = np.empty(hosts.shape[0], np.int64)
    count = 0
    for i in range(hosts.shape[0]):
        kind = kinds.of_host[choice, hosts[i]]
        if kind != NOWHERE and looked[kind] < g.total:
            looked[kind] += 1
            useful[count] = hosts[i]
            count += 1
    for i in range(count):
        looked[kinds.of_host[choice, useful[i]]] = 0
    return useful[:count]


@inner
def bound(g: Gang, kinds: Kinds, choice: int, hosts: I64) -> float:
    """A cost that no seating of the gang on ``hosts`` is below; infinite if it has no room. O(hosts * G)."""
    groups = g.tasks.shape[0]
    room = np.zeros(groups, np.int64)
    rate = INFINITE
    for i in range(hosts.shape[0]):
        kind = kinds.of_host[choice, hosts[i]]
        if kind != NOWHERE:
            rate = min(rate, kinds.rate[kind])
            for group in range(groups):
                room[group] += kinds.most[kind, group]
    milli = 0
    for group in range(groups):
        if room[group] < g.tasks[group]:
            return INFINITE
        milli += g.tasks[group] * g.milli[choice, group]
    return rate * milli - EPSILON if milli > 0 else 0.0


@inner
def _relax(g: Gang, o: Options, i: int, old: F64, new: F64) -> None:
    """Let a host take option ``i``: better a state of ``new`` by one of ``old``. O(S)."""
    step, fill, cost = o.state[i], o.fill[i], o.cost[i]
    width = g.tasks[-1] + 1
    groups = g.stride.shape[0]
    for state in range(g.vectors.shape[0] - step):
        if old[state * width] == INFINITE:
            continue  # and so are those with more fillers
        fits = True
        for group in range(groups):
            if g.vectors[state, group] + g.vectors[step, group] > g.tasks[group]:
                fits = False
        if not fits:
            continue
        source = old[state * width : state * width + width]
        target = new[(state + step) * width : (state + step) * width + width]
        for j in range(min(fill, width)):
            target[j] = min(target[j], source[0] + cost)
        for j in range(fill, width):
            target[j] = min(target[j], source[j - fill] + cost)


@inner
def _relax_noting(
    g: Gang, o: Options, i: int, number: int, old: F64, new: F64, chose: NDArray[np.int16]
) -> None:
    """`_relax`, with the option's number noted where it was the better one."""
    step, fill, cost = o.state[i], o.fill[i], o.cost[i]
    width = g.tasks[-1] + 1
    groups = g.stride.shape[0]
    for state in range(g.vectors.shape[0] - step):
        if old[state * width] == INFINITE:
            continue
        fits = True
        for group in range(groups):
            if g.vectors[state, group] + g.vectors[step, group] > g.tasks[group]:
                fits = False
        if not fits:
            continue
        for j in range(width):
            changed = old[state * width + max(0, j - fill)] + cost
            at = (state + step) * width + j
            if changed < new[at] - EPSILON * 1e-3:
                new[at] = changed
                chose[at] = number


@inner
def least_cost(g: Gang, kinds: Kinds, choice: int, hosts: I64) -> float:
    """The least cost of the gang on ``hosts``, infinite if it does not fit. O(hosts * O * S)."""
    size = g.vectors.shape[0] * (g.tasks[-1] + 1)
    old, new = infinite(size), infinite(size)
    old[0], new[0] = 0.0, 0.0
    for n in range(hosts.shape[0]):
        kind = kinds.of_host[choice, hosts[n]]
        for i in range(kinds.start[kind], kinds.start[kind + 1]):
            _relax(g, kinds.options, i, old, new)
        for i in range(size):
            old[i] = new[i]
    least: float = old[size - 1]
    return least


@kernel
def seat(g: Gang, kinds: Kinds, choice: int, hosts: I64, picked: I64) -> float:
    """`least_cost`, and which option each host takes (NOWHERE for none). Ties go to the first hosts."""
    width = g.tasks[-1] + 1
    size = g.vectors.shape[0] * width
    old, new = infinite(size), infinite(size)
    old[0], new[0] = 0.0, 0.0
    chose = np.empty((hosts.shape[0], size), np.int16)
    for n in range(hosts.shape[0]):
        kind = kinds.of_host[choice, hosts[n]]
        start = kinds.start[kind]
        for i in range(size):
            chose[n, i] = NOWHERE
        for i in range(start, kinds.start[kind + 1]):
            _relax_noting(g, kinds.options, i, i - start, old, new, chose[n])
        for i in range(size):
            old[i] = new[i]
    for n in range(hosts.shape[0]):
        picked[n] = NOWHERE
    if old[size - 1] == INFINITE:
        return INFINITE
    state, fill = g.vectors.shape[0] - 1, width - 1
    for n in range(hosts.shape[0] - 1, -1, -1):
        number = chose[n, state * width + fill]
        if number != NOWHERE:
            i = kinds.start[kinds.of_host[choice, hosts[n]]] + number
            picked[n] = i
            state -= kinds.options.state[i]
            fill = max(0, fill - kinds.options.fill[i])
    least: float = old[size - 1]
    return least


# --- the region -----------------------------------------------------------------------------------------------


@inner
def members(domain: I64) -> tuple[I64, I64]:
    """The hosts of one level by domain: those of d are order[start[d]:start[d + 1]]. O(H)."""
    total = domain.shape[0]
    start = np.zeros(total + 2, np.int64)
    for host in range(total):
        start[domain[host] + 1] += 1
    for d in range(total + 1):
        start[d + 1] += start[d]
    order = np.empty(total, np.int64)
    next_at = np.empty(total, np.int64)
    for d in range(total):
        next_at[d] = start[d]
    for host in range(total):
        order[next_at[domain[host]]] = host
        next_at[domain[host]] += 1
    return order, start


@inner
def _one_host(kinds: Kinds, choice: int, first: int, last: int) -> tuple[float, int]:
    """The least cost of the whole gang on one host, and the first such host. O(hosts)."""
    best, at = INFINITE, NOWHERE
    for host in range(first, last):
        kind = kinds.of_host[choice, host]
        if kind != NOWHERE and kinds.alone[kind] < best - EPSILON:
            best, at = kinds.alone[kind], host
    return best, at


@inner
def _best_domain(
    g: Gang, kinds: Kinds, places: Places, cluster: int, choice: int, price: float, best: float
) -> tuple[float, int, int]:
    """The best of a cluster's domains above hosts: score below ``best``, level, number."""
    at_level, at_domain = NOWHERE, NOWHERE
    first, last = places.first[cluster], places.last[cluster]
    looked = np.zeros(kinds.rate.shape[0], np.int64)
    for level in range(1, 5):
        start = price + g.level_cost[level]
        if start == INFINITE:
            break
        order, starts = members(places.domain[level, first:last] - places.domain[level, first])
        for number in range(last - first):
            hosts = order[starts[number] : starts[number + 1]] + first
            if hosts.shape[0] == 0:
                break
            if start + bound(g, kinds, choice, hosts) >= best - EPSILON:
                continue
            hosts = useful_hosts(g, kinds, choice, hosts, looked)
            cost = least_cost(g, kinds, choice, hosts)
            if start + cost < best - EPSILON:
                best, at_level, at_domain = start + cost, level, number
    return best, at_level, at_domain


@kernel
def best_plan(g: Gang, kinds: Kinds, places: Places) -> tuple[float, int, int, I64, I64]:
    """The best place for a gang: score, cluster, choice, hosts, the option that each takes.

    Looks at every cluster, choice, level and domain, but for those that a bound rules out. Ties go to
    the first cluster, choice, level, domain, hosts. O(choices * H * levels * O * S).
    """
    best = INFINITE
    at_cluster, at_choice, at_level, at_place = NOWHERE, NOWHERE, NOWHERE, NOWHERE
    for cluster in range(places.first.shape[0]):
        first, last = places.first[cluster], places.last[cluster]
        for choice in range(g.choice_cost.shape[0]):
            price = places.cost[cluster] + g.choice_cost[choice]
            least = bound(g, kinds, choice, places.hosts[first:last])
            if price + g.level_cost[0] + least >= best - EPSILON:
                continue
            cost, host = _one_host(kinds, choice, first, last)
            score = price + g.level_cost[0] + cost
            if score < best - EPSILON:
                best, at_cluster, at_choice = score, cluster, choice
                at_level, at_place = 0, host
            if g.total > 1:
                score, level, place = _best_domain(g, kinds, places, cluster, choice, price, best)
                if level != NOWHERE:
                    best, at_cluster, at_choice = score, cluster, choice
                    at_level, at_place = level, place
    if at_cluster == NOWHERE:
        return INFINITE, NOWHERE, NOWHERE, np.zeros(0, np.int64), np.zeros(0, np.int64)
    hosts = hosts_of(g, kinds, places, at_cluster, at_choice, at_level, at_place)
    picked = np.empty(hosts.shape[0], np.int64)
    seat(g, kinds, at_choice, hosts, picked)
    return best, at_cluster, at_choice, hosts, picked


@kernel
def costs_at(
    g: Gang, kinds: Kinds, places: Places, level: int, limit: float
) -> tuple[F64, I64, I64, I64]:
    """What the gang costs at least in each domain of a level where that is less than ``limit``.

    Score, cluster, choice, and place (as for `hosts_of`). O(choices * H * O * S).
    """
    choices, total = kinds.of_host.shape
    found = 0
    score = np.empty(choices * total, np.float64)
    cluster_of = np.empty(choices * total, np.int64)
    choice_of = np.empty(choices * total, np.int64)
    place_of = np.empty(choices * total, np.int64)
    looked = np.zeros(kinds.rate.shape[0], np.int64)
    for cluster in range(places.first.shape[0]):
        first, last = places.first[cluster], places.last[cluster]
        order, starts = members(places.domain[level, first:last] - places.domain[level, first])
        for choice in range(choices):
            start = places.cost[cluster] + g.choice_cost[choice] + g.level_cost[level]
            if start == INFINITE:
                continue
            for number in range(last - first):
                hosts = order[starts[number] : starts[number + 1]] + first
                if hosts.shape[0] == 0:
                    break
                if start + bound(g, kinds, choice, hosts) >= limit - EPSILON:
                    continue
                if level == 0:
                    kind = kinds.of_host[choice, hosts[0]]
                    cost = kinds.alone[kind]
                else:
                    hosts = useful_hosts(g, kinds, choice, hosts, looked)
                    cost = least_cost(g, kinds, choice, hosts)
                if start + cost < limit - EPSILON:
                    score[found], cluster_of[found] = start + cost, cluster
                    choice_of[found] = choice
                    place_of[found] = hosts[0] if level == 0 else number
                    found += 1
    return score[:found], cluster_of[:found], choice_of[:found], place_of[:found]


@inner
def hosts_of(
    g: Gang, kinds: Kinds, places: Places, cluster: int, choice: int, level: int, place: int
) -> I64:
    """The useful hosts of a domain, numbered within its cluster; at host level, of a host."""
    if level == 0:
        return places.hosts[place : place + 1]
    first, last = places.first[cluster], places.last[cluster]
    order, starts = members(places.domain[level, first:last] - places.domain[level, first])
    hosts = order[starts[place] : starts[place + 1]] + first
    return useful_hosts(g, kinds, choice, hosts, np.zeros(kinds.rate.shape[0], np.int64))
