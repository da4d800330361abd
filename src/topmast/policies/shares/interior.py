"""Rising floors by the compiled interior-point method: any number of jobs, in milliseconds."""

from __future__ import annotations

import numpy as np

from topmast.policies.base import Floats
from topmast.policies.shares.interior_kernels import rise
from topmast.policies.shares.interior_points import Data, State
from topmast.policies.shares.program import Program, Solution, tidied

TOLERANCE = 1e-6
"""The gap, over the height, at which the iteration ends."""
ENOUGH = 1e-5
"""The gap that an answer may have, measured on the answer itself and proved by its prices."""
MOST_TURNS = 100


def solve(program: Program) -> Solution | None:
    """The highest floors of a program without pairs, all of which rise; None: no convergence.

    The height returned is an upper bound proved by the prices, at most ``ENOUGH`` above what the
    cells reach. None says nothing about the program: use HiGHS. O(n m^2) an iteration, about 20 of
    them.
    """
    columns = program.columns
    rows = np.flatnonzero(program.floors)
    best = columns.best_speeds[rows]
    slope = program.slope[rows] / best
    height = 1.0 / float(slope.max())
    may = np.ascontiguousarray(columns.runs[rows].T)
    data = Data(
        np.where(may, columns.speeds[rows].T / best, 0.0),
        np.where(may, columns.scale[rows] / np.maximum(columns.workers, 1.0)[:, None], 0.0),
        slope * height,
        program.base[rows] / best,
        may.astype(float),
    )
    now = _start(data)
    rise(data, now, TOLERANCE, MOST_TURNS)
    if not np.isfinite(now.x).all() or not (now.y > 0).all():
        return None
    single = np.zeros(columns.runs.shape)
    single[rows] = now.x.T
    cells = tidied(columns, single[columns.runs])
    speeds = columns.speeds_of(*columns.cells.spread(cells))
    reached = float(((speeds[rows] / best - data.h) / data.g).min())
    bound, price = _bound(data, now)
    if not bound - reached <= ENOUGH * bound:
        return None
    prices = np.zeros(columns.count)
    prices[rows] = price * height / best
    return Solution(cells, bound * height, prices)


def load() -> None:
    """Have the compiled method ready, by a problem of one job."""
    ones = np.ones((1, 1))
    data = Data(ones, ones, np.ones(1), np.zeros(1), ones)
    rise(data, _start(data), TOLERANCE, MOST_TURNS)


def _bound(data: Data, now: State) -> tuple[float, Floats]:
    """The bound on all allocations by the prices (weak duality), and the floors' prices. O(n m)."""
    total = float(data.g @ now.y[0])
    floors, types = now.y[0] / total, now.p / total
    worth = data.a * floors - data.s * types[:, None]
    time = np.maximum(worth.max(axis=0), 0.0)
    return float(time.sum() + types.sum() - floors @ data.h), floors


def _start(data: Data) -> State:
    """A point within all limits, primal and dual, with base <= 0. O(n m)."""
    m, n = data.a.shape
    part = 0.5 * np.minimum(1.0 / m, 1.0 / np.maximum(data.s.sum(axis=1), 1e-9))
    x = data.may * part[:, None]
    speed = (data.a * x).sum(axis=0)
    u = 0.5 * float(((speed - data.h) / data.g).min())
    w = np.stack([speed - data.g * u - data.h, 1.0 - x.sum(axis=0)])
    k = 1.0 - (data.s * x).sum(axis=1)
    price = 1.5 / float(data.g.sum())
    y = np.stack([np.full(n, price), np.full(n, 1.1 * price)])
    p = np.full(m, 1.0 / m)
    v = np.where(data.may > 0, y[1] - data.a * price + data.s * p[:, None], 1.0)
    return State(x, v, w, y, k, p, np.array([u, 0.5]))
