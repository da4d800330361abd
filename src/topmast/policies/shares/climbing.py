"""The same floors raised step after step, each from where the last one ended: the program of water-filling.

HiGHS keeps its model and its basis. When the base of a step is what the last one reached, its vertex is a
vertex of the new program too, with height 0, so that the primal simplex method goes on from there. Exact, for a
level that is a little too high is a floor that the next step cannot keep.
"""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np

from topmast.policies.base import Floats
from topmast.policies.shares import simplex
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.program import Program, Solution

PRIMAL: dict[str, Any] = {"presolve": "off", "solver": "simplex", "simplex_strategy": 4}


class Climb:
    """Floors of all jobs of ``columns``; ``step`` raises them."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        best = columns.best_speeds
        self._unit: Floats = np.where(best > 0, best, 1.0)
        self._solver: Any = None
        self._column = len(columns.cells.one)
        self._slope: Floats = np.zeros(columns.count)

    def step(self, slope: Floats, base: Floats) -> Solution | None:
        """The highest floors ``base + slope * height`` (n, steps/s); None if the base is out of reach.

        Complexity: a few turns of the simplex method, where ``base`` is what the last step reached.
        """
        columns = self._columns
        nothing = np.zeros(self._column)
        floors = np.ones(columns.count, bool)
        program = Program(columns, nothing, 1.0, floors, base, slope)
        height = 1.0 / float((slope / self._unit).max())
        relative = slope * height / self._unit
        if self._solver is None:
            self._solver = simplex.solver_with(PRIMAL)
            self._solver.passModel(simplex.model_of(program, self._unit, height))
        else:
            self._change(relative, base / self._unit)
        self._slope = relative
        self._solver.run()
        if self._solver.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            return simplex.solution_of(program, self._solver.getSolution(), self._unit, height)
        self._solver = None
        needed = (slope > 0) | (base > 0)
        return simplex.solve(Program(columns, nothing, 1.0, needed, base, slope))

    def _change(self, relative: Floats, base: Floats) -> None:
        """Other slopes and bases in the model that HiGHS has. O(n)."""
        for row in np.flatnonzero(relative != self._slope).tolist():
            self._solver.changeCoeff(row, self._column, -relative.item(row))
        rows = np.arange(len(base), dtype=np.int32)
        self._solver.changeRowsBounds(len(base), rows, base, np.full(len(base), simplex.INF))
