"""Policies `min-cost` and `min-cost-slo`: most steps for a dollar, without and with deadlines."""

from __future__ import annotations

import numpy as np

from topmast.model.errors import InvalidInput
from topmast.policies.base import Bools, Floats
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.linear import best_of, linear, nearest, solution_of
from topmast.policies.shares.shares import Shares

SOURCE = "Gavel (Narayanan et al., OSDI '20): minimise cost, with and without SLOs"
NAME, NAME_SLO = "min-cost", "min-cost-slo"
CLOSE = 1e-9
KEPT = 1 - 1e-6
STEPS = 60


def solve(columns: Columns) -> Shares:
    """Maximise the sum of speeds over the total cost, then the speed.

    Degenerate by nature: the optimum is one cell, the cheapest step, and any equally cheap ones.
    """
    return _cheapest(columns, NAME, np.zeros(columns.count))


def solve_with_deadlines(columns: Columns) -> Shares:
    """The same, where every job with a deadline is fast enough; else the jobs that cannot be."""
    dated = ~np.isnan(columns.deadline_s)
    columns.need(columns.steps_left, "steps_left", NAME_SLO, dated)
    floors = np.zeros(columns.count)
    due = dated & (columns.steps_left > 0)
    late = due & (columns.deadline_s <= 0)
    met = due & ~late
    floors[met] = columns.steps_left[met] / columns.deadline_s[met]
    if not late.any():
        _check_costs(columns, NAME_SLO)
    feasible = not late.any() and solution_of(linear(columns, _speeds(columns), floors)) is not None
    if not feasible:
        return _violated(columns, floors, late)
    return _cheapest(columns, NAME_SLO, floors)


def _speeds(columns: Columns) -> Floats:
    return columns.cells.one_speed + columns.cells.other_speed


def _check_costs(columns: Columns, policy: str) -> None:
    """Every type that may be used has a price, and there is something to buy."""
    cells = columns.cells
    if not len(cells.one):
        message = f"no job can run on any type, and {policy} has no value then"
        raise InvalidInput(message, field="jobs", remedy="give throughputs above 0")
    for kind in np.unique(cells.kind).tolist():
        cost, field = columns.costs[kind], f"costs.{columns.types[kind]}"
        if np.isnan(cost):
            raise InvalidInput(
                f"missing, and {policy} needs it", field=field, remedy="usd per hour"
            )
        if cost <= 0:
            message = "is 0: a free worker has no steps per dollar"
            raise InvalidInput(message, field=field, remedy="a price above 0")


def _cheapest(columns: Columns, policy: str, floors: Floats) -> Shares:
    """Dinkelbach's method: the ratio r is best when ``max speed - r cost`` is 0; r rises to it.

    Each program is linear; a handful suffices (superlinear). Then, among the cells that reach the
    ratio, the most speed.
    """
    _check_costs(columns, policy)
    cells, speeds = columns.cells, _speeds(columns)
    costs = cells.scale * columns.costs[cells.kind]
    ratio = float((speeds / costs).max())  # no sum of ratios is better than the best of them
    values = np.zeros(len(speeds))
    if floors.any():
        for _ in range(STEPS):
            values = best_of(linear(columns, speeds - ratio * costs, floors)).cells
            better = float(speeds @ values / (costs @ values))
            done = abs(better - ratio) <= CLOSE * ratio
            ratio = better
            if done:
                break
    most = solution_of(linear(columns, speeds, floors, extra=speeds - ratio * costs))
    if most is not None and costs @ most.cells > 0:
        reached = float(speeds @ most.cells / (costs @ most.cells))
        if reached >= ratio * KEPT:
            values, ratio = most.cells, reached
    return Shares(ratio, *cells.spread(values))


def _violated(columns: Columns, floors: Floats, late: Bools) -> Shares:
    """Those that are too slow where the sum of relative shortfalls is least."""
    single, pair = columns.cells.spread(nearest(columns, floors))
    slow = columns.speeds_of(single, pair) < floors * KEPT
    rows = tuple(int(row) for row in np.flatnonzero(slow | late))
    return Shares(None, np.zeros_like(single), np.zeros_like(pair), violated=rows)
