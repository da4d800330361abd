"""Compiled kernels for gangs that need room made: what a host can take for which victims.

The victims on a host are tried in every combination. Each makes a *variant* of the host, as it
would be without them; `search.host_options` lists its options like any host's. Put together, with
the price of the victims, they are the options of the host.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topmast.fast.region.inventory.arrays import F64, I64
from topmast.fast.region.preemption.branching import PREEMPT, UNDECIDED
from topmast.fast.region.search.host_options import Bools, Hosts, Kinds
from topmast.fast.region.search.kernels import EPSILON, NOWHERE
from topmast.fast.region.search.knapsack import Options, new_options
from topmast.jit import inner, kernel

EXACT_VICTIMS = 10
"""How many on a host are tried in every combination; further ones after all of these, in order."""
MOST_VICTIMS = 60
"""More on a host are not looked at."""
MOST_OPTIONS = 30_000
"""More of a host are not looked at."""


class Held(NamedTuple):
    """What the possible victims hold: an entry for each host of each of them, host after host."""

    start: I64
    """(H + 1) host h has the entries start[h]:start[h + 1]."""
    attempt: I64
    """(N) the attempt of each entry."""
    cpus: I64
    memory: I64
    slot_start: I64
    """(N + 1)"""
    slot: I64
    """Numbers in `Hosts.free_milli`."""
    milli: I64


class Prices(NamedTuple):
    """What it costs to stop the attempts, and what is settled of them."""

    settled: I64
    """(attempts) UNDECIDED, PREEMPT: it goes in any case, and costs nothing more; or KEEP."""
    price: F64
    """(N) what a host is charged for an entry: a share, if the attempt is on other hosts too."""
    own: Bools
    """(N) whether the attempt is on this host alone."""


class HostVariants(NamedTuple):
    """The hosts looked at with each combination of victims gone."""

    hosts: Hosts
    real: I64
    """(variants) the number of the host."""
    mask: I64
    """(variants) bit i: the i-th entry of the host in ``entry`` is gone."""
    price: F64
    start: I64
    """(hosts looked at + 1) the variants of each."""
    entry: I64
    """The entries that are open, host by host."""
    entry_start: I64


@inner
def _sort_entries(held: Held, prices: Prices, entry: I64, low: int, high: int) -> None:
    """Sort the entries of a host by price for what they hold. O(n^2)."""
    for i in range(low + 1, high):
        moved = entry[i]
        key = _dearness(held, prices, moved)
        at = i
        while at > low and _dearness(held, prices, entry[at - 1]) > key:
            entry[at] = entry[at - 1]
            at -= 1
        entry[at] = moved


@inner
def _dearness(held: Held, prices: Prices, entry: int) -> float:
    milli = 1
    for i in range(held.slot_start[entry], held.slot_start[entry + 1]):
        milli += held.milli[i]
    dearness: float = prices.price[entry] / milli
    return dearness


@inner
def _combinations(victims: int) -> int:
    """How many variants a host with so many victims has."""
    exact = min(victims, EXACT_VICTIMS)
    return (1 << exact) + victims - exact


@kernel
def variants_of(h: Hosts, held: Held, prices: Prices, hosts: I64) -> HostVariants:
    """The ``hosts`` with each combination of their open victims gone. O(variants * slots)."""
    looked = hosts.shape[0]
    entry = np.empty(held.attempt.shape[0], np.int64)
    entry_start = np.zeros(looked + 1, np.int64)
    start = np.zeros(looked + 1, np.int64)
    slots = 0
    for n in range(looked):
        at = entry_start[n]
        for e in range(held.start[hosts[n]], held.start[hosts[n] + 1]):
            if prices.settled[held.attempt[e]] == UNDECIDED and at < entry_start[n] + MOST_VICTIMS:
                entry[at] = e
                at += 1
        entry_start[n + 1] = at
        if at - entry_start[n] > EXACT_VICTIMS:
            _sort_entries(held, prices, entry, entry_start[n], at)
        made = _combinations(at - entry_start[n])
        start[n + 1] = start[n] + made
        slots += made * (h.offset[hosts[n] + 1] - h.offset[hosts[n]])
    total = start[looked]
    free = Hosts(
        np.zeros(slots, np.int64),
        np.zeros(total + 1, np.int64),
        np.zeros(total, np.int64),
        np.zeros(total, np.int64),
        np.ones(total, np.bool_),
        np.zeros(total, np.int64),  # unread: shapes do not apply to plans with victims
    )
    variants = HostVariants(
        free, np.zeros(total, np.int64), np.zeros(total, np.int64), np.zeros(total), start, entry,
        entry_start,
    )  # fmt: skip
    for n in range(looked):
        for i in range(start[n], start[n + 1]):
            _make(h, held, prices, hosts[n], variants, n, i)
    return variants


@inner
def _make(
    h: Hosts, held: Held, prices: Prices, host: int, variants: HostVariants, n: int, variant: int
) -> None:
    """Write one variant of a host. O(slots + entries)."""
    free = variants.hosts
    slots = h.offset[host + 1] - h.offset[host]
    base = free.offset[variant]
    free.offset[variant + 1] = base + slots
    for i in range(slots):
        free.free_milli[base + i] = h.free_milli[h.offset[host] + i]
    free.cpus[variant] = h.cpus[host]
    free.memory[variant] = h.memory[host]
    free.usable[variant] = h.usable[host]
    number = variant - variants.start[n]
    low, high = variants.entry_start[n], variants.entry_start[n + 1]
    exact = min(high - low, EXACT_VICTIMS)
    mask = number if number < 1 << exact else (1 << (number - (1 << exact) + exact + 1)) - 1
    variants.real[variant] = host
    variants.mask[variant] = mask
    for i in range(high - low):
        if mask >> i & 1:
            variants.price[variant] += prices.price[variants.entry[low + i]]
            _give_back(h, held, host, variants.entry[low + i], free, variant)
    for e in range(held.start[host], held.start[host + 1]):
        if prices.settled[held.attempt[e]] == PREEMPT:
            _give_back(h, held, host, e, free, variant)


@inner
def _give_back(h: Hosts, held: Held, host: int, entry: int, free: Hosts, variant: int) -> None:
    for i in range(held.slot_start[entry], held.slot_start[entry + 1]):
        slot = held.slot[i] - h.offset[host] + free.offset[variant]
        free.free_milli[slot] += held.milli[i]
    free.cpus[variant] += held.cpus[entry]
    free.memory[variant] += held.memory[entry]


@inner
def _has(kinds: Kinds, kind: int, state: int, fill: int) -> bool:
    """Whether a host of a kind takes a vector with so many fillers. O(log options)."""
    if kind == NOWHERE:
        return False
    low, high = kinds.start[kind], kinds.start[kind + 1]
    while low < high:
        middle = (low + high) // 2
        if kinds.options.state[middle] < state:
            low = middle + 1
        else:
            high = middle
    found: bool = (
        low < kinds.start[kind + 1]
        and kinds.options.state[low] == state
        and kinds.options.fill[low] >= fill
    )
    return found


@inner
def _needless(
    variants: HostVariants, kinds: Kinds, own: Bools, choice: int, n: int, variant: int, option: int
) -> bool:
    """Whether a victim on this host alone could stay. O(victims * log options)."""
    o = kinds.options
    low = variants.entry_start[n]
    exact = min(variants.entry_start[n + 1] - low, EXACT_VICTIMS)
    if variant - variants.start[n] >= 1 << exact:
        kind = kinds.of_host[choice, variant - 1]
        return _has(kinds, kind, o.state[option], o.fill[option])
    for i in range(exact):
        if variants.mask[variant] >> i & 1 and own[variants.entry[low + i]]:
            kind = kinds.of_host[choice, variant - (1 << i)]
            if _has(kinds, kind, o.state[option], o.fill[option]):
                return True
    return False


@kernel
def put_together(
    variants: HostVariants, kinds: Kinds, own: Bools, hosts: I64, states: int, total: int
) -> tuple[Options, I64, I64]:
    """The options of the ``hosts`` in all variants; where each host's begin; each host's kind.

    Of options with equal vectors those stay that no cheaper one with as many fillers beats. A
    victim on this host alone is in none that can spare it. O(variants * options * victims).
    """
    choices = kinds.of_host.shape[0]
    o = _room(variants, kinds)
    after = np.empty(o.state.shape[0], np.int64)
    first = np.empty(states, np.int64)
    for state in range(states):
        first[state] = NOWHERE
    of_host = np.empty((choices, total), np.int64)
    start = np.zeros(choices * hosts.shape[0] + 1, np.int64)
    made = 0
    for choice in range(choices):
        for host in range(total):
            of_host[choice, host] = NOWHERE
        for n in range(hosts.shape[0]):
            end = start[made]
            for variant in range(variants.start[n], variants.start[n + 1]):
                end = _add(variants, kinds, own, choice, n, variant, o, first, after, end)
            end = _tidy(o, first, start[made], end)
            if end > start[made]:
                of_host[choice, hosts[n]] = made
                start[made + 1] = end
                made += 1
    return o, start[: made + 1], of_host


@inner
def _room(variants: HostVariants, kinds: Kinds) -> Options:
    """Room for the options of all variants."""
    size = 0
    for choice in range(kinds.of_host.shape[0]):
        for variant in range(variants.real.shape[0]):
            kind = kinds.of_host[choice, variant]
            if kind != NOWHERE:
                size += kinds.start[kind + 1] - kinds.start[kind]
    return new_options(size)


@inner
def _add(
    variants: HostVariants, kinds: Kinds, own: Bools, choice: int, n: int, variant: int,
    o: Options, first: I64, after: I64, end: int,
) -> int:  # fmt: skip
    """Add the options of a variant that are as good as none of its host; returns where they end."""
    kind = kinds.of_host[choice, variant]
    if kind == NOWHERE:
        return end
    for i in range(kinds.start[kind], kinds.start[kind + 1]):
        cost = kinds.options.cost[i] + variants.price[variant]
        state, fill = kinds.options.state[i], kinds.options.fill[i]
        if _is_beaten(o, first, after, state, fill, cost):
            continue
        if variants.mask[variant] and _needless(variants, kinds, own, choice, n, variant, i):
            continue
        _put(o, first, after, end, state, fill, cost)
        o.mask[end] = variants.mask[variant]
        end += 1
    return end


@inner
def _is_beaten(o: Options, first: I64, after: I64, state: int, fill: int, cost: float) -> bool:
    """Whether an option of the same vector is as good. ``first`` (states), ``after`` link those."""
    at = first[state]
    while at != NOWHERE:
        if o.fill[at] >= fill and o.cost[at] <= cost + EPSILON:
            return True
        at = after[at]
    return False


@inner
def _put(o: Options, first: I64, after: I64, end: int, state: int, fill: int, cost: float) -> None:
    """Write an option at ``end`` and void those that it beats."""
    before, at = NOWHERE, first[state]
    while at != NOWHERE:
        if o.fill[at] <= fill and o.cost[at] >= cost - EPSILON:
            o.fill[at] = NOWHERE
            if before == NOWHERE:
                first[state] = after[at]
            else:
                after[before] = after[at]
        else:
            before = at
        at = after[at]
    o.state[end], o.fill[end], o.cost[end] = state, fill, cost
    after[end] = first[state]
    first[state] = end


@inner
def _tidy(o: Options, first: I64, low: int, end: int) -> int:
    """Close the gaps that void options left; at most MOST_OPTIONS stay."""
    kept = low
    for i in range(low, end):
        first[o.state[i]] = NOWHERE
        if o.fill[i] != NOWHERE and kept < low + MOST_OPTIONS:
            o.state[kept], o.fill[kept] = o.state[i], o.fill[i]
            o.cost[kept], o.mask[kept] = o.cost[i], o.mask[i]
            kept += 1
    return kept
