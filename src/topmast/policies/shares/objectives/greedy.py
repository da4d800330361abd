"""Policies `fifo` and `sjf`: one job after the other takes whole workers of one type."""

from __future__ import annotations

import numpy as np

from topmast.policies.base import Floats, Ints
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.shares import Shares

SOURCE = "Gavel (Narayanan et al., OSDI '20): FIFO and shortest job first"
FIFO, SJF = "fifo", "sjf"


def solve_fifo(columns: Columns) -> Shares:
    """By arrival, then as listed. O(n m)."""
    return _one_by_one(columns, np.argsort(columns.arrival_s, kind="stable"))


def solve_sjf(columns: Columns) -> Shares:
    """By seconds left on the fastest type, then arrival, then as listed. O(n log n + n m)."""
    columns.need(columns.steps_left, "steps_left", SJF, columns.runs_alone)
    fastest = columns.true_speeds.max(axis=1)
    left_s = np.where(fastest > 0, columns.steps_left / np.where(fastest > 0, fastest, 1.0), np.inf)
    return _one_by_one(columns, np.lexsort((columns.arrival_s, left_s)))


def _one_by_one(columns: Columns, order: Ints) -> Shares:
    """Each on the fastest type with room; knowing nothing of types, on the first with room.

    The first that fits nowhere now stops those behind it; one that could never run is passed over.
    """
    single = np.zeros(columns.runs.shape)
    free = columns.workers.copy()
    for row in order.tolist():
        if not columns.runs_alone[row]:
            continue
        fits = columns.runs[row] & (columns.scale[row] <= free)
        if not fits.any():
            break
        speeds = fits.astype(float) if columns.agnostic else fits * columns.true_speeds[row]
        kind = int(np.argmax(speeds))
        single[row, kind] = 1.0
        free[kind] -= columns.scale[row]
    return Shares(_objective(columns, single), single, np.zeros(columns.pair_runs.shape))


def _objective(columns: Columns, single: Floats) -> float:
    """The sum of speeds, each over that on the job's fastest type."""
    fastest = columns.true_speeds.max(axis=1)
    speeds = (columns.true_speeds * single).sum(axis=1)
    ran = speeds > 0
    return float((speeds[ran] / fastest[ran]).sum())
