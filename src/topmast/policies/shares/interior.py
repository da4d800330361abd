"""Rising floors solved by the compiled interior-point method: any number of jobs, in milliseconds."""

from __future__ import annotations

import numpy as np

from topmast.policies.base import Floats
from topmast.policies.shares.interior_kernels import Data, State, rise
from topmast.policies.shares.program import Program, Solution, tidied

TOLERANCE = 1e-6
"""The gap, over the height, at which the iteration ends."""
ENOUGH = 1e-5
"""The gap that an answer may have; it is measured on the answer itself, and proved by its prices."""
MOST_TURNS = 100


def solve(program: Program) -> Solution | None:
    """The highest floors of a program without pairs, all of which rise; None if it did not converge.

    What is returned as height is an upper bound that the prices prove, at most ``ENOUGH`` above what the
    cells reach. None says nothing of the program: ask HiGHS. Complexity: O(n m^2) an iteration, about 20 of them.
    """
    columns = program.columns
    rows = np.flatnonzero(program.floors)
    best = columns.best_speeds[rows]
    slope = program.slope[rows] / best
    height = 1.0 / float(slope.max())
    may = columns.runs[rows]
    data = Data(
        np.where(may, columns.speeds[rows] / best[:, None], 0.0),
        np.where(may, columns.scale[rows, None] / np.maximum(columns.workers, 1.0), 0.0),
        slope * height,
        program.base[rows] / best,
        may,
    )
    now = _start(data)
    try:
        rise(data, now, TOLERANCE, MOST_TURNS)
    except ZeroDivisionError:
        return None
    if not np.isfinite(now.x).all() or not (now.y > 0).all():
        return None
    single = np.zeros(columns.runs.shape)
    single[rows] = np.where(may, now.x, 0.0)
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
    data = Data(ones, ones, np.ones(1), np.zeros(1), np.ones((1, 1), bool))
    rise(data, _start(data), TOLERANCE, MOST_TURNS)


def _bound(data: Data, now: State) -> tuple[float, Floats]:
    """What no allocation exceeds, by the prices found (weak duality), and those of the floors. O(n m)."""
    total = float(data.g @ now.y[:, 0])
    floors, types = now.y[:, 0] / total, now.p / total
    worth = np.where(data.may, data.a * floors[:, None] - data.s * types, 0.0)
    time = np.maximum(worth.max(axis=1), 0.0)
    return float(time.sum() + types.sum() - floors @ data.h), floors


def _start(data: Data) -> State:
    """A point within all limits, primal and dual, with base <= 0. O(n m)."""
    n, m = data.a.shape
    part = 0.5 * np.minimum(1.0 / m, 1.0 / np.maximum(data.s.sum(axis=0), 1e-9))
    x = np.where(data.may, part, 1.0)
    held = np.where(data.may, part, 0.0)
    speed = (data.a * held).sum(axis=1)
    u = 0.5 * float(((speed - data.h) / data.g).min())
    w = np.stack([speed - data.g * u - data.h, 1.0 - held.sum(axis=1)], axis=1)
    k = 1.0 - (data.s * held).sum(axis=0)
    price = 1.5 / float(data.g.sum())
    y = np.stack([np.full(n, price), np.full(n, 1.1 * price)], axis=1)
    p = np.full(m, 1.0 / m)
    v = np.where(data.may, y[:, 1:] - data.a * price + data.s * p, 1.0)
    return State(x, v, w, y, k, p, np.array([u, 0.5]))
