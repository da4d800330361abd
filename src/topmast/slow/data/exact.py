"""The whole problem given to HiGHS: proven optimal where it is small, else with the gap that is
left.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from topmast.slow.arrays import Bools, Floats
from topmast.slow.data.columns import Columns
from topmast.slow.data.copies import is_allowed, sources_of
from topmast.slow.data.formulation import formulate
from topmast.slow.data.search import LocalSearch
from topmast.slow.data.serving import best_service
from topmast.slow.highs import Effort, solve

SLACKS = (0.0, 1e-9, 1e-7, 1e-5)
"""Parts of the limits that are left free, tried in turn until rounding breaks no rule."""


class Solution(Struct, frozen=True):
    """A placement with its shares (None: nothing was found), and a lower bound of the objective.

    ``refuted``: it is proven that there is no placement.
    """

    placed: Bools | None
    serve: Floats | None
    bound: float
    refuted: bool = False


def solve_exactly(
    columns: Columns, left_s: Callable[[], float], start: Bools | None = None
) -> Solution:
    """Solve with HiGHS for ``left_s()`` seconds. ``start``: a placement to begin with."""
    bound = -np.inf
    start = _begun(columns, start)
    for slack in SLACKS:
        program = formulate(columns, np.zeros_like(columns.can), columns.can, slack)
        point = program.start(start) if start is not None else None
        solved = solve(program.model, Effort(time_s=left_s()), point)
        if slack == 0.0:
            bound = solved.bound
            if solved.status == "infeasible":
                return Solution(None, None, np.inf, refuted=True)
        if solved.values is None:
            break
        there = program.replica >= 0
        placed = np.zeros_like(columns.can)
        placed[there] = solved.values[program.replica[there]] > 0.5
        if is_allowed(columns, placed) and sources_of(columns, placed) is not None:
            return Solution(placed, best_service(columns, placed), bound)
    return Solution(start, None if start is None else best_service(columns, start), bound)


def _begun(columns: Columns, start: Bools | None) -> Bools | None:
    """A placement to begin with: ``start`` if it keeps the rules, else what a short descent
    finds.
    """
    if start is not None:
        start = start & columns.can
        if is_allowed(columns, start) and sources_of(columns, start) is not None:
            return start
    search = LocalSearch(columns)
    if not search.begin():
        return None
    search.descend(20)
    placed: Bools = search.state.placed
    return placed
