"""The floors raised as far as they go: the program behind most policies."""

from __future__ import annotations

import numpy as np

from topmast.model.errors import TopmastError
from topmast.policies.base import Floats
from topmast.policies.shares import simplex
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.program import Program, Solution


def raised(
    columns: Columns, slope: Floats, base: Floats | None = None, most: float = np.inf
) -> Solution | None:
    """The highest ``height`` <= ``most`` at which each job's speed is at least ``base + slope * height``.

    ``slope`` and ``base`` (n) in steps/s; a job with neither has no floor. None: not even height 0 can be kept.
    """
    base = np.zeros(columns.count) if base is None else base
    floors = (slope > 0) | (base > 0)
    if not floors.any():
        raise TopmastError("no floor to raise")
    nothing = np.zeros(len(columns.cells.one))
    program = Program(columns, nothing, 1.0, floors, base, slope, most)
    return simplex.solve(program)
