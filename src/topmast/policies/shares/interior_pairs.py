"""An interior-point method for programs with pairs: all pairs at once, no columns left out.

Rows are jobs on their own (n) and pairs (p), each with a cell for every type. A pair meets the floors and the
time of two jobs, so that the normal equations have 2 n + m unknowns and a full matrix: filling it
costs O((n + p) m), factoring it O(n^3) in LAPACK, and some 15 to 25 iterations do. Mehrotra's predictor
and corrector, as in `interior_kernels`; the height u borders the system.
"""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from threadpoolctl import ThreadpoolController

from topmast.policies.base import Bools, Floats, Ints
from topmast.policies.shares.program import Program, Solution, tidied

TOLERANCE = 3e-6
ENOUGH = 3e-5
MOST_TURNS = 60
STEP = 0.995
ASKED = (0.3, 1e-3)
"""Between these gaps the prices are asked, whenever the gap has shrunk to a quarter, which pairs are missing."""
JOINING = 4
"""How many pairs of a job may join at once."""
MANY_PER_JOB, PAIRS_PER_JOB = 100, 24
"""With more than so many pairs a job, so many begin; others join if the prices ask for them."""
ROUNDS = 6


class Point(Struct):
    """Cells x, rows' slacks w, height u; reduced costs v, prices y of the rows, reduced cost z of u."""

    x: Floats
    w: Floats
    u: float
    v: Floats
    y: Floats
    z: float


class Table:
    """The program's coefficients: rows are floors (n), time (n) and types (m).

    ``one`` (m x r) and ``two`` (m x p): relative speeds of a row's first job, of its second; ``load`` (m x r):
    the part of a type that a cell takes; ``open`` (m x r): where x may differ from 0.
    """

    def __init__(self, program: Program) -> None:
        columns = program.columns
        self.n, self.m = columns.runs.shape
        self.first, self.second = columns.pair_jobs[:, 0], columns.pair_jobs[:, 1]
        best = np.where(columns.best_speeds > 0, columns.best_speeds, 1.0)
        self.best = best
        self.open: Bools = _turned(columns.runs, columns.pair_runs)
        has = program.floors
        shut = np.where(has, 1.0 / best, 0.0)
        self.one = _turned(
            columns.speeds * shut[:, None], columns.pair_speeds[..., 0] * shut[self.first, None]
        )
        self.one[~self.open] = 0.0
        self.two = _turned(columns.pair_speeds[..., 1] * shut[self.second, None])
        self.two[~self.open[:, self.n :]] = 0.0
        scale = np.concatenate([columns.scale, columns.scale[self.first]])
        room = np.maximum(columns.workers, 1.0)[:, None]
        self.load = np.where(self.open, scale / room, 0.0)
        slope = np.where(has, program.slope / best, 0.0)
        self.height = 1.0 / float(slope.max()) if program.lift else 1.0
        self.rise = np.concatenate([slope * self.height, np.zeros(self.n + self.m)])
        base = np.where(has, program.base / best, -1.0)
        self.limit = np.concatenate([-base, np.ones(self.n + self.m)])
        gain = _turned(*columns.cells.spread(program.gain))
        self.gain_size = float(np.abs(gain).max()) or 1.0
        self.gain = gain / self.gain_size
        self.lift = 1.0 if program.lift else 0.0

    def without(self, kept: Bools) -> Table:
        """The same table with only the pairs ``kept`` (p)."""
        if kept.all():
            return self
        less = copy(self)
        cells = self.rows_of(kept)
        less.first, less.second = self.first[kept], self.second[kept]
        less.open, less.one, less.load, less.gain = (
            np.ascontiguousarray(part[:, cells])
            for part in (self.open, self.one, self.load, self.gain)
        )
        less.two = np.ascontiguousarray(self.two[:, kept])
        return less

    def rows_of(self, kept: Bools) -> Bools:
        """Which rows (r) there are when only the pairs ``kept`` (p) are."""
        return np.concatenate([np.ones(self.n, bool), kept])

    def apply(self, x: Floats) -> Floats:
        """What cells use of each row: minus speed, time, types."""
        n = self.n
        speed = np.einsum("jr,jr->r", self.one, x)
        paired = np.einsum("jr,jr->r", self.two, x[:, n:])
        types = np.einsum("jr,jr->j", self.load, x)
        return np.concatenate(
            [-self.of_jobs(speed, paired), self.of_jobs(np.einsum("jr->r", x)), types]
        )

    def of_jobs(self, rows: Floats, second: Floats | None = None) -> Floats:
        """Sums by job (n) of what rows (r) give their first job, and (p) their second."""
        n = self.n
        second = rows[n:] if second is None else second
        total: Floats = rows[:n] + np.bincount(self.first, rows[n:], n)
        total += np.bincount(self.second, second, n)
        return total

    def price(self, y: Floats) -> Floats:
        """What each cell costs at these prices of the rows (m x r)."""
        n = self.n
        floor, time, types = y[:n], y[n : 2 * n], y[2 * n :]
        cost = self.load * types[:, None]
        cost += np.concatenate([time, time[self.first] + time[self.second]])
        cost -= self.one * np.concatenate([floor, floor[self.first]])
        cost[:, n:] -= self.two * floor[self.second]
        return cost

    def normal(self, weight: Floats, ridge: Floats) -> Floats:
        """The lower half of the normal equations. O((n + p) m) and the size of the matrix."""
        n, size = self.n, 2 * self.n + self.m
        matrix = np.zeros((size, size), order="F")
        first, second = self.first, self.second
        a_d, b_d = self.one * weight, self.two * weight[:, n:]
        d, a, b = (np.einsum("jr->r", part) for part in (weight, a_d, b_d))
        diagonal = np.arange(n)
        squares = np.einsum("jr,jr->r", self.one, a_d), np.einsum("jr,jr->r", self.two, b_d)
        matrix[diagonal, diagonal] = self.of_jobs(*squares)
        low, high = np.minimum(first, second), np.maximum(first, second)
        matrix[high, low] = np.einsum("jr,jr->r", self.one[:, n:], b_d)
        matrix[n + diagonal, diagonal] = -self.of_jobs(a, b)
        matrix[n + second, first] = -a[n:]
        matrix[n + first, second] = -b
        matrix[n + diagonal, n + diagonal] = self.of_jobs(d)
        matrix[n + high, n + low] = d[n:]
        for kind in range(self.m):
            row, load = 2 * n + kind, self.load[kind]
            matrix[row, :n] = -self.of_jobs(load * a_d[kind], load[n:] * b_d[kind])
            pull = load * weight[kind]
            matrix[row, n : 2 * n] = self.of_jobs(pull)
            matrix[row, row] = load @ pull
        every = np.arange(size)
        matrix[every, every] += ridge
        return matrix


