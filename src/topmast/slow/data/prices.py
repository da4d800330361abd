"""Prices of what is scarce, and the lower bound that they prove: the linear relaxation, solved by a
primal-dual method made for it (restarted Halpern iteration of PDHG).

The relaxation is a saddle point: replicas and shares answer prices, prices answer what is
overused. A price m >= 0 of each table that a workload reads in each region (y <= x), p of GPUs, q
of storage, CPUs, the move budget and links. Tables and workloads keep their own rules (least
replicas, shares of at most one) by projection. *Any* prices >= 0 prove a bound, so that an
unfinished solve is still a true one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct

from topmast.slow.arrays import Bools, Floats
from topmast.slow.data import prices_kernels as kernels
from topmast.slow.data.columns import Columns
from topmast.slow.data.formulation import routes_of

STEP = 0.99
ASTRAY = 0.3
CHECK = 40
"""Iterations between looks at the bound."""
NO_COPY, FREE_COPY = -1, -2


class Prices(Struct, frozen=True):
    """Prices m [items of reads, R], p [R, G], q [2 R + 1 + R R] of storage, CPUs, budget and
    links.
    """

    m: Floats
    p: Floats
    q: Floats


class Point:
    """The five arrays of an iterate: replicas x, shares y, and the prices m, p, q."""

    def __init__(self, x: Floats, y: Floats, m: Floats, p: Floats, q: Floats) -> None:
        self.arrays = (x, y, m, p, q)

    def copy(self) -> Point:
        """The same in arrays of its own."""
        return Point(*(array.copy() for array in self.arrays))

    def take(self, other: Point) -> None:
        """Become equal to another."""
        for mine, its in zip(self.arrays, other.arrays, strict=True):
            mine[...] = its


class Relaxed(Struct, frozen=True):
    """What the iteration came to: the best bound with its prices, the last point, and the weight
    that balances replicas and prices.
    """

    bound: float
    prices: Prices
    point: Point
    weight: float
    iterations: int

    @property
    def replicas(self) -> Floats:
        """How much of each replica there is, [D, R] between 0 and 1."""
        return self.point.arrays[0]

    @property
    def shares(self) -> Floats:
        """Which workload is served where, [W, R]."""
        return self.point.arrays[1]

    def astray(self, shares: Floats) -> Bools:
        """The workloads of which ``shares`` [W, R] have a good part elsewhere: [W]."""
        result: Bools = np.abs(self.shares - shares).max(axis=1, initial=0.0) > ASTRAY
        return result


class Relaxation:
    """The relaxation of one problem, to be solved from any point again and again."""

    def __init__(self, columns: Columns, byte: float | None = None) -> None:
        """``byte``: in what bytes are counted, where prices of another relaxation are to go on."""
        self.columns = columns
        self._scale(byte)
        self._arrays()
        self._steps()

    def _scale(self, byte: float | None) -> None:
        """Rows in bytes and CPUs, scaled so that a price of 1 is of the expected order."""
        columns = self.columns
        regions = columns.can.shape[1]
        mean = float(columns.size_bytes.mean()) if len(columns.size_bytes) else 1.0
        self.byte = max(1.0, mean) if byte is None else byte
        routes = routes_of(columns, np.zeros_like(columns.can), columns.can)
        route = np.where(columns.held | ~columns.can, NO_COPY, FREE_COPY)
        several = np.zeros(route.shape, bool)
        several[routes.table[routes.choices > 1], routes.target[routes.choices > 1]] = True
        one = routes.choices == 1
        row = 2 * regions + 1 + routes.source * regions + routes.target
        route[routes.table[one], routes.target[one]] = row[one]
        # A copy with a choice of several scarce links is free of their prices: a looser bound.
        route[several] = FREE_COPY
        self.route = route

    def _arrays(self) -> None:
        columns = self.columns
        size = columns.size_bytes / self.byte
        want_w, want_g = np.nonzero(columns.demand)
        start = np.zeros(len(columns.demand) + 1, np.int64)
        start[1:] = np.cumsum(np.bincount(want_w, minlength=len(columns.demand)))
        edge_of = np.argsort(columns.reads.items, kind="stable")
        budget = min(columns.budget_bytes, float(columns.size_bytes.sum()) * columns.can.shape[1])
        limits: list[Any] = [
            columns.storage_bytes,
            columns.cpus,
            [budget],
            columns.link_bytes.ravel(),
        ]
        self.limit = np.concatenate(limits)
        self.lift = np.zeros(len(columns.size_bytes))
        self.limit[: len(columns.cpus)] /= self.byte
        self.limit[2 * len(columns.cpus) :] /= self.byte
        self.size = size
        self.open = columns.can.astype(np.int8)
        self.tables = (columns.replica_cost(), self.open, columns.least, size, self.route)
        self.edges = (columns.reads.start, columns.reads.items, columns.readers.start, edge_of)
        self.works = (
            columns.loss, columns.may_serve, start, want_g.astype(np.int64),
            columns.demand[want_w, want_g], columns.needs_cpus,
        )  # fmt: skip
        self.limits = (columns.supply, columns.room, columns.price, self.limit)

    def _steps(self) -> None:
        """Diagonal steps: each row weighed by the price to expect, steps by row and column sums."""
        columns = self.columns
        reads, owners = columns.reads, columns.reads.owners()
        regions = columns.can.shape[1]
        keep = np.maximum(columns.copy_cost, 1e-12)
        edge = np.minimum(keep[reads.items], columns.loss[owners]) + 1e-9
        edge_scale = np.maximum(edge, 1e-6 * edge.max(initial=1.0))
        wanted = columns.demand.sum(axis=0)
        per_gpu = columns.loss.sum() / max(1.0, wanted.sum() + 1e-3 * columns.needs_cpus.sum())
        byte_price = 0.3 * keep.sum() / max(self.size.sum(), 1e-9)
        cpu_price = columns.loss.sum() / max(columns.needs_cpus.sum(), 1.0) * 0.3
        fresh, routed = self.route != NO_COPY, self.route >= 0
        q_scale = np.zeros(len(self.limit))
        q_sum = np.zeros(len(self.limit))
        q_sum[:regions] = (self.size[:, None] * columns.can).sum(axis=0)
        q_sum[regions : 2 * regions] = columns.needs_cpus @ columns.may_serve
        q_sum[2 * regions] = (self.size[:, None] * fresh).sum()
        d, r = np.nonzero(routed)
        np.add.at(q_sum, self.route[d, r], self.size[d])
        useful = q_sum > self.limit
        q_scale[:regions] = byte_price
        q_scale[regions : 2 * regions] = cpu_price
        q_scale[2 * regions :] = byte_price
        q_scale = np.where(useful, q_scale, 0.0)
        self.sq = np.where(useful, STEP * q_scale / np.maximum(q_sum, 1e-12), 0.0)
        p_sum = np.einsum("wr,wg->rg", columns.may_serve.astype(float), columns.demand)
        self.sp = STEP * per_gpu / np.maximum(p_sum, 1e-9)
        self.sm = STEP * edge_scale / 2.0
        q_table = q_scale[:regions].max() + q_scale[2 * regions :].max() * 2.0
        tx = self.size * q_table
        np.add.at(tx, reads.items, edge_scale)
        ty = per_gpu * columns.demand.sum(axis=1) + columns.needs_cpus * cpu_price
        np.add.at(ty, owners, edge_scale)
        self.tx, self.ty = STEP / np.maximum(tx, 1e-12), STEP / np.maximum(ty, 1e-12)
        self.steps = (self.tx, self.ty, self.sm, self.sp, self.sq)

    # --- the bound

    def bound(self, prices: Prices) -> float:
        """What ``prices`` prove: a lower bound of the whole mixed-integer problem. O(edges R)."""
        return float(
            kernels.bound(
                prices.m, prices.p, prices.q, self.tables, self.edges, self.works, self.limits
            )
        )

    def replica_prices(self, prices: Prices) -> Floats:
        """What a replica uses up of storage, budget and links, at ``prices``: [D, R]."""
        regions = self.route.shape[1]
        extra: Floats = self.size[:, None] * prices.q[:regions]
        extra += (self.route != NO_COPY) * self.size[:, None] * prices.q[2 * regions]
        d, r = np.nonzero(self.route >= 0)
        extra[d, r] += self.size[d] * prices.q[self.route[d, r]]
        return extra

    # --- the iteration

    def begin(self, placed: Bools, shares: Floats) -> Point:
        """A first point: a placement with its shares, and no prices."""
        columns = self.columns
        edges, regions = len(columns.reads.items), columns.can.shape[1]
        prices = (
            np.zeros((edges, regions)),
            np.zeros(columns.supply.shape),
            np.zeros(len(self.limit)),
        )
        return Point(placed.astype(float), shares.astype(float), *prices)

    def solve(
        self,
        point: Point,
        *,
        iterations: int,
        weight: float = 1.0,
        stop: Callable[[float, int], bool] | None = None,
    ) -> Relaxed:
        """Iterate from ``point``; ``stop(best bound, iterations)`` ends it early. O((edges + D +
        W) R) an iteration.
        """
        now, ahead, anchor = point.copy(), point.copy(), point.copy()
        best, best_prices = -math.inf, Prices(*(array.copy() for array in point.arrays[2:]))
        first = last = math.inf
        since = done = 0
        while done < iterations:
            self._step(now, ahead, weight)
            done += 1
            if done % CHECK == 0 or done == iterations:
                value = self.bound(Prices(*ahead.arrays[2:]))
                if value > best:
                    best, best_prices = value, Prices(*(array.copy() for array in ahead.arrays[2:]))
                if stop is not None and stop(best, done):
                    break
            if since == 0 or done % CHECK == 0:
                left = sum(self.residual(now, ahead, weight))
                if since == 0:
                    first = left
                elif _restarts(left, first, last) or since > 0.36 * done + CHECK:
                    weight = self._reweighed(anchor, ahead, weight)
                    now.take(ahead)
                    anchor.take(ahead)
                    since = 0
                    continue
                last = left
            since += 1
            for a, b, c in zip(now.arrays, ahead.arrays, anchor.arrays, strict=True):
                kernels.mix(a, b, c, 1.0 / (since + 1.0))
        return Relaxed(best, best_prices, ahead, weight, done)

    def _step(self, now: Point, ahead: Point, weight: float) -> None:
        kernels.step(
            now.arrays, ahead.arrays, self.tables, self.edges, self.works, self.limits, self.steps,
            weight, self.lift,
        )  # fmt: skip

    def residual(self, a: Point, b: Point, weight: float) -> tuple[float, float]:
        """How far a step moved, squared, in the norm of the steps: replicas and shares, prices."""
        x, y, m, p, q = zip(a.arrays, b.arrays, strict=True)
        primal = kernels.distance(*x, self.tx) + kernels.distance(*y, self.ty)
        dual = kernels.distance(*m, self.sm)
        dual += kernels.distance(p[0].reshape(-1, 1), p[1].reshape(-1, 1), self.sp.ravel())
        dual += kernels.distance(q[0].reshape(-1, 1), q[1].reshape(-1, 1), self.sq)
        return primal * weight, dual / weight

    def _reweighed(self, a: Point, b: Point, weight: float) -> float:
        """The weight at which replicas and prices move equally far, half-way to it."""
        primal, dual = self.residual(a, b, weight)
        if primal <= 0.0 or dual <= 0.0:
            return weight
        ratio = math.sqrt((dual * weight) / (primal / weight))
        return math.exp(0.5 * math.log(ratio) + 0.5 * math.log(weight))


def _restarts(left: float, first: float, last: float) -> bool:
    """Whether the iteration begins anew where it is: much came of it, or no more does."""
    return left <= 0.04 * first or (left <= 0.64 * first and left > last)
