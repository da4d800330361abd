"""The same floors raised step by step, each from where the last ended: water-filling.

HiGHS keeps its model and its basis. When the base of a step is what the last one reached, its
vertex is a vertex of the new program with height 0, so that the primal simplex method continues
from there. It is exact: a level that is a little too high is a floor that the next step cannot
keep.
"""

from __future__ import annotations

import numpy as np

from topmast.policies.base import Floats
from topmast.policies.shares import simplex
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.growing import Growing
from topmast.policies.shares.program import Program, Solution


class Climb:
    """Floors of all jobs of ``columns``; ``step`` raises them."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        best = columns.best_speeds
        self._unit: Floats = np.where(best > 0, best, 1.0)
        self._growing: Growing | None = None

    def step(self, slope: Floats, base: Floats) -> Solution | None:
        """The highest floors ``base + slope * height`` (n, steps/s); None: base out of reach.

        Complexity: a few simplex iterations, if ``base`` is what the last step reached.
        """
        columns = self._columns
        nothing = np.zeros(len(columns.cells.one))
        every = np.ones(columns.count, bool)
        height = 1.0 / float((slope / self._unit).max())
        program = Program(columns, nothing, 1.0, every, base, slope)
        if self._growing is None:
            self._growing = Growing(program, self._unit, height)
        else:
            self._growing.change(program, height)
        found = self._growing.solve()
        if found is not None:
            return found
        needed = (slope > 0) | (base > 0)
        found = simplex.solve(Program(columns, nothing, 1.0, needed, base, slope))
        if found is not None:
            self._growing.learn(found)
        return found
