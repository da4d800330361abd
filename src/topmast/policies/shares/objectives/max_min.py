"""Policy `max-min-fairness` (LAS, weighted LAS): the worst-served job gets as much as possible."""

from __future__ import annotations

import numpy as np

from topmast.policies.shares.columns import Columns
from topmast.policies.shares.filling import fullest
from topmast.policies.shares.rising import raised
from topmast.policies.shares.shares import Shares

SOURCE = "Gavel (Narayanan et al., OSDI '20): max-min fairness over effective throughputs"
NAME = "max-min-fairness"


def solve(columns: Columns) -> Shares:
    """Maximise the least of scale * speed / (weight * speed on an equal part). One linear program.

    A job with too few workers keeps the objective at 0; the others are served without it.
    """
    columns.need_speeds(NAME, columns.has_measure)
    runs = columns.can_run
    fair = columns.weight * columns.equal_speeds / columns.scale
    found = raised(columns, np.where(runs, fair, 0.0)) if runs.any() else None
    cells = np.zeros(len(columns.cells.one)) if found is None else found.cells
    if runs.any():
        speeds = columns.speeds_of(*columns.cells.spread(cells))
        least = float((speeds[runs] / fair[runs]).min())
        cells = fullest(columns, np.where(runs, least * fair, 0.0), cells)
    single, pair = columns.cells.spread(cells)
    speeds = columns.speeds_of(single, pair)
    objective = float((speeds[runs] / fair[runs]).min()) if runs.all() else 0.0
    return Shares(objective, single, pair)
