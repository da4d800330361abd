"""The floors raised as far as they go: the program behind most policies."""

from __future__ import annotations

import numpy as np

from topmast.model.errors import TopmastError
from topmast.policies.base import Floats
from topmast.policies.shares import simplex
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.program import Program, Solution

FEW = 1_200
"""Cells up to which HiGHS is fast enough, so that a short command need not load compiled code."""


def raised(
    columns: Columns, slope: Floats, base: Floats | None = None, most: float = np.inf
) -> Solution | None:
    """The highest ``height`` <= ``most`` with job speeds of at least ``base + slope * height``.

    ``slope`` and ``base`` (n) are in steps/s; a job with neither has no floor. None: not even
    height 0 is possible.
    """
    base = np.zeros(columns.count) if base is None else base
    floors = (slope > 0) | (base > 0)
    if not floors.any():
        raise TopmastError("no floor to raise")
    nothing = np.zeros(len(columns.cells.one))
    program = Program(columns, nothing, 1.0, floors, base, slope, most)
    many = len(nothing) > FEW or (columns.is_warm and not len(columns.pair_jobs))
    if many and _all_rise(program):
        found = _fast(program)
        if found is not None:
            return found
    return simplex.solve(program)


def prepare(columns: Columns) -> None:
    """Load, or on a machine's first use compile, what a problem of this size is solved with."""
    if len(columns.cells.one) > FEW and not len(columns.pair_jobs):
        from topmast.policies.shares import interior

        interior.load()


def _fast(program: Program) -> Solution | None:
    """By an interior-point method, imported here because its compiler takes a while to load."""
    if len(program.columns.pair_jobs):
        from topmast.policies.shares import interior_pairs

        return interior_pairs.solve(program)
    from topmast.policies.shares import interior

    return interior.solve(program)


def _all_rise(program: Program) -> bool:
    """Whether an interior point surely exists: all floors rise, and begin at 0 or below."""
    rises = (program.slope > 0) & (program.base <= 0)
    return bool(rises[program.floors].all())
