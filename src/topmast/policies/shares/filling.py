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
from topmast.policies.shares.program import tidied

MOST_CELLS, MOST_CELLS_PAIRED = 1_600, 6_000
"""Above, the program would take longer than some 20 ms, and what was found stays."""
KEPT = 1 - 1e-9
"""Which part of its speed everybody keeps for sure: what is exact to the last digit may be out of reach."""
TURNS, CLOSE = 500, 1e-7
"""How often time is fitted, and how far no type's workers are overdrawn then."""


def fullest(columns: Columns, floors: Floats, cells: Floats) -> Floats:
    """The cells (k) with most work, everybody as fast as ``floors`` (n, steps/s; 0 is none), which ``cells`` (k) keep.

    Work is what a job does over what it would do in its best cell, times its workers. One linear program.
    """
    most = MOST_CELLS_PAIRED if len(columns.pair_jobs) else MOST_CELLS
    if len(cells) > most:
        return cells
    if columns.agnostic:
        return _on_every_model(columns, cells)
    kept = np.minimum(floors, columns.speeds_of(*columns.cells.spread(cells))) * KEPT
    found = solution_of(linear(columns, work_of(columns), kept))
    return cells if found is None else found.cells


def _on_every_model(columns: Columns, cells: Floats) -> Floats:
    """The same time for each job, on all models that it can use, in the measure of their workers.

    Who knows nothing of speeds prefers no model, and a job that had one alone might have the slowest for ever. Fitted in turns
    to the jobs' time and to the workers (Deming and Stephan, 1940); as it was where that does not come to an end. O(turns n m).
    """
    single, _ = columns.cells.spread(cells)
    time = single.sum(axis=1)
    fitted = np.where(columns.runs, columns.workers, 0.0)
    for _ in range(TURNS):
        total = fitted.sum(axis=1)
        fitted *= (time / np.where(total > 0, total, 1.0))[:, None]
        taken = columns.scale @ fitted / np.maximum(columns.workers, 1.0)
        if taken.max() <= 1 + CLOSE:
            return tidied(columns, fitted[columns.runs])
        fitted /= np.maximum(taken, 1.0)
    return cells


def work_of(columns: Columns) -> Floats:
    """The work done in each cell (k): workers at the best speed of their jobs."""
    cells, best = columns.cells, columns.best_speeds
    work: Floats = cells.one_speed / best[cells.one]
    paired = cells.other >= 0
    work[paired] += cells.other_speed[paired] / best[cells.other[paired]]
    return work * cells.scale
