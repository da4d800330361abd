"""HiGHS, as the planners use it: a model put together row by row, and what came of it."""

from __future__ import annotations

from typing import Any, Literal

import highspy
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from topmast.slow.arrays import Floats

Status = Literal["optimal", "stopped", "infeasible"]
Whole = npt.NDArray[np.int32]
INF = float(highspy.kHighsInf)


class Rows:
    """Rows of a model that is being put together: triples of row, column and coefficient."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: list[Any] = []
        self._columns: list[Any] = []
        self._values: list[Any] = []
        self._low: list[Any] = []
        self._high: list[Any] = []

    def add(self, count: int, low: Any, high: Any) -> int:
        """``count`` new rows with their limits; the number of the first."""
        first = self.count
        self.count += count
        self._low.append(np.broadcast_to(np.asarray(low, float), count))
        self._high.append(np.broadcast_to(np.asarray(high, float), count))
        return first

    def put(self, rows: Any, columns: Any, values: Any) -> None:
        """Coefficients; the three are arrays of one length, or single numbers."""
        rows, columns, values = np.broadcast_arrays(
            np.asarray(rows), np.asarray(columns), np.asarray(values, float)
        )
        self._rows.append(rows.ravel())
        self._columns.append(columns.ravel())
        self._values.append(values.ravel())

    def matrix(self) -> tuple[Whole, Whole, Floats, Floats, Floats]:
        """The matrix by rows (start, index, value) and the limits of the rows."""
        rows = _joined(self._rows, np.int64)
        order = np.argsort(rows, kind="stable")
        start = np.zeros(self.count + 1, np.int32)
        start[1:] = np.cumsum(np.bincount(rows, minlength=self.count))
        index = _joined(self._columns, np.int32)[order]
        values = _joined(self._values, float)[order]
        return start, index, values, _joined(self._low, float), _joined(self._high, float)


def _joined(parts: list[Any], kind: Any) -> Any:
    return np.concatenate(parts).astype(kind) if parts else np.zeros(0, kind)


class Solved(Struct, frozen=True):
    """What HiGHS found. ``values`` None: no feasible point; ``bound``: a lower bound, perhaps
    -inf.
    """

    status: Status
    values: Floats | None
    bound: float
    row_duals: Floats | None = None


class Model(Struct, frozen=True):
    """A model to minimise: ``whole`` marks the variables that must be whole numbers."""

    cost: Floats
    low: Floats
    high: Floats
    rows: Rows
    whole: npt.NDArray[np.bool_] | None = None
    offset: float = 0.0


class Effort(Struct, frozen=True):
    """How far HiGHS goes: seconds, the gap at which it stops, nodes (None: no limit)."""

    time_s: float = INF
    gap: float = 1e-9
    nodes: int | None = None
    method: str = "choose"


def solve(model: Model, effort: Effort, start: tuple[Any, Floats] | None = None) -> Solved:
    """Minimise, from a point of which ``start`` says some variables and values. One thread, no
    output.
    """
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("solver", effort.method)
    if effort.time_s < INF:
        solver.setOptionValue("time_limit", max(0.0, float(effort.time_s)))
    if model.whole is not None:
        solver.setOptionValue("mip_rel_gap", effort.gap)
        solver.setOptionValue("mip_abs_gap", 1e-9)
        if effort.nodes is not None:
            solver.setOptionValue("mip_max_nodes", effort.nodes)
    solver.passModel(_highs_lp(model))
    if start is not None:
        solver.setSolution(len(start[0]), np.asarray(start[0], np.int32), start[1])
    solver.run()
    return _outcome(solver, model)


def curve_of(model: Model, limit_s: float) -> list[dict[str, float | None]]:
    """Minimise for ``limit_s`` seconds, to watch: time, objective (None: none yet), bound and
    gap.
    """
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", limit_s)
    solver.passModel(_highs_lp(model))
    curve: list[dict[str, float | None]] = []

    def watch(event: Any) -> None:
        data = event.data_out
        _add_point(curve, data.running_time, data.mip_primal_bound, data.mip_dual_bound)

    solver.cbMipLogging += watch
    solver.cbMipImprovingSolution += watch
    solver.run()
    info = solver.getInfo()
    _add_point(curve, solver.getRunTime(), info.objective_function_value, info.mip_dual_bound)
    return curve


def _add_point(
    curve: list[dict[str, float | None]], wall_s: float, objective: float, bound: float
) -> None:
    found, proven = abs(objective) < 1e100 and objective != 0.0, abs(bound) < 1e100
    gap = (objective - bound) / max(abs(objective), 1e-9) if found and proven else None
    curve.append(
        {
            "wall_s": wall_s,
            "objective": objective if found else None,
            "bound": bound if proven else None,
            "gap": gap,
        }
    )


def _highs_lp(model: Model) -> Any:
    start, index, values, low, high = model.rows.matrix()
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(model.cost), len(low)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = model.cost, model.low, model.high
    lp.row_lower_, lp.row_upper_ = low, high
    # Without the offset the gap of a MIP would be measured without the constant.
    lp.offset_ = model.offset
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = start, index, values
    if model.whole is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[int(whole)] for whole in model.whole]
    return lp


def _outcome(solver: Any, model: Model) -> Solved:
    status = solver.getModelStatus()
    kinds = highspy.HighsModelStatus
    if status in (kinds.kInfeasible, kinds.kUnboundedOrInfeasible):
        return Solved("infeasible", None, INF)
    info, solution = solver.getInfo(), solver.getSolution()
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = np.array(solution.col_value) if feasible and solution.value_valid else None
    done: Status = "optimal" if status == kinds.kOptimal else "stopped"
    if model.whole is not None:
        return Solved(done, values, float(info.mip_dual_bound))
    bound = float(info.objective_function_value) if done == "optimal" else -INF
    duals = np.array(solution.row_dual) if solution.dual_valid else None
    return Solved(done, values, bound, duals)
