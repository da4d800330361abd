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
    """The optimum; None where the floors cannot be kept. Raises TopmastError if HiGHS gives up.

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
    set_options(solver, options)
    return solver


def set_options(solver: Any, options: dict[str, Any]) -> None:
    """Let a solver go on with these options, and those that always hold."""
    for name, value in {**_ALWAYS, **options}.items():
        solver.setOptionValue(name, value)


def _begins_within(program: Program) -> bool:
    """Whether zero time keeps all limits, with sums to maximise: primal simplex is faster then."""
    return not program.lift and not program.floors.any() and program.extra is None


_ALWAYS = {
    "output_flag": False,
    "threads": 1,
    "primal_feasibility_tolerance": TOLERANCE,
    "dual_feasibility_tolerance": TOLERANCE,
}


def model_of(program: Program, unit: Floats, height: float, cells: Ints | None = None) -> Any:
    """The model for HiGHS.

    Columns: the height, the slack of floors if allowed, and ``cells`` (some by number, or None:
    all). Rows: floors in ``unit`` (n), time of jobs, workers of types, the extra row.
    """
    columns = program.columns
    floors = np.flatnonzero(program.floors)
    lacking = len(floors) if program.elastic else 0
    every = np.arange(len(columns.cells.one)) if cells is None else cells
    rows = len(floors) + columns.count + len(columns.types)
    low = np.full(rows, -INF)
    high = np.ones(rows)
    high[: len(floors)] = INF
    low[: len(floors)] = program.base[floors] / unit[floors]
    if program.extra is not None:
        low, high = np.append(low, -TOLERANCE), np.append(high, INF)
    before = 1 + lacking
    parts = [
        (np.arange(len(floors)), np.zeros(len(floors), np.int64),
         -program.slope[floors] * height / unit[floors]),
        (np.arange(lacking), 1 + np.arange(lacking), np.ones(lacking)),
        *((row, column + before, value) for row, column, value in entries(program, unit, every)),
    ]  # fmt: skip
    lp = highspy.HighsLp()
    lp.sense_ = highspy.ObjSense.kMaximize
    wide = before + len(every)
    lp.num_col_, lp.num_row_ = wide, len(low)
    lp.col_cost_ = np.concatenate([[program.lift], np.full(lacking, -1.0), gain_of(program)[every]])
    lp.col_lower_ = np.zeros(wide)
    most = program.most / height
    upper = np.full(wide, INF)
    upper[0] = most if most < INF else INF
    lp.col_upper_ = upper
    lp.row_lower_, lp.row_upper_ = low, high
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = by_column(parts, wide)
    return lp


def gain_of(program: Program) -> Floats:
    """What cells (k) add to the sum, brought near 1."""
    gain: Floats = program.gain / (float(np.abs(program.gain).max(initial=0.0)) or 1.0)
    return gain


Entries = list[tuple[Ints, Ints, Floats]]
"""Rows (-1: none), columns and values of coefficients."""


def entries(program: Program, unit: Floats, cells: Ints) -> Entries:
    """The coefficients of ``cells`` (numbers), which are the columns 0, 1, ... in this order."""
    columns, of = program.columns, program.columns.cells
    one, other, kind = of.one[cells], of.other[cells], of.kind[cells]
    floors = np.flatnonzero(program.floors)
    row_of = np.full(columns.count + 1, -1)
    row_of[floors] = np.arange(len(floors))
    first_time = len(floors)
    first_kind = first_time + columns.count
    column = np.arange(len(cells))
    unit_at = np.append(unit, 1.0)
    parts: Entries = [
        (row_of[one], column, of.one_speed[cells] / unit_at[one]),
        (row_of[other], column, of.other_speed[cells] / unit_at[other]),
        (first_time + one, column, np.ones(len(cells))),
        (np.where(other >= 0, first_time + other, -1), column, np.ones(len(cells))),
        (first_kind + kind, column, of.scale[cells] / room_of(program)[kind]),
    ]
    if program.extra is not None:
        extra = program.extra / (float(np.abs(program.extra).max()) or 1.0)
        row = np.full(len(cells), first_kind + len(columns.types))
        parts.append((row, column, extra[cells]))
    return parts


def room_of(program: Program) -> Floats:
    """What the workers of types (m) are measured in."""
    return np.maximum(program.columns.workers, 1.0)


def by_column(parts: Entries, count: int) -> tuple[Any, Any, Any]:
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


def solution_of(
    program: Program, found: Any, unit: Floats, height: float, cells: Ints | None = None
) -> Solution:
    """What HiGHS found for ``cells`` (by number, None: all), in steps/s again."""
    values = np.array(found.col_value, float)
    floors = np.flatnonzero(program.floors)
    prices = np.zeros(program.columns.count)
    duals = np.array(found.row_dual, float)[: len(floors)]
    prices[floors] = np.maximum(-duals, 0.0) * height / unit[floors]
    before = 1 + (len(floors) if program.elastic else 0)
    time = np.zeros(len(program.columns.cells.one))
    time[slice(None) if cells is None else cells] = values[before:]
    return Solution(tidied(program.columns, time), float(values[0]) * height, prices)
