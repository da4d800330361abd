"""Policy `max-throughput`: as many steps a second as possible, of any job."""

from __future__ import annotations

import numpy as np

from topmast.policies.shares.columns import Columns
from topmast.policies.shares.linear import best_of, linear
from topmast.policies.shares.shares import Shares

SOURCE = "Gavel (Narayanan et al., OSDI '20): maximise total throughput"
NAME = "max-throughput"


def solve(columns: Columns) -> Shares:
    """Maximise the sum of speeds in raw steps/s: short steps count more. One linear program."""
    cells = columns.cells
    values = np.zeros(len(cells.one))
    if len(values):
        values = best_of(linear(columns, cells.one_speed + cells.other_speed)).cells
    single, pair = columns.cells.spread(values)
    return Shares(float(columns.speeds_of(single, pair).sum()), single, pair)
