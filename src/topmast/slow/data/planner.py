"""One problem solved: by HiGHS alone where it is small, by prices and local search where it is large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from topmast.slow.data.ablation import Ablation, ablated
from topmast.slow.data.answer import document_of, refusal_of
from topmast.slow.data.columns import Bools, columns_of
from topmast.slow.data.conflict import conflict_of, smallest
from topmast.slow.data.copies import is_allowed
from topmast.slow.data.exact import Found, solve_exactly
from topmast.slow.data.problem import Problem

Solver = Literal["exact", "large"]
Seconds = Callable[[], float]


class Options(Struct, frozen=True, kw_only=True):
    """How to solve: which solver (None: by size), for how long, and which ablation."""

    solver: Solver | None = None
    time_limit_s: float = 60.0
    ablation: Ablation = "soft-gpu"


def plan(
    problem: Problem, options: Options, now_s: Seconds, warm: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The answer to ``problem`` as a document; ``now_s`` is a clock, ``warm`` an earlier answer."""
    begun_s = now_s()

    def left_s() -> float:
        return options.time_limit_s - (now_s() - begun_s)

    columns = ablated(columns_of(problem), options.ablation)
    conflict = conflict_of(columns)
    if conflict is not None:
        return {**refusal_of(problem, conflict), "wall_s": now_s() - begun_s}
    start = None if warm is None else placement_of(problem, warm)
    found: Found = solve_exactly(columns, left_s, start)
    if found.refuted:
        return {**refusal_of(problem, smallest(columns)), "wall_s": now_s() - begun_s}
    assert found.placed is not None and found.serve is not None
    document = document_of(problem, columns, found.placed, found.serve, found.bound)
    return {**document, "wall_s": now_s() - begun_s}


def placement_of(problem: Problem, answer: dict[str, Any]) -> Bools:
    """The placement of an earlier answer, as far as it speaks of tables and regions there still are."""
    region = {each.name: r for r, each in enumerate(problem.regions)}
    placed = np.zeros((len(problem.tables), len(region)), bool)
    for d, table in enumerate(problem.tables):
        for name in answer.get("placement", {}).get(table.name, ()):
            if name in region:
                placed[d, region[name]] = True
    return placed