def _turned(*parts: Floats | Bools) -> Any:
    """Rows of jobs and pairs (r x m) as columns (m x r): long rows are what numpy is fast at."""
    return np.ascontiguousarray(np.concatenate(parts).T)


def solve(program: Program) -> Solution | None:
    """The optimum of a program with pairs; None if it did not converge: ask HiGHS then.

    With ``lift``, the height returned is an upper bound that the prices prove, at most ``ENOUGH`` above what
    the cells reach; without, the cells are that near to the best sum.
    """
    full = Table(program)
    kept = _promising(full)
    with _one_thread():
        for _ in range(ROUNDS):
            now = _optimum(full, kept)
            if now is None:
                return None
            x = np.zeros(full.open.shape)
            x[:, full.rows_of(kept)] = now.x
            found = _proved(program, full, np.where(full.open, x, 0.0), now.y)
            if found is not None or kept.all():
                return found
            more = _wanted(full, now.y, PAIRS_PER_JOB) & ~kept
            kept |= more if more.any() else ~kept
    return None


def _joined(
    full: Table, table: Table, now: Point, kept: Bools, mean: float
) -> tuple[Table, Point]:
    """The same point among more pairs: those that its prices leave too cheap join with little time."""
    more = _wanted(full, now.y, JOINING) & ~kept
    if not more.any():
        return table, now
    old = np.concatenate([np.ones(full.n, bool), kept[kept | more]])
    kept |= more
    table = full.without(kept)
    cost = table.price(now.y) - table.gain
    v = np.where(table.open, np.maximum(np.abs(cost), mean**0.5), 1.0)
    x = np.where(table.open, mean / v, 1.0)
    x[:, old], v[:, old] = now.x, now.v
    return table, Point(x, now.w, now.u, v, now.y, now.z)


def _optimum(full: Table, kept: Bools) -> Point | None:
    """The best with the pairs ``kept`` (p), and those that join on the way, which are put there too."""
    table = full.without(kept)
    now, asked = _start(table), ASKED[0] if not kept.all() else 0.0
    try:
        for _ in range(MOST_TURNS):
            gap, mean = _gap(table, now)
            if gap <= asked:
                table, now = _joined(full, table, now, kept, mean)
                asked = gap / 4 if gap > ASKED[1] else 0.0
            if not _turn(table, now, TOLERANCE):
                break
    except (LinAlgError, FloatingPointError):
        pass
    finite = np.isfinite(now.x).all() and np.isfinite(now.y).all()
    return now if finite else None


