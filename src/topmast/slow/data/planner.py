"""One problem solved: by HiGHS alone where it is small, by prices and local search where it is
large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from topmast.model.errors import TopmastError
from topmast.slow.arrays import Bools, Floats
from topmast.slow.data import warm_start as warm_starts
from topmast.slow.data.ablation import Ablation, ablated
from topmast.slow.data.answer import document_of, refusal_of
from topmast.slow.data.columns import Columns, columns_of
from topmast.slow.data.conflict import conflict_of, smallest
from topmast.slow.data.copies import is_allowed
from topmast.slow.data.exact import Solution, solve_exactly
from topmast.slow.data.large import Answer, Seconds, Told, WarmStart, solve_large
from topmast.slow.data.problem import Problem

Solver = Literal["exact", "large"]
SMALL = 20_000
"""Replicas and shares up to which HiGHS is given the whole problem, unless an option says
otherwise.
"""


class Options(Struct, frozen=True, kw_only=True):
    """How to solve: which solver (None: by size), for how long, and which ablation."""

    solver: Solver | None = None
    time_limit_s: float = 60.0
    ablation: Ablation = "soft-gpu"


def untold(stage: str, objective: float, bound: float) -> None:
    """Where progress is not reported."""


class Planner:
    """Plans one problem after the other, each from the warm start of the last if they are of one
    shape.

    ``now_s`` is a clock. The answers are documents as data-plan has them.
    """

    def __init__(self, options: Options, now_s: Callable[[], float], told: Told = untold) -> None:
        self.options = options
        self._now_s = now_s
        self._told = told
        self._warm_start: tuple[list[int], WarmStart] | None = None

    def plan(self, problem: Problem, warm: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer to ``problem``; ``warm`` is an earlier answer to begin with."""
        begun_s = self._now_s()
        limit_s = self.options.time_limit_s

        def left_s() -> float:
            return limit_s - (self._now_s() - begun_s)

        columns = ablated(columns_of(problem), self.options.ablation)
        document = self._document(problem, columns, left_s, warm)
        return {**document, "wall_s": self._now_s() - begun_s}

    def _document(
        self, problem: Problem, columns: Columns, left_s: Seconds, warm: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        conflict = None if self._still_fits(columns) else conflict_of(columns)
        if conflict is not None:
            return refusal_of(problem, conflict)
        solver = self.options.solver or _by_size(columns)
        if solver == "exact":
            start = None if warm is None else placement_of(problem, warm)
            answer = Answer(solve_exactly(columns, left_s, start), None)
        else:
            answer = self._large(problem, columns, left_s, warm)
        found: Solution = answer.found
        if found.refuted:
            return refusal_of(problem, smallest(columns))
        if found.placed is None or found.serve is None:
            remedy = f"there may be one: give more than {self.options.time_limit_s:g} s"
            raise TopmastError(f"no placement was found in the time ({remedy})")
        document = document_of(problem, columns, found.placed, found.serve, found.bound)
        document["solver"], document["ablation"] = solver, self.options.ablation
        if answer.warm_start is not None:
            self._warm_start = warm_starts.shape_of(columns), answer.warm_start
            document["duals"] = warm_starts.written(columns, answer.warm_start)
        return document

    def _still_fits(self, columns: Columns) -> bool:
        """Whether the last placement keeps the rules of this problem: then nothing is in
        conflict.
        """
        if self._warm_start is None or self._warm_start[0] != warm_starts.shape_of(columns):
            return False
        return is_allowed(columns, self._warm_start[1].placed & columns.can)

    def _large(
        self, problem: Problem, columns: Columns, left_s: Seconds, warm: Mapping[str, Any] | None
    ) -> Answer:
        warm_start, start = None, None
        if warm is not None:
            start = placement_of(problem, warm)
            serve = serve_of(problem, warm)
            warm_start = warm_starts.read(columns, warm.get("duals"), start, serve)
        elif self._warm_start is not None and self._warm_start[0] == warm_starts.shape_of(columns):
            warm_start = self._warm_start[1]
        return solve_large(columns, left_s, self._told, warm_start, start)


def _by_size(columns: Columns) -> Solver:
    return "exact" if columns.can.sum() + columns.may_serve.sum() <= SMALL else "large"


def placement_of(problem: Problem, answer: Mapping[str, Any]) -> Bools:
    """The placement of an earlier answer, as far as it speaks of tables and regions there still
    are.
    """
    region = {each.name: r for r, each in enumerate(problem.regions)}
    placement = answer.get("placement") or {}
    placed = np.zeros((len(problem.tables), len(region)), bool)
    for d, table in enumerate(problem.tables):
        for name in placement.get(table.name, ()):
            if name in region:
                placed[d, region[name]] = True
    return placed


def serve_of(problem: Problem, answer: Mapping[str, Any]) -> Floats:
    """The shares of an earlier answer, likewise."""
    region = {each.name: r for r, each in enumerate(problem.regions)}
    serve = answer.get("serve") or {}
    shares = np.zeros((len(problem.workloads), len(region)))
    for w, workload in enumerate(problem.workloads):
        for name, share in serve.get(workload.name, {}).items():
            if name in region:
                shares[w, region[name]] = share
    return shares
