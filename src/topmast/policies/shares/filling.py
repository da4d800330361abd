"""Of all allocations that are best for a policy, the one in which the GPUs do most work.

Policies that raise the one who is worst off say nothing of the others: at the best height there is time left over, and
many ways to give it away. An interior solution spreads it over all of them, a vertex leaves it to chance. Both make
many small parts, which rounds are bad at: a part of a tenth is a round in an hour. So time goes where it makes most
work, which is one program more.
"""

from __future__ import annotations

import numpy as np

from topmast.policies.base import Floats
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.linear import linear, solution_of

MOST_CELLS, MOST_CELLS_PAIRED = 1_600, 6_000
"""Above, the program would take longer than some 20 ms, and what was found stays."""
KEPT = 1 - 1e-9
"""Which part of its speed everybody keeps for sure: what is exact to the last digit may be out of reach."""


def fullest(columns: Columns, floors: Floats, cells: Floats) -> Floats:
    """The cells (k) with most work, everybody as fast as ``floors`` (n, steps/s; 0 is none), which ``cells`` (k) keep.

    Work is what a job does over what it would do in its best cell, times its workers. One linear program.
    """
    most = MOST_CELLS_PAIRED if len(columns.pair_jobs) else MOST_CELLS
    if len(cells) > most:
        return cells
    kept = np.minimum(floors, columns.speeds_of(*columns.cells.spread(cells))) * KEPT
    found = solution_of(linear(columns, work_of(columns), kept))
    return cells if found is None else found.cells


def work_of(columns: Columns) -> Floats:
    """The work done in each cell (k): workers at the best speed of their jobs."""
    cells, best = columns.cells, columns.best_speeds
    work: Floats = cells.one_speed / best[cells.one]
    paired = cells.other >= 0
    work[paired] += cells.other_speed[paired] / best[cells.other[paired]]
    return work * cells.scale
