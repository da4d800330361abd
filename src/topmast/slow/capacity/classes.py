"""The hosts of one GPU model as counts: what is alike is counted, and never told apart.

A *cell* holds the hosts of one datacenter, fault domain and number of GPUs. A *claimant* is a
cluster, or (the last of them) the shared buffer. Between which claimants a host goes costs nothing
by itself: with a count for every claimant and cell, each claimant gives up what it has too many,
the cheapest hosts first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from topmast.slow.arrays import Bools, Floats, Ints
from topmast.slow.capacity.problem import Host, Problem


class Classes(Struct, frozen=True):
    """One model. K claimants (clusters, then the buffer), E cells, D domains.

    ``total[e]`` hosts; ``have[i, k, e]``: hosts that k has, i = 0 those dear to move, i = 1 the
    others; ``move[i]``: their price; ``far[k, e]``: price of a host there; ``gpus[e]`` per host,
    ``domain[e]``; ``wanted[k]`` GPUs, at ``price[k]`` each if missing; ``survive[k]``: the worst
    domain does not count. ``hosts[k][e]``: indices into the problem's hosts, dear ones first.
    """

    model: str
    total: Ints
    have: Ints
    move: tuple[float, float]
    far: Floats
    gpus: Ints
    domain: Ints
    wanted: Floats
    price: Floats
    survive: Bools
    members: dict[tuple[int, int, int], list[int]]

    @property
    def unit_gpus(self) -> int:
        """The GPUs that all hosts are multiples of."""
        return math.gcd(*(int(each) for each in self.gpus)) if len(self.gpus) else 1

    @property
    def is_even(self) -> bool:
        """Whether all hosts have equally many GPUs, and each domain is one cell."""
        alike = len(set(self.gpus.tolist())) <= 1
        return alike and len(set(self.domain.tolist())) == len(self.domain)


def classes_of(problem: Problem) -> list[Classes]:
    """The models by name. O(hosts + models clusters cells). Hosts without GPUs are left out: they
    stay.
    """
    by_model: dict[str, list[int]] = {}
    for index, host in enumerate(problem.hosts):
        if host.gpus > 0:
            by_model.setdefault(host.model, []).append(index)
    wanted = {model for each in problem.clusters for model, gpus in each.capacity.items() if gpus}
    return [_of_model(problem, m, by_model.get(m, [])) for m in sorted(wanted.union(by_model))]


def _of_model(problem: Problem, model: str, members: Sequence[int]) -> Classes:
    prices, clusters = problem.prices, problem.clusters
    hosts = [problem.hosts[i] for i in members]
    cells = sorted({_cell(host) for host in hosts})
    number = {cell: e for e, cell in enumerate(cells)}
    domains = sorted({cell[1] for cell in cells})
    claimant: dict[str | None, int] = {each.name: k for k, each in enumerate(clusters)}
    claimant[None] = len(clusters)
    dear = prices.move_in_use >= prices.move_idle
    have = np.zeros((2, len(clusters) + 1, len(cells)), np.int64)
    grouped: dict[tuple[int, int, int], list[int]] = {}
    for index, host in zip(members, hosts, strict=True):
        key = (0 if host.in_use == dear else 1, claimant[host.cluster], number[_cell(host)])
        have[key] += 1
        grouped.setdefault(key, []).append(index)
    far = np.zeros(have.shape[1:])
    for k, cluster in enumerate(clusters):
        if cluster.datacenter is not None:
            away = [prices.far_gpu * cell[2] * (cell[0] != cluster.datacenter) for cell in cells]
            far[k] = away
    buffer = math.ceil(problem.buffer_fraction * sum(host.gpus for host in hosts))
    moves = sorted((prices.move_in_use, prices.move_idle), reverse=True)
    return Classes(
        model=model, total=have.sum(axis=(0, 1)), have=have, move=(moves[0], moves[1]), far=far,
        gpus=np.array([cell[2] for cell in cells], np.int64),
        domain=np.array([domains.index(cell[1]) for cell in cells], np.int64),
        wanted=np.array([*(each.capacity.get(model, 0.0) for each in clusters), float(buffer)]),
        price=np.array([*(prices.shortfall_gpu for _ in clusters), prices.buffer_gpu]),
        survive=np.array([*(each.survive_domain for each in clusters), False]),
        members=grouped,
    )  # fmt: skip


def _cell(host: Host) -> tuple[str, str, int]:
    return host.datacenter, host.domain, host.gpus


def cost_of(classes: Classes, count: Ints) -> float:
    """What ``count[k, e]`` hosts for every claimant cost, all terms together. O(K E)."""
    return float(costs_of(classes, count).sum())


def costs_of(classes: Classes, count: Ints) -> Floats:
    """What each claimant's hosts [K, E] cost. O(K E)."""
    given = np.maximum(0, classes.have.sum(axis=0) - count)
    cheap = np.minimum(given, classes.have[1])
    moves = classes.move[1] * cheap + classes.move[0] * (given - cheap)
    short = np.maximum(0.0, classes.wanted - surviving(classes, count))
    costs: Floats = (moves + classes.far * count).sum(axis=1) + classes.price * short
    return costs


def surviving(classes: Classes, count: Ints) -> Ints:
    """The GPUs of every claimant that count: all, or those beside its fullest domain. O(K E)."""
    gpus = count * classes.gpus
    worst = np.zeros(len(count), np.int64)
    for domain in range(int(classes.domain.max()) + 1 if len(classes.domain) else 0):
        worst = np.maximum(worst, gpus[:, classes.domain == domain].sum(axis=1))
    rest: Ints = gpus.sum(axis=1) - np.where(classes.survive, worst, 0)
    return rest


class ModelSolution(Struct, frozen=True):
    """The hosts of every claimant and cell, and a lower bound of what they cost."""

    count: Ints
    bound: float
