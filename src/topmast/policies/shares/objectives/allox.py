"""Policy `allox` (AlloX, EuroSys '20): jobs queue at workers for the least mean completion time."""

from __future__ import annotations

import numpy as np

from topmast.model.errors import InvalidInput
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.queues import queues
from topmast.policies.shares.shares import Shares

SOURCE = "AlloX (Le et al., EuroSys '20)"
NAME = "allox"


def solve(columns: Columns) -> Shares:
    """Minimise the sum of completion times; the first job of every queue runs now. O(n^3)."""
    _check(columns)
    found = queues(columns, np.arange(columns.count), columns.workers)
    single = np.zeros(columns.runs.shape)
    for row, kind in found.first:
        single[row, kind] = 1.0
    total_s = float(columns.elapsed_s.sum()) + found.spent_s
    return Shares(total_s, single, np.zeros(columns.pair_runs.shape))


def _check(columns: Columns) -> None:
    wide = columns.scale != 1
    if wide.any():
        row = int(np.argmax(wide))
        raise InvalidInput(
            f"is {int(columns.scale[row])}, and {NAME} knows only jobs of one worker",
            field=f"jobs[{row}].scale_factor",
            remedy="1, or another policy",
        )
    columns.need(columns.steps_left, "steps_left", NAME)
    columns.need_speeds(NAME)
