"""HiGHS with few cells at first: others join when prices ask for them (column generation).

Few of all possible pairs have time in the end. A cell that no price makes worthwhile would get no
time, so that the optimum of the few cells is that of all, to the last digit.
"""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np

from topmast.policies.base import Floats, Ints
from topmast.policies.shares import simplex
from topmast.policies.shares.interior_pairs_table import best_of_each
from topmast.policies.shares.program import Program, Solution

PRIMAL: dict[str, Any] = {"presolve": "off", "solver": "simplex", "simplex_strategy": 4}
DONE, IMPOSSIBLE = highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible
EACH = 2
"""At most so many cells of each job join at once: the best ones."""
WORTH = 1e-9
"""A cell joins when it is worth more than that above its price, where the dearest is worth 1."""


class Growing:
    """One program for which HiGHS keeps model and basis; its limits hold with no time at all."""

    def __init__(self, program: Program, unit: Floats, height: float) -> None:
        columns = program.columns
        self._program, self._unit, self._height = program, unit, height
        self._order: Ints = np.arange(columns.cells.singles)
        """Which cells HiGHS knows, in the order of its columns."""
        self._solver = simplex.solver_with(PRIMAL)
        self._solver.passModel(simplex.model_of(program, unit, height, self._order))
        self._gain = simplex.gain_of(program)
        every = simplex.entries(program, unit, np.arange(len(self._gain)))
        self._parts = [
            (row, np.where(row >= 0, value, 0.0)) for row, _, value in every if (row >= 0).any()
        ]

    def solve(self) -> Solution | None:
        """The optimum; None if HiGHS fails or the cells known so far cannot keep the floors.

        O(cells) and a few primal simplex iterations each time that cells join, about five times.
        """
        while True:
            if not self._runs():
                return None
            found = self._solver.getSolution()
            more = self._wanted(np.array(found.row_dual, float))
            if not len(more):
                return simplex.solution_of(
                    self._program, found, self._unit, self._height, self._order
                )
            self._add(more)

    def _runs(self) -> bool:
        """Let HiGHS optimise the known cells from its last basis; without a basis if that fails."""
        self._solver.run()
        for options in simplex.TRIES:
            status = self._solver.getModelStatus()
            if status in (DONE, IMPOSSIBLE):
                break
            self._solver.clearSolver()
            simplex.set_options(self._solver, options)
            self._solver.run()
            simplex.set_options(self._solver, PRIMAL)
        return bool(self._solver.getModelStatus() == DONE)

    def learn(self, solution: Solution) -> None:
        """Know the cells that have time in a solution found elsewhere."""
        known = np.zeros(len(solution.cells), bool)
        known[self._order] = True
        more = np.flatnonzero((solution.cells > 0) & ~known)
        if len(more):
            self._add(more)

    def change(self, program: Program, height: float) -> None:
        """Other floors, for all jobs; the rest of the program is as it was. O(n)."""
        rise, before = (
            p.slope * h / self._unit for p, h in ((program, height), (self._program, self._height))
        )
        for row in np.flatnonzero(rise != before).tolist():
            self._solver.changeCoeff(row, 0, -rise.item(row))
        base = program.base / self._unit
        rows = np.arange(len(base), dtype=np.int32)
        self._solver.changeRowsBounds(len(base), rows, base, np.full(len(base), simplex.INF))
        self._program, self._height = program, height

    def _wanted(self, prices: Floats) -> Ints:
        """Cells that are worth more than they cost, of each job the best. O(cells)."""
        worth = self._gain.copy()
        for row, value in self._parts:
            worth -= value * prices[row]
        worth[self._order] = 0.0
        cells = self._program.columns.cells
        cheap = np.flatnonzero(worth > WORTH)
        return cheap[best_of_each(cells.one[cheap], cells.other[cheap], worth[cheap], EACH)]

    def _add(self, cells: Ints) -> None:
        """Let HiGHS know of more cells."""
        parts = simplex.entries(self._program, self._unit, cells)
        start, index, value = simplex.by_column(parts, len(cells))
        none = np.zeros(len(cells))
        self._solver.addCols(
            len(cells), self._gain[cells], none, none + simplex.INF,
            len(index), start[:-1], index, value,
        )  # fmt: skip
        self._order = np.concatenate([self._order, cells])
