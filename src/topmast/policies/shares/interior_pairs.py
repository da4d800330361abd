"""An interior-point method with pairs: promising pairs begin, others join when prices ask for them.

The normal equations have a row for each floor, for each type, and for the time of each job that may
use it up: a full matrix. Filling it costs O((n + p) m), factoring it O(n^3) in LAPACK, and some 15
to 40 iterations suffice. Pairs and time limits that are left out join on the way and never leave.
The proof at the end counts all of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError
from threadpoolctl import ThreadpoolController

from topmast.policies.base import Bools, Floats
from topmast.policies.shares.interior_pairs_table import Table, best_of_each
from topmast.policies.shares.interior_pairs_turn import Point, gap_of, turned
from topmast.policies.shares.program import Program, Solution, tidied

TOLERANCE = 3e-6
ENOUGH = 3e-5
MOST_TURNS = 80
ASKED = (0.3, 1e-3)
"""Within these gaps, whenever the gap is down to a quarter, prices show which pairs are missing."""
MANY_PER_JOB, PAIRS_PER_JOB, JOINING = 100, 16, 4
"""With more than so many pairs a job, so many begin; and so many of a job may join at once."""
ALMOST_ALL, LEAST_ROOM = 0.8, 0.05
"""A job that uses more of its time gets a time limit, and begins with at least so much slack."""
ROUNDS = 6


def solve(program: Program) -> Solution | None:
    """The optimum of a program with pairs; None if it did not converge: use HiGHS.

    The height returned is an upper bound proved by the prices, at most ``ENOUGH`` above what the
    cells reach.
    """
    full = Table(program)
    kept = _promising(full)
    timed = np.zeros(full.n, bool)
    with _one_thread():
        for _ in range(ROUNDS):
            table, now = _optimum(full, kept, timed)
            if not (np.isfinite(now.x).all() and np.isfinite(now.y).all()):
                return None
            x = np.zeros(full.open.shape)
            x[:, full.rows_of(kept)] = now.x
            timed |= table.timed
            found = _proved(program, full, np.where(full.open, x, 0.0), table.parted(now.y))
            if found is not None or (kept.all() and timed.all()):
                return found
            more = _wanted(full.timing(timed), now.y, PAIRS_PER_JOB) & ~kept
            if not more.any():
                more, timed = ~kept, np.ones(full.n, bool)
            kept |= more
    return None


def _optimum(full: Table, kept: Bools, timed: Bools) -> tuple[Table, Point]:
    """The optimum with the pairs ``kept`` (p); pairs that join on the way are added to them."""
    table = full.without(kept).timing(timed)
    now: Point | None = _start(table)
    asked = 0.0 if kept.all() else ASKED[0]
    last = table, _start(table)
    try:
        for _ in range(MOST_TURNS):
            if now is None:
                break
            gap, mean = gap_of(table, now)
            if gap <= asked:
                table, now = _joined(full, table, now, kept, mean)
                asked = gap / 4 if gap > ASKED[1] else 0.0
            table, now = _held(table, now, mean)
            last = table, now
            now = turned(table, now, TOLERANCE)
    except (LinAlgError, FloatingPointError):
        pass
    return last


def _joined(full: Table, table: Table, now: Point, kept: Bools, mean: float) -> tuple[Table, Point]:
    """The same point with more pairs: those too cheap at its prices join with little time."""
    more = _wanted(full.timing(table.timed), now.y, JOINING) & ~kept
    if not more.any():
        return table, now
    old = full.rows_of(kept)[full.rows_of(kept | more)]
    kept |= more
    table = full.without(kept).timing(table.timed)
    v = np.where(table.open, np.abs(table.price(now.y)), 1.0)
    v = np.maximum(v, mean**0.5)
    x = np.where(table.open, mean / v, 1.0)
    x[:, old], v[:, old] = now.x, now.v
    return table, Point(x, now.w, now.u, v, now.y, now.z)


def _held(table: Table, now: Point, mean: float) -> tuple[Table, Point]:
    """The same point with more limits: jobs that use almost all of their time are held to it."""
    if table.timed.all():
        return table, now
    time = table.time_of(np.where(table.open, now.x, 0.0))
    more = (time > ALMOST_ALL) & ~table.timed
    if not more.any():
        return table, now
    n, timed = table.n, table.timed | more
    rows = np.flatnonzero(timed)
    room = np.maximum(1.0 - time, LEAST_ROOM)
    price = mean / room
    room[table.timed], price[table.timed] = now.w[n : -table.m], now.y[n : -table.m]
    w = np.concatenate([now.w[:n], room[rows], now.w[-table.m :]])
    y = np.concatenate([now.y[:n], price[rows], now.y[-table.m :]])
    return table.timing(timed), Point(now.x, w, now.u, now.v, y, now.z)


def _promising(table: Table) -> Bools:
    """The pairs (p) to begin with: for each job those that lose least by sharing, or all if few."""
    n = table.n
    if len(table.first) <= MANY_PER_JOB * n:
        return np.ones(len(table.first), bool)
    alone = np.where(table.one[:, :n] > 0, table.one[:, :n], np.inf)
    merit = table.one[:, n:] / alone[:, table.first] + table.two / alone[:, table.second]
    most = np.where(table.open[:, n:], merit, 0.0).max(axis=0)
    return best_of_each(table.first, table.second, most, PAIRS_PER_JOB)


def _wanted(table: Table, y: Floats, each: int) -> Bools:
    """Pairs (p) that these prices leave too cheap: for each job the ``each`` cheapest of them."""
    y = y / _norm(table, y[: table.n])
    over = np.where(table.open, -table.price(y), 0.0)[:, table.n :].max(axis=0)
    cheap = np.flatnonzero(over > 0)
    wanted = np.zeros(len(over), bool)
    wanted[cheap] = best_of_each(table.first[cheap], table.second[cheap], over[cheap], each)
    return wanted


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def _one_thread() -> Any:
    """Matrices of this size gain little from threads, and lose much where cores are shared."""
    return _libraries().limit(limits=1, user_api="blas")


def _start(table: Table) -> Point:
    """A point within all limits, primal and dual, where floors have base <= 0."""
    n, m = table.n, table.m
    crowd = table.of_jobs(table.open.sum(axis=0).astype(float))
    part = 0.5 / np.maximum(1.0, crowd)
    each = np.concatenate([part, np.minimum(part[table.first], part[table.second])])
    load = table.load @ each
    x = np.where(table.open, each * np.minimum(1.0, 0.5 / np.maximum(load, 0.5))[:, None], 1.0)
    used = table.apply(np.where(table.open, x, 0.0))
    w = table.limit - used
    rising = table.rise > 0
    u = 0.5 * float((w[rising] / table.rise[rising]).min())
    w -= table.rise * u
    price = 1.5 / float(table.rise.sum())
    y = np.full(len(w), price)
    y[n:-m] = 1.1 * price
    # Without time limits, the types' prices alone must exceed each cell's two floors.
    least_load = np.where(table.open, table.load, np.inf).min(axis=1)
    y[-m:] = np.maximum(1.0 / m, 2.2 * price / least_load) if not table.timed.all() else 1.0 / m
    v = np.where(table.open, table.price(y), 1.0)
    return Point(x, np.maximum(w, 1e-3), u, np.maximum(v, 0.1 * price), y, 0.5)


def _proved(
    program: Program, table: Table, x: Floats, prices: tuple[Floats, Floats, Floats]
) -> Solution | None:
    """The answer with its proof: no allocation is better than the prices say (weak duality)."""
    columns, n = program.columns, table.n
    single, pair = x.T[:n], x.T[n:]
    cells = tidied(columns, np.concatenate([single[columns.runs], pair[columns.pair_runs]]))
    speeds = columns.speeds_of(*columns.cells.spread(cells)) / table.best
    has = program.floors
    y = np.concatenate(prices) / _norm(table, prices[0])
    bound = _bound(table, y)
    floors = np.where(has, y[:n], 0.0) * table.height / table.best
    rising = has & (table.slope > 0)
    reached = float(((speeds - table.base)[rising] / table.slope[rising]).min())
    if not bound - reached <= ENOUGH * abs(bound):
        return None
    return Solution(cells, bound * table.height, floors)


def _norm(table: Table, floors: Floats) -> float:
    """What the prices are divided by, so that those of the floors add up to that of the height."""
    return float(table.slope @ floors)


def _bound(table: Table, y: Floats) -> float:
    """The least that these prices of floors and types allow, times of jobs raised until they do."""
    n = table.n
    over = np.where(table.open, -table.price(y), -np.inf).max(axis=0)
    over = np.maximum(over, 0.0)
    more = over[:n].copy()
    np.maximum.at(more, table.first, over[n:] / 2)
    np.maximum.at(more, table.second, over[n:] / 2)
    time = y[n : 2 * n] + more
    return float(-y[:n] @ table.base + time.sum() + y[2 * n :].sum())
