"""The program solved by HiGHS: exact, a vertex, with prices; for every program, at its own pace."""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np

from topmast.model.errors import TopmastError
from topmast.policies.base import Floats, Ints
from topmast.policies.shares.program import Program, Solution, tidied

TOLERANCE = 1e-9
INF = float(highspy.kHighsInf)
TRIES: tuple[dict[str, Any], ...] = (
    {"presolve": "off", "solver": "simplex"},
    {"presolve": "off", "solver": "simplex", "simplex_strategy": 4},
    {"presolve": "on", "solver": "choose", "primal_feasibility_tolerance": 1e-7},
)
"""Options in turn, until one ends with an answer."""


def solve(program: Program) -> Solution | None:
    """The best solution; None where the floors cannot be kept. Raises TopmastError if HiGHS gives up.

    Complexity: that of the simplex method; seconds at some ten thousand cells.
    """
    unit, height = program.scales()
    model = model_of(program, unit, height)
    tries = TRIES[1:] + TRIES[:1] if _begins_within(program) else TRIES
    for options in tries:
        solver = solver_with(options)
        solver.passModel(model)
        solver.run()
        status, kinds = solver.getModelStatus(), highspy.HighsModelStatus
        if status == kinds.kOptimal:
            return solution_of(program, solver.getSolution(), unit, height)
        if status == kinds.kInfeasible:
            return None
    raise TopmastError(f"HiGHS found no answer: {solver.modelStatusToString(status)}")


def solver_with(options: dict[str, Any]) -> Any:
    """HiGHS with these options, and those that always hold."""
    make: Any = highspy.Highs
    solver = make()
    for name, value in {**_ALWAYS, **options}.items():
        solver.setOptionValue(name, value)
    return solver


def _begins_within(program: Program) -> bool:
    """Whether no time for anybody keeps all limits and sums are asked for: primal simplex is faster then."""
    return not program.lift and not program.floors.any() and program.extra is None


_ALWAYS = {
    "output_flag": False,
    "threads": 1,
    "primal_feasibility_tolerance": TOLERANCE,
    "dual_feasibility_tolerance": TOLERANCE,
}


def model_of(program: Program, unit: Floats, height: float) -> Any:
    """Rows: floors, in ``unit`` (n), time of jobs, workers of types, the extra one; columns: cells, the height."""
    columns, cells = program.columns, program.columns.cells
    jobs, kinds, count = columns.count, len(columns.types), len(cells.one)
    floors = np.flatnonzero(program.floors)
    row_of = np.full(jobs + 1, -1)
    row_of[floors] = np.arange(len(floors))
    first_time, first_kind = len(floors), len(floors) + jobs
    cell = np.arange(count)
    room = np.maximum(columns.workers, 1.0)
    unit_at = np.append(unit, 1.0)
    parts: list[tuple[Ints, Ints, Floats]] = [
        (row_of[cells.one], cell, cells.one_speed / unit_at[cells.one]),
        (row_of[cells.other], cell, cells.other_speed / unit_at[cells.other]),
        (first_time + cells.one, cell, np.ones(count)),
        (np.where(cells.other >= 0, first_time + cells.other, -1), cell, np.ones(count)),
        (first_kind + cells.kind, cell, cells.scale / room[cells.kind]),
        (np.arange(len(floors)), np.full(len(floors), count),
         -program.slope[floors] * height / unit[floors]),
    ]  # fmt: skip
    rows = first_kind + kinds
    low = np.full(rows, -INF)
    high = np.ones(rows)
    high[: len(floors)] = INF
    low[: len(floors)] = program.base[floors] / unit[floors]
    if program.extra is not None:
        size = float(np.abs(program.extra).max()) or 1.0
        parts.append((np.full(count, rows), cell, program.extra / size))
        low, high = np.append(low, -TOLERANCE), np.append(high, INF)
    lacking = len(floors) if program.elastic else 0
    parts.append((np.arange(lacking), count + 1 + np.arange(lacking), np.ones(lacking)))
    gain_size = float(np.abs(program.gain).max(initial=0.0)) or 1.0
    lp = highspy.HighsLp()
    lp.sense_ = highspy.ObjSense.kMaximize
    wide = count + 1 + lacking
    lp.num_col_, lp.num_row_ = wide, len(low)
    lp.col_cost_ = np.concatenate(
        [program.gain / gain_size, [program.lift], np.full(lacking, -1.0)]
    )
    lp.col_lower_ = np.zeros(wide)
    most = program.most / height
    upper = np.full(wide, INF)
    upper[count] = most if most < INF else INF
    lp.col_upper_ = upper
    lp.row_lower_, lp.row_upper_ = low, high
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = _by_column(parts, wide)
    return lp


def _by_column(parts: list[tuple[Ints, Ints, Floats]], count: int) -> tuple[Any, Any, Any]:
    """Triples of row, column and value as start, index and value of a matrix by columns."""
    row = np.concatenate([part[0] for part in parts])
    column = np.concatenate([part[1] for part in parts])
    value = np.concatenate([part[2] for part in parts])
    kept = (row >= 0) & (value != 0)
    row, column, value = row[kept], column[kept], value[kept]
    order = np.argsort(column, kind="stable")
    start = np.zeros(count + 1, np.int32)
    start[1:] = np.cumsum(np.bincount(column, minlength=count))
    return start, row[order].astype(np.int32), value[order]


def solution_of(program: Program, found: Any, unit: Floats, height: float) -> Solution:
    """What HiGHS found, in steps/s again."""
    values = np.array(found.col_value, float)
    floors = np.flatnonzero(program.floors)
    prices = np.zeros(program.columns.count)
    duals = np.array(found.row_dual, float)[: len(floors)]
    prices[floors] = np.maximum(-duals, 0.0) * height / unit[floors]
    count = len(program.columns.cells.one)
    return Solution(tidied(program.columns, values[:count]), float(values[count]) * height, prices)
