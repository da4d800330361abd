"""Policy `makespan`: the last job ends as soon as can be."""

from __future__ import annotations

import numpy as np

from topmast.policies.base import Bools, Floats
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.filling import fullest
from topmast.policies.shares.rising import raised
from topmast.policies.shares.shares import Shares

SOURCE = "Gavel (Narayanan et al., OSDI '20): minimise makespan"
NAME = "makespan"


def solve(columns: Columns) -> Shares:
    """Minimise the most of steps left / speed, in seconds.

    One linear program: with the height h = 1 / makespan every job's floor is ``steps_left * h``.
    Nothing is left to do: the objective is 0.
    """
    columns.need(columns.steps_left, "steps_left", NAME)
    busy = columns.steps_left > 0
    columns.need_speeds(NAME, columns.can_run | ~busy)
    if not busy.any():
        return Shares(0.0, *columns.cells.spread(np.zeros(len(columns.cells.one))))
    found = raised(columns, columns.steps_left)
    assert found is not None, "no floor is above 0 at height 0"
    last_s = _last_s(columns, found.cells, busy)
    cells = fullest(columns, columns.steps_left / last_s, found.cells)
    return Shares(_last_s(columns, cells, busy), *columns.cells.spread(cells))


def _last_s(columns: Columns, cells: Floats, busy: Bools) -> float:
    speeds = columns.speeds_of(*columns.cells.spread(cells))
    return float((columns.steps_left[busy] / speeds[busy]).max())