def _promising(table: Table) -> Bools:
    """The pairs (p) to begin with: for each job those that lose least by sharing, all if they are few."""
    n = table.n
    if len(table.first) <= MANY_PER_JOB * n:
        return np.ones(len(table.first), bool)
    alone = np.where(table.one[:, :n] > 0, table.one[:, :n], np.inf)
    merit = table.one[:, n:] / alone[:, table.first] + table.two / alone[:, table.second]
    every = np.arange(len(table.first))
    most = np.where(table.open[:, n:], merit, 0.0).max(axis=0)
    return _best_of_each(table, every, most, PAIRS_PER_JOB)


def _wanted(table: Table, y: Floats, each: int) -> Bools:
    """Pairs (p) that these prices leave too cheap: for each job the ``each`` cheapest of them."""
    y = y / _norm(table, y)
    over = np.where(table.open, table.gain - table.price(y), 0.0)[:, table.n :].max(axis=0)
    cheap = np.flatnonzero(over > 0)
    wanted = np.zeros(len(over), bool)
    wanted[cheap] = _best_of_each(table, cheap, over[cheap], each)
    return wanted


def _best_of_each(table: Table, pairs: Ints, merit: Floats, each: int) -> Bools:
    """Which of ``pairs`` are among the ``each`` of most merit of one of their jobs. O(p log p)."""
    best = np.zeros(len(pairs), bool)
    by_merit = np.argsort(-merit, kind="stable")
    for side in (table.first, table.second):
        of = side[pairs[by_merit]]
        order = by_merit[np.argsort(of, kind="stable")]
        ordered = np.sort(of)
        begins = np.searchsorted(ordered, ordered, side="left")
        best[order[np.arange(len(order)) - begins < each]] = True
    return best


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def _one_thread() -> Any:
    """Matrices of this size gain little from threads, and lose much where cores are shared."""
    return _libraries().limit(limits=1, user_api="blas")


def _start(table: Table) -> Point:
    """A point within all limits, primal and dual, where floors have base <= 0 or there is no height."""
    n, m = table.n, table.m
    crowd = table.of_jobs(table.open.sum(axis=0).astype(float))
    part = 0.5 / np.maximum(1.0, crowd)
    each = np.concatenate([part, np.minimum(part[table.first], part[table.second])])
    load = table.load @ each
    x = np.where(table.open, each * np.minimum(1.0, 0.5 / np.maximum(load, 0.5))[:, None], 1.0)
    used = table.apply(np.where(table.open, x, 0.0))
    w = table.limit - used
    u, price = 1.0, 1.0 / n
    if table.lift:
        rising = table.rise > 0
        u = 0.5 * float((w[rising] / table.rise[rising]).min())
        w -= table.rise * u
        price = 1.5 / float(table.rise.sum())
    y = np.full(2 * n + m, price)
    y[n : 2 * n] = 1.1 * max(price, 1.0 if not table.lift else 0.0)
    y[2 * n :] = 1.0 / m
    v = np.where(table.open, table.price(y) - table.gain, 1.0)
    least = 0.1 * float(y[n])
    return Point(x, np.maximum(w, 1e-3), u, np.maximum(v, least), y, 0.5)


def _turn(table: Table, now: Point, tolerance: float) -> bool:
    """One iteration; False where the end is reached."""
    cells = table.open
    rest_w = table.limit - table.apply(np.where(cells, now.x, 0.0)) - table.rise * now.u - now.w
    rest_v = np.where(cells, now.v + table.gain - table.price(now.y), 0.0)
    rest_z = (table.lift - float(table.rise @ now.y) + now.z) if table.lift else 0.0
    products = np.where(cells, now.x * now.v, 0.0)
    gap, mean = _gap(table, now)
    whole = float(products.sum() + now.w @ now.y) + now.u * now.z * table.lift
    worst = max(np.abs(rest_w).max(), np.abs(rest_v).max(), abs(rest_z))
    if not np.isfinite(gap) or (gap <= tolerance and worst <= 1e-6):
        return False
    weight = np.where(cells, now.x / now.v, 0.0)
    system = _System(table, now, weight)
    aim = -products, -now.w * now.y, -now.u * now.z
    rest = rest_v, rest_w, rest_z
    step = system.direction(rest, aim)
    reach = _reach(table, now, step)
    after = _gap_after(table, now, step, reach)
    centre = (after / whole) ** 3 * mean
    aim = (
        np.where(cells, centre - products - step.x * step.v, 0.0),
        centre - now.w * now.y - step.w * step.y,
        centre - now.u * now.z - step.u * step.z,
    )
    step = system.direction(rest, aim)
    primal, dual = (min(1.0, STEP * reach) for reach in _reach(table, now, step))
    now.x += primal * step.x
    now.w += primal * step.w
    now.u += primal * step.u
    now.v += dual * step.v
    now.y += dual * step.y
    now.z += dual * step.z
    return max(primal, dual) > 1e-10


