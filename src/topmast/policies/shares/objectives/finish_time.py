"""Policy `finish-time-fairness` (Themis, Gavel's form): no job ends far later than on its share."""

from __future__ import annotations

import numpy as np

from topmast.model.errors import InvalidInput
from topmast.policies.base import Floats
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.filling import fullest
from topmast.policies.shares.rising import raised
from topmast.policies.shares.shares import Shares

SOURCE = "Themis (Mahajan et al., NSDI '20), as Gavel (OSDI '20) puts it"
NAME = "finish-time-fairness"
CLOSE = 1e-7
STEPS = 60


def solve(columns: Columns) -> Shares:
    """Minimise rho, the maximum of (elapsed + steps / speed) / (isolated + steps / isolated speed).

    With the height h = 1 / rho a job's floor is ``steps h / (whole - elapsed h)``: increasing and
    convex in h. Newton's method: the floors' tangents never exceed the floors, so that each
    program's height is an upper bound, and each allocation's own ratio a lower one. From above the
    bounds fall to the optimum quadratically; without elapsed time the first program is exact.
    """
    columns.need(columns.steps_left, "steps_left", NAME)
    busy = columns.steps_left > 0
    columns.need_speeds(NAME, (columns.can_run & (columns.isolated_speeds > 0)) | ~busy)
    _need_whole(columns, busy)
    whole_s = columns.isolated_s.copy()
    whole_s[busy] += columns.steps_left[busy] / columns.isolated_speeds[busy]
    cells = np.zeros(len(columns.cells.one))
    if busy.any():
        cells = _fairest(columns, busy, whole_s)
    single, pair = columns.cells.spread(cells)
    ratios = columns.elapsed_s.copy()
    ratios[busy] += columns.steps_left[busy] / columns.speeds_of(single, pair)[busy]
    return Shares(float((ratios / whole_s).max()), single, pair)


def _need_whole(columns: Columns, busy: np.ndarray) -> None:
    """A job with nothing left to do and no time of its own has no ratio."""
    bare = ~busy & (columns.isolated_s <= 0)
    if bare.any():
        row = int(np.argmax(bare))
        raise InvalidInput(
            f"is 0 while no steps are left, and {NAME} has no value then",
            field=f"jobs[{row}].isolated_s",
            remedy="leave the job out, or give the time",
        )


def _fairest(columns: Columns, busy: np.ndarray, whole_s: Floats) -> Floats:
    """The cells under which the greatest ratio of busy jobs is least."""
    steps, elapsed_s, whole_s = (
        np.where(busy, values, other)
        for values, other in ((columns.steps_left, 0.0), (columns.elapsed_s, 0.0), (whole_s, 1.0))
    )

    def height_at(speeds: Floats) -> float:
        with np.errstate(divide="ignore"):
            return float((whole_s[busy] / (elapsed_s + steps / speeds)[busy]).min())

    most = height_at(columns.best_speeds)
    best, best_cells = -1.0, np.zeros(len(columns.cells.one))
    height = min(most, height_at(columns.isolated_speeds))
    for _ in range(STEPS):
        left_s = whole_s - elapsed_s * height
        slope = steps * whole_s / left_s**2
        base = steps * height / left_s - slope * height
        found = raised(columns, slope, np.where(busy, base, 0.0), most)
        assert found is not None, "tangents lie below floors that can be kept"
        reached = height_at(columns.speeds_of(*columns.cells.spread(found.cells)))
        if reached > best:
            best, best_cells = reached, found.cells
        height = min(found.height, most)
        if height - best <= CLOSE * height:
            break
    kept = steps * best / (whole_s - elapsed_s * best)
    return fullest(columns, np.where(busy, kept, 0.0), best_cells)
