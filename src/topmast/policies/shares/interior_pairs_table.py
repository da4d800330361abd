"""Coefficients of a program with pairs: cells by type and row, floors, times and types.

Rows are single jobs (n) and pairs (p), each with a cell for every type. Limits are the floors of
all jobs, the time of *timed* ones, and the types: prices y and slacks w are in that order.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from topmast.policies.base import Bools, Floats, Ints
from topmast.policies.shares.program import Program


class Table:
    """The program's coefficients.

    ``one`` (m x r) and ``two`` (m x p): relative speeds of a row's first and second job. ``load``
    (m x r): the part of a type that a cell uses. ``open`` (m x r): where x may differ from 0.
    ``timed`` (n): jobs that have a time limit; the others are far from using it up.
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
        self.height = 1.0 / float(slope.max())
        self.slope = slope * self.height
        self.base = np.where(has, program.base / best, -1.0)
        self._time_all(np.ones(self.n, bool))

    def without(self, kept: Bools) -> Table:
        """The same table with only the pairs ``kept`` (p)."""
        if kept.all():
            return self
        less = copy(self)
        rows = self.rows_of(kept)
        less.first, less.second = self.first[kept], self.second[kept]
        less.open, less.one, less.load = (
            np.ascontiguousarray(part[:, rows]) for part in (self.open, self.one, self.load)
        )
        less.two = np.ascontiguousarray(self.two[:, kept])
        less._time_all(self.timed)
        return less

    def timing(self, timed: Bools) -> Table:
        """The same table in which only the time of these jobs (n) is a limit."""
        other = copy(self)
        other._time_all(timed)
        return other

    def _time_all(self, timed: Bools) -> None:
        self.timed = timed
        rows = np.flatnonzero(timed)
        self.time_rows = rows
        rest = np.zeros(len(rows) + self.m)
        self.rise = np.concatenate([self.slope, rest])
        self.limit = np.concatenate([-self.base, rest + 1.0])
        place = np.full(self.n, -1)
        place[rows] = self.n + np.arange(len(rows))
        first, second = place[self.first], place[self.second]
        self._of_first, self._of_second = np.flatnonzero(first >= 0), np.flatnonzero(second >= 0)
        self._of_both = np.flatnonzero((first >= 0) & (second >= 0))
        self._place = first, second

    def rows_of(self, kept: Bools) -> Bools:
        """Which rows (r) there are when only the pairs ``kept`` (p) are."""
        return np.concatenate([np.ones(self.n, bool), kept])

    def time_of(self, x: Floats) -> Floats:
        """How much of its time each job (n) uses."""
        return self.of_jobs(np.einsum("jr->r", x))

    def apply(self, x: Floats) -> Floats:
        """What cells use of each limit: minus speed, time, types."""
        n = self.n
        speed = np.einsum("jr,jr->r", self.one, x)
        paired = np.einsum("jr,jr->r", self.two, x[:, n:])
        types = np.einsum("jr,jr->j", self.load, x)
        return np.concatenate(
            [-self.of_jobs(speed, paired), self.time_of(x)[self.time_rows], types]
        )

    def of_jobs(self, rows: Floats, second: Floats | None = None) -> Floats:
        """Sums by job (n) of what rows (r) give their first job, and (p) their second."""
        n = self.n
        second = rows[n:] if second is None else second
        total: Floats = rows[:n] + np.bincount(self.first, rows[n:], n)
        total += np.bincount(self.second, second, n)
        return total

    def parted(self, y: Floats) -> tuple[Floats, Floats, Floats]:
        """Prices of the floors (n), of time (n, 0 where it is no limit) and of the types (m)."""
        time = np.zeros(self.n)
        time[self.time_rows] = y[self.n : -self.m]
        return y[: self.n], time, y[-self.m :]

    def price(self, y: Floats) -> Floats:
        """What each cell costs at these prices (m x r)."""
        floor, time, types = self.parted(y)
        cost = self.load * types[:, None]
        cost += np.concatenate([time, time[self.first] + time[self.second]])
        cost -= self.one * np.concatenate([floor, floor[self.first]])
        cost[:, self.n :] -= self.two * floor[self.second]
        return cost

    def normal(self, weight: Floats, ridge: Floats) -> Floats:
        """The lower half of the normal equations. O((n + p) m) and the size of the matrix."""
        n, size, timed = self.n, len(ridge), self.time_rows
        matrix = np.zeros((size, size), order="F")
        first, second = self.first, self.second
        a_d, b_d = self.one * weight, self.two * weight[:, n:]
        d, a, b = (np.einsum("jr->r", part) for part in (weight, a_d, b_d))
        floor, time = np.arange(n), n + np.arange(len(timed))
        squares = np.einsum("jr,jr->r", self.one, a_d), np.einsum("jr,jr->r", self.two, b_d)
        matrix[floor, floor] = self.of_jobs(*squares)
        low, high = np.minimum(first, second), np.maximum(first, second)
        matrix[high, low] = np.einsum("jr,jr->r", self.one[:, n:], b_d)
        matrix[time, timed] = -self.of_jobs(a, b)[timed]
        at_first, at_second = self._place
        ones, twos, both = self._of_first, self._of_second, self._of_both
        matrix[at_second[twos], first[twos]] = -a[n:][twos]
        matrix[at_first[ones], second[ones]] = -b[ones]
        matrix[time, time] = self.of_jobs(d)[timed]
        low, high = np.minimum(at_first, at_second)[both], np.maximum(at_first, at_second)[both]
        matrix[high, low] = d[n:][both]
        for kind in range(self.m):
            row, load = size - self.m + kind, self.load[kind]
            matrix[row, :n] = -self.of_jobs(load * a_d[kind], load[n:] * b_d[kind])
            pull = load * weight[kind]
            matrix[row, time] = self.of_jobs(pull)[timed]
            matrix[row, row] = load @ pull
        every = np.arange(size)
        matrix[every, every] += ridge
        return matrix


def best_of_each(first: Ints, second: Ints, merit: Floats, each: int) -> Bools:
    """Which rows are among the ``each`` of most merit of one of their two jobs. O(r log r)."""
    best = np.zeros(len(merit), bool)
    by_merit = np.argsort(-merit, kind="stable")
    for side in (first, second):
        of = side[by_merit]
        order = by_merit[np.argsort(of, kind="stable")]
        ordered = np.sort(of)
        begins = np.searchsorted(ordered, ordered, side="left")
        best[order[np.arange(len(order)) - begins < each]] = True
    return best


def _turned(*parts: Floats | Bools) -> Any:
    """Rows of jobs and pairs (r x m) as columns (m x r): long rows are what numpy is fast at."""
    return np.ascontiguousarray(np.concatenate(parts).T)
