"""Of all optimal allocations of a policy, the one in which the GPUs do most work.

A policy that raises the worst-off job says nothing about the others: at the best height time is
left, and there are many ways to give it away. An interior solution spreads it over all, a vertex is
arbitrary. Both make many small parts, which rounds handle badly: a tenth is one round in an hour.
So one more program gives the time to where it makes most work.
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
"""The part of its speed that each job keeps for sure: the last digit may be out of reach."""
TURNS, CLOSE = 500, 1e-7
"""How often time is fitted, and how far no type's workers are overdrawn then."""


def fullest(columns: Columns, floors: Floats, cells: Floats) -> Floats:
    """The cells (k) with most work at speeds of at least ``floors`` (n, steps/s).

    ``cells`` (k) keep these floors; a floor of 0 is none. Work is the speed of a job over that in
    its best cell, times its workers. One linear program.
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
    """The same time for each job, spread over its models in proportion to their workers.

    A policy that knows no speeds has no preferred model. If it gave a job one model only, that
    might be the slowest one for ever. Rows and columns are fitted in turns (Deming and Stephan,
    1940); without convergence nothing changes. O(turns n m).
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
