"""The linear program of all policies, which differ in objective and floors.

Cells hold fractions of time. A job has at most all of its time, a type at most all of its workers
(a pair counts once). A *floor* demands that a job's speed reach ``base + slope * height``; the
height is one more variable, which most policies maximise.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, structs

from topmast.policies.base import Bools, Floats
from topmast.policies.shares.columns import Columns

DUST = 1e-12
"""Fractions below are taken for 0."""


class Program(Struct, frozen=True):
    """Maximise ``gain`` times the cells plus ``lift`` times the height."""

    columns: Columns
    gain: Floats
    """By cell (k)."""
    lift: float
    floors: Bools
    """Which jobs have a floor (n)."""
    base: Floats
    """In steps/s (n); above 0 where the slope is 0."""
    slope: Floats
    """In steps/s (n), at least 0."""
    most: float = np.inf
    """The largest useful height."""
    extra: Floats | None = None
    """Coefficients by cell; their sum must not be below 0."""
    elastic: bool = False
    """Floors with a base may be violated, at a price of 1 for all of it."""

    def with_shortfalls(self) -> Program:
        """The same program, in which floors may be undercut."""
        return structs.replace(self, elastic=True)

    def scales(self) -> tuple[Floats, float]:
        """What a floor of each job (n) and the height are measured in, to bring numbers near 1."""
        best = self.columns.best_speeds
        rising = self.floors & (self.slope > 0)
        height = float((best[rising] / self.slope[rising]).min()) if rising.any() else 1.0
        height = height or 1.0
        unit = np.where(rising, self.slope * height, np.where(self.floors, self.base, 1.0))
        return unit, height


class Solution(Struct, frozen=True):
    """The best cells (k), the height, and each floor's price (n, >= 0) for a unit of base."""

    cells: Floats
    height: float
    prices: Floats


def tidied(columns: Columns, values: Floats) -> Floats:
    """Cells without dust, that keep every limit exactly where rounding broke it a little. O(k)."""
    cells = columns.cells
    some = np.flatnonzero(values > DUST)
    one, other, kind = cells.one[some], cells.other[some], cells.kind[some]
    part = np.minimum(values[some], 1.0)
    paired = other >= 0
    time = np.bincount(one, part, columns.count)
    time += np.bincount(other[paired], part[paired], columns.count)
    over = 1.0 / np.maximum(time, 1.0)
    factor = over[one]
    factor[paired] = np.minimum(factor[paired], over[other[paired]])
    part = part * factor
    used = np.bincount(kind, part * cells.scale[some], len(columns.types))
    room = np.minimum(1.0, columns.workers / np.maximum(used, 1e-300))
    result = np.zeros(len(values))
    result[some] = part * room[kind]
    return result
