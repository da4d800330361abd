"""Compiled kernels for mixed gangs: several groups, shares of GPUs, tasks without GPUs.

`host_options` lists what hosts can take, and the `knapsack` over the hosts of a domain seats the
gang; here are the domains: every cluster, choice and level, but for those that a bound rules out.

Times below are for H hosts, S states (vectors of tasks x fillers), O options of a host.
"""

from __future__ import annotations

import numpy as np

from topmast.fast.region.inventory.arrays import F64, I64
from topmast.fast.region.search.host_options import Gang, Kinds, Places
from topmast.fast.region.search.kernels import EPSILON, INFINITE, NOWHERE
from topmast.fast.region.search.knapsack import States, seat_at_least
from topmast.jit import inner, kernel

# --- the hosts of a domain ------------------------------------------------------------------------


@inner
def useful_hosts(g: Gang, kinds: Kinds, choice: int, hosts: I64, looked: I64) -> I64:
    """Hosts that may take something, of a kind at most as many as tasks. ``looked`` (K): zeros."""
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
    """A cost that no seating on ``hosts`` is below; infinite if none has room. O(hosts * G)."""
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
def _states(g: Gang) -> States:
    return States(g.tasks, g.stride, g.vectors, EPSILON * 1e-3)


@inner
def _spans(kinds: Kinds, choice: int, hosts: I64) -> tuple[I64, I64]:
    """Where the options of each host begin and end."""
    first = np.empty(hosts.shape[0], np.int64)
    last = np.empty(hosts.shape[0], np.int64)
    for n in range(hosts.shape[0]):
        kind = kinds.of_host[choice, hosts[n]]
        first[n], last[n] = kinds.start[kind], kinds.start[kind + 1]
    return first, last


@kernel
def seat(g: Gang, kinds: Kinds, choice: int, hosts: I64, picked: I64) -> float:
    """The least cost of the gang on ``hosts``, and what each of them takes (`knapsack`)."""
    first, last = _spans(kinds, choice, hosts)
    return seat_at_least(_states(g), kinds.options, first, last, picked)


# --- the region -----------------------------------------------------------------------------------


@inner
def members(places: Places, cluster: int, level: int) -> tuple[I64, I64]:
    """A cluster's hosts by domain of a level: those of d are order[start[d]:start[d + 1]]. O(H)."""
    first, last = places.first[cluster], places.last[cluster]
    domain = places.domain[level, first:last] - places.domain[level, first]
    total = last - first
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
        order[next_at[domain[host]]] = first + host
        next_at[domain[host]] += 1
    return order, start


@kernel
def costs_at(
    g: Gang, kinds: Kinds, places: Places, low: int, high: int, limit: float, best_only: bool
) -> tuple[F64, I64]:
    """What the gang costs at least in each domain of the levels ``low`` to before ``high``.

    Those that cost less than ``limit``; ``best_only``: and less than all before them, so that the
    last is the best. Score (N), and cluster, choice, level, place (N x 4; as for `hosts_of`).
    O(choices * H * levels * O * S).
    """
    of_host, alone = kinds.of_host, kinds.alone
    choices, total = of_host.shape
    score = np.empty(choices * total * (high - low), np.float64)
    where = np.empty((score.shape[0], 4), np.int64)
    found = 0
    looked = np.zeros(kinds.rate.shape[0], np.int64)
    for cluster in range(places.first.shape[0]):
        first, last = places.first[cluster], places.last[cluster]
        for choice in range(choices):
            price = places.cost[cluster] + g.choice_cost[choice]
            least = bound(g, kinds, choice, places.hosts[first:last])
            for level in range(low, high):
                start = price + g.level_cost[level]
                if start + least >= limit - EPSILON:
                    break  # as it is at wider levels, which cost no less
                order, starts = members(places, cluster, level)
                for number in range(last - first):
                    at, after = starts[number], starts[number + 1]
                    if at == after:
                        break
                    if level == 0:  # without a call for each host
                        kind = of_host[choice, order[at]]
                        cost = alone[kind] if kind != NOWHERE else INFINITE
                    else:
                        hosts = order[at:after]
                        cost = _cost_in(g, kinds, choice, hosts, limit - start, looked)
                    if start + cost < limit - EPSILON:
                        score[found] = start + cost
                        where[found, 0], where[found, 1], where[found, 2] = cluster, choice, level
                        where[found, 3] = order[at] if level == 0 else number
                        found += 1
                        limit = start + cost if best_only else limit
    return score[:found], where[:found]


@inner
def _cost_in(g: Gang, kinds: Kinds, choice: int, hosts: I64, limit: float, looked: I64) -> float:
    """The least cost on the hosts of a domain; infinite if a bound tells that it is no less."""
    if bound(g, kinds, choice, hosts) >= limit - EPSILON:
        return INFINITE
    useful = useful_hosts(g, kinds, choice, hosts, looked)
    return seat(g, kinds, choice, useful, np.empty(0, np.int64))


@kernel
def best_plan(g: Gang, kinds: Kinds, places: Places) -> tuple[int, int, I64, I64]:
    """The best place for a gang: cluster, choice, hosts, the option that each takes.

    Ties go to the first cluster, choice, level, domain, hosts. O(choices * H * levels * O * S).
    """
    _, found = costs_at(g, kinds, places, 0, 5 if g.total > 1 else 1, INFINITE, True)
    if found.shape[0] == 0:
        return NOWHERE, NOWHERE, np.zeros(0, np.int64), np.zeros(0, np.int64)
    cluster, choice = found[-1, 0], found[-1, 1]
    hosts = hosts_of(g, kinds, places, cluster, choice, found[-1, 2], found[-1, 3])
    picked = np.empty(hosts.shape[0], np.int64)
    seat(g, kinds, choice, hosts, picked)
    return cluster, choice, hosts, picked


@inner
def hosts_of(
    g: Gang, kinds: Kinds, places: Places, cluster: int, choice: int, level: int, place: int
) -> I64:
    """The useful hosts of a domain, numbered within its cluster; at host level, of a host."""
    if level == 0:
        return places.hosts[place : place + 1]
    order, starts = members(places, cluster, level)
    hosts = order[starts[place] : starts[place + 1]]
    return useful_hosts(g, kinds, choice, hosts, np.zeros(kinds.rate.shape[0], np.int64))
