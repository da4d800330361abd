"""Policy `allox-oldest`: AlloX as the public code of Gavel and Shockwave has it.

A job that has a worker keeps it until it ends. The others queue as under `allox`, but only the
oldest of them. A gang queues like a job of one worker, and has the part of the time that makes one
worker's worth of it, as long as it is the first of its queue.
"""

from __future__ import annotations

import numpy as np

from topmast.policies.shares.columns import Columns
from topmast.policies.shares.queues import queues
from topmast.policies.shares.shares import Shares

SOURCE = "AlloX (Le et al., EuroSys '20) in the code of Shockwave (Zheng et al., NSDI '23)"
NAME = "allox-oldest"
OLDEST = 0.2
"""The part of the jobs that wait that is looked at, in the interest of fairness; at least as many
as there are free workers.
"""
ALL = 1.0 - 1e-9


def solve(columns: Columns) -> Shares:
    """Minimise the sum of completion times of those that are looked at. O(n^3) at worst."""
    columns.need(columns.steps_left, "steps_left", NAME)
    columns.need_speeds(NAME)
    single = np.where(columns.runs & (columns.before >= ALL), 1.0, 0.0)
    keeps = single.any(axis=1)
    free = columns.workers - columns.scale @ single
    rows = np.flatnonzero(~keeps)
    rows = rows[np.argsort(columns.arrival_s[rows], kind="stable")]
    rows = rows[: max(int(OLDEST * len(rows)), int(free.sum()))]
    ends_s = float(columns.elapsed_s[rows].sum())
    if len(rows) and free.sum() >= 1:
        found = queues(columns, rows, free)
        ends_s += found.spent_s
        for row, kind in found.first:
            single[row, kind] = 1.0 / columns.scale[row]
    return Shares(ends_s, single, np.zeros(columns.pair_runs.shape))
