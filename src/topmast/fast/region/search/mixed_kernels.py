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
from topmast.fast.region.search.knapsack import States, least_cost, seat_at_least
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


@inner
def _least_cost(g: Gang, kinds: Kinds, choice: int, hosts: I64) -> float:
    """The least cost of the gang on ``hosts``, infinite if it does not fit (`knapsack`)."""
    first, last = _spans(kinds, choice, hosts)
    return least_cost(_states(g), kinds.options, first, last)


@kernel
def seat(g: Gang, kinds: Kinds, choice: int, hosts: I64, picked: I64) -> float:
    """`_least_cost`, and the option of each host (NOWHERE for none). Ties go to the first hosts."""
    first, last = _spans(kinds, choice, hosts)
    return seat_at_least(_states(g), kinds.options, first, last, picked)


# --- the region -----------------------------------------------------------------------------------


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
            cost = _least_cost(g, kinds, choice, hosts)
            if start + cost < best - EPSILON:
                best, at_level, at_domain = start + cost, level, number
    return best, at_level, at_domain


@kernel
def best_plan(g: Gang, kinds: Kinds, places: Places) -> tuple[float, int, int, I64, I64]:
    """The best place for a gang: score, cluster, choice, hosts, the option that each takes.

    Looks at every cluster, choice, level and domain, but for those that a bound rules out. Ties go
    to the first cluster, choice, level, domain, hosts. O(choices * H * levels * O * S).
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
                    cost = _least_cost(g, kinds, choice, hosts)
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