class _System:
    """Newton's equations at one point, factored once for two right sides."""

    def __init__(self, table: Table, now: Point, weight: Floats) -> None:
        self._table, self._now, self._weight = table, now, weight
        self._factor: Any = cho_factor(
            table.normal(weight, now.w / now.y), lower=True, overwrite_a=True, check_finite=False
        )
        self._border: Floats = self._solve(table.rise) if table.lift else np.zeros(len(now.w))

    def _solve(self, right: Floats) -> Floats:
        solved: Floats = cho_solve(self._factor, right, check_finite=False)
        return solved

    def direction(
        self, rest: tuple[Floats, Floats, float], aim: tuple[Floats, Floats, float]
    ) -> Point:
        """Newton's direction: ``rest`` is what equations lack, ``aim`` what products should change by."""
        table, now, weight = self._table, self._now, self._weight
        pull = rest[0] + aim[0] / now.x
        y = self._solve(table.apply(weight * pull) + aim[1] / now.y - rest[1])
        u = 0.0
        if table.lift:
            tug = rest[2] + aim[2] / now.u
            u = (tug - float(table.rise @ y)) / (float(table.rise @ self._border) + now.z / now.u)
            y = y + self._border * u
        x = weight * (pull - table.price(y))
        v = np.where(table.open, (aim[0] - now.v * x) / now.x, 0.0)
        w = (aim[1] - now.w * y) / now.y
        z = (aim[2] - now.z * u) / now.u if table.lift else 0.0
        return Point(x, w, u, v, y, z)


def _gap(table: Table, now: Point) -> tuple[float, float]:
    """The gap between primal and dual, relative, and the mean of the products that make it."""
    gap = float(np.where(table.open, now.x * now.v, 0.0).sum() + now.w @ now.y)
    gap += now.u * now.z * table.lift
    value = table.lift * now.u + float((table.gain * now.x).sum())
    count = int(table.open.sum()) + len(now.w) + int(table.lift)
    return gap / value, gap / count


def _reach(table: Table, now: Point, step: Point) -> tuple[float, float]:
    """How far a direction leads before a variable, or a price, is 0."""

    def wall(*moves: tuple[Any, Any]) -> float:
        fastest = max(float(np.max(-np.asarray(move) / value)) for value, move in moves)
        return 1.0 / fastest if fastest > 0.5 else 2.0

    return (
        wall((now.x, step.x), (now.w, step.w), (now.u, step.u)),
        wall((now.v, step.v), (now.y, step.y), (now.z, step.z)),
    )


def _gap_after(table: Table, now: Point, step: Point, reach: tuple[float, float]) -> float:
    primal, dual = (min(1.0, part) for part in reach)
    cells = np.where(table.open, (now.x + primal * step.x) * (now.v + dual * step.v), 0.0)
    rows = (now.w + primal * step.w) @ (now.y + dual * step.y)
    height = (now.u + primal * step.u) * (now.z + dual * step.z) if table.lift else 0.0
    return float(cells.sum() + rows) + height


def _proved(program: Program, table: Table, x: Floats, y: Floats) -> Solution | None:
    """The answer with its proof: no allocation is better than the prices say (weak duality)."""
    columns, n = program.columns, table.n
    single, pair = x.T[:n], x.T[n:]
    cells = tidied(columns, np.concatenate([single[columns.runs], pair[columns.pair_runs]]))
    speeds = columns.speeds_of(*columns.cells.spread(cells)) / table.best
    has = program.floors
    y = y / _norm(table, y)
    bound = _bound(table, y)
    prices = np.where(has, y[:n], 0.0) * table.height / table.best
    base = -table.limit[:n]
    if table.lift:
        rising = has & (table.rise[:n] > 0)
        reached = float(((speeds - base)[rising] / table.rise[:n][rising]).min())
    else:
        reached = float(program.gain @ cells) / table.gain_size
        if (speeds[has] < base[has] * (1 - ENOUGH)).any():
            return None
    if not bound - reached <= ENOUGH * abs(bound):
        return None
    return Solution(cells, bound * table.height if table.lift else 0.0, prices)


def _norm(table: Table, y: Floats) -> float:
    """What the prices are divided by, so that those of the floors add up to that of the height."""
    return float(table.rise @ y) if table.lift else 1.0


def _bound(table: Table, y: Floats) -> float:
    """The least that these prices of floors and types allow, times of jobs raised until they do."""
    n = table.n
    over = np.where(table.open, table.gain - table.price(y), -np.inf).max(axis=0)
    over = np.maximum(over, 0.0)
    time = y[n : 2 * n].copy()
    more = over[:n].copy()
    np.maximum.at(more, table.first, over[n:] / 2)
    np.maximum.at(more, table.second, over[n:] / 2)
    time += more
    return float(y[:n] @ table.limit[:n] + time.sum() + y[2 * n :].sum())
