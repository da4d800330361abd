"""The largest sum without pairs: jobs compete for worker types only (Dantzig-Wolfe decomposition).

For given prices of the types, the best assignment is immediate: each job spends all of its time
where it is worth most. HiGHS mixes such assignments so that no type is exceeded, a program with one
row per type and one more. Its prices give the next assignment. The final mix is exact (Dantzig and
Wolfe, Operations Research 1960).
"""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np

from topmast.policies.base import Floats, Ints
from topmast.policies.shares import simplex
from topmast.policies.shares.program import DUST, Program, Solution, tidied

CLOSE = 1e-9
"""The part by which no allocation can be better than what is returned; prices prove it."""
MOST = 500


def solve(program: Program) -> Solution | None:
    """The optimum of a program without pairs, floors and extra row; None: too slow, use HiGHS.

    Some 10 to 50 assignments of O(n m), and a program of m + 1 rows after each.
    """
    columns = program.columns
    gain, _ = columns.cells.spread(simplex.gain_of(program))
    gain[~columns.runs] = -1.0
    load = columns.scale[:, None] / simplex.room_of(program)
    mix = _Mix(len(columns.types))
    every = np.arange(columns.count)
    found: list[tuple[Ints, Ints]] = []
    least = np.inf
    for _ in range(MOST):
        worth = gain - load * mix.prices
        best = worth.argmax(axis=1)
        most = worth[every, best]
        runs = np.flatnonzero(most > 0)
        least = min(least, float(most[runs].sum() + mix.prices.sum()))
        if least - mix.value <= CLOSE * least:
            return Solution(_mixed(program, found, mix.parts()), 0.0, np.zeros(columns.count))
        kind = best[runs]
        found.append((runs, kind))
        used: Floats = np.bincount(kind, load[runs, kind], len(columns.types)).astype(float)
        mix.add(float(gain[runs, kind].sum()), used)
    return None


def _mixed(program: Program, found: list[tuple[Ints, Ints]], parts: Floats) -> Floats:
    """The cells (k) of assignments, each by its part."""
    columns = program.columns
    single = np.zeros(columns.runs.shape)
    for (runs, kind), part in zip(found, parts.tolist(), strict=True):
        if part > DUST:
            single[runs, kind] += part
    return tidied(columns, single[columns.runs])


class _Mix:
    """The mix of assignments with the greatest sum that exceeds no type."""

    def __init__(self, types: int) -> None:
        self.prices: Floats = np.zeros(types)
        """What all workers of each type are worth."""
        self.value = 0.0
        self._rows = np.arange(types + 1, dtype=np.int32)
        self._solver: Any = simplex.solver_with(simplex.TRIES[1])
        self._solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
        ones, none = np.ones(types + 1), np.array([], np.int32)
        self._solver.addRows(
            types + 1, -simplex.INF * ones, ones, 0, 0 * self._rows, none, np.array([], float)
        )

    def add(self, gain: float, used: Floats) -> None:
        """One more assignment: its sum, and the part of each type (m) that it takes."""
        column = np.append(used, 1.0)
        none = np.zeros(1)
        self._solver.addCols(
            1, none + gain, none, none + simplex.INF, len(column), none.astype(np.int32),
            self._rows, column,
        )  # fmt: skip
        self._solver.run()
        self.value = float(self._solver.getObjectiveValue())
        prices = np.array(self._solver.getSolution().row_dual, float)[:-1]
        self.prices = np.maximum(prices, 0.0)

    def parts(self) -> Floats:
        """The part of each assignment, in the order of their coming."""
        return np.array(self._solver.getSolution().col_value, float)
