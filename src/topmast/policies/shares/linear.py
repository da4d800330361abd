"""Programs without a height: a sum over cells made as large as can be, some floors kept."""

from __future__ import annotations

import numpy as np

from topmast.policies.base import Floats
from topmast.policies.shares import assigning, simplex
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.growing import Growing
from topmast.policies.shares.program import Program, Solution

MANY_PAIRS = 500
"""Above, HiGHS is given few cells at first."""
MANY_CELLS = 500
"""Above, jobs on their own are assigned to types."""


def linear(
    columns: Columns, gain: Floats, floors: Floats | None = None, extra: Floats | None = None
) -> Program:
    """Maximise ``gain`` (k) over the cells; ``floors`` (n, steps/s) are kept, 0 is none.

    ``extra`` (k): the sum of these over the cells must not be below 0.
    """
    base = np.zeros(columns.count) if floors is None else floors
    return Program(columns, gain, 0.0, base > 0, base, np.zeros(columns.count), 0.0, extra)


def solution_of(program: Program) -> Solution | None:
    """The best, or None where the floors cannot be kept."""
    found = _without_floors(program) if not program.floors.any() else None
    return simplex.solve(program) if found is None else found


def _without_floors(program: Program) -> Solution | None:
    """The optimum for many cells; None: there are few, or the program needs HiGHS."""
    columns = program.columns
    if len(columns.pair_jobs):
        many = len(columns.pair_jobs) > MANY_PAIRS
        return Growing(program, *program.scales()).solve() if many else None
    many = len(columns.cells.one) > MANY_CELLS
    return assigning.solve(program) if many and program.extra is None else None


def best_of(program: Program) -> Solution:
    """The best of a program that is known to have one."""
    found = solution_of(program)
    assert found is not None, "the floors were kept a moment ago"
    return found


def nearest(columns: Columns, floors: Floats) -> Floats:
    """The cells (k) that undercut ``floors`` (n) least, in the sum of the parts that lack."""
    nothing = np.zeros(len(columns.cells.one))
    return best_of(linear(columns, nothing, floors).with_shortfalls()).cells
