"""An answer as it is written: placement, shares, copies and drops, costs, and how good it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec import Struct

from topmast.slow.arrays import Bools, Floats
from topmast.slow.data.columns import Columns
from topmast.slow.data.conflict import Conflict
from topmast.slow.data.copies import NOWHERE, sources_of
from topmast.slow.data.objective import constant_of, loads, terms_of
from topmast.slow.data.problem import Problem

OPTIMAL_GAP = 1e-6
"""An answer within this gap of its bound is called optimal: finer is the rounding of solvers."""


class Quality(Struct, frozen=True):
    """An objective, its lower bound (None: none), and the gaps between them."""

    objective: float
    bound: float | None
    gap: float | None
    controllable_gap: float | None


def quality_of(columns: Columns, objective: float, bound: float) -> Quality:
    """The gaps of data-plan: relative to the objective, and to the part that can be decided."""
    if not math.isfinite(bound):
        return Quality(objective, None, None, None)
    # A bound above the objective by the rounding of sums says that the answer is optimal.
    bound = min(bound, objective)
    rest = objective - constant_of(columns)
    missing = objective - bound
    gap = missing / max(abs(objective), 1e-9)
    controllable = missing / rest if rest > 1e-12 * max(abs(objective), 1.0) else 0.0
    return Quality(objective, bound, gap, controllable)


def document_of(
    problem: Problem, columns: Columns, placed: Bools, serve: Floats, bound: float
) -> dict[str, Any]:
    """The answer, but for ``wall_s`` and ``duals``. O(D R + W (R + G))."""
    terms = terms_of(columns, placed, serve)
    quality = quality_of(columns, terms.total(), bound)
    regions = [region.name for region in problem.regions]
    places = _by_row(regions, placed, np.ones_like(placed))
    shares = _by_row(regions, serve > 0.0, serve)
    return {
        "status": "optimal"
        if quality.gap is not None and quality.gap <= OPTIMAL_GAP
        else "feasible",
        "objective": quality.objective,
        "bound": quality.bound,
        "gap": quality.gap,
        "controllable_gap": quality.controllable_gap,
        "terms": {
            "non_collocated": terms.non_collocated,
            "overload": terms.overload,
            "replicas": terms.replicas,
            "moves": terms.moves,
        },
        "placement": {
            table.name: list(row) for table, row in zip(problem.tables, places, strict=True)
        },
        "serve": {each.name: row for each, row in zip(problem.workloads, shares, strict=True)},
        "moves": moves_of(problem, columns, placed),
        **figures_of(columns, placed, serve),
    }


def _by_row(regions: list[str], where: Bools, values: Any) -> list[dict[str, Any]]:
    """For each row its values by region, where there are any. O(the whole)."""
    found: list[dict[str, Any]] = [{} for _ in where]
    rows, at = np.nonzero(where)
    for i, r, value in zip(rows.tolist(), at.tolist(), values[rows, at].tolist(), strict=True):
        found[i][regions[r]] = value
    return found


def figures_of(columns: Columns, placed: Bools, serve: Floats) -> dict[str, float]:
    """What people look at first: the worst load, the replicas beyond the least, what is not
    served.
    """
    supplied = columns.supply > 0
    load = loads(columns, serve)
    worst = (load[supplied] / columns.supply[supplied]).max(initial=0.0)
    least_bytes = math.fsum(columns.least * columns.size_bytes)
    bytes_now = math.fsum(columns.size_bytes * placed.sum(axis=1))
    demand = columns.demand.sum(axis=1)
    unserved = math.fsum(np.clip(1.0 - serve.sum(axis=1), 0.0, 1.0) * demand)
    return {
        "max_demand_supply": float(worst),
        "replication_overhead": bytes_now / least_bytes - 1.0 if least_bytes > 0 else 0.0,
        "non_collocated_share": unserved / math.fsum(demand) if demand.any() else 0.0,
    }


def moves_of(problem: Problem, columns: Columns, placed: Bools) -> list[dict[str, Any]]:
    """Copies and drops, table by table. ``from`` is null for a table that was nowhere."""
    source = sources_of(columns, placed)
    assert source is not None, "a placement is checked against the links before it is an answer"
    regions = [region.name for region in problem.regions]
    found: list[dict[str, Any]] = []
    for d, r in np.argwhere(placed & ~columns.held):
        come = None if source[d, r] == NOWHERE else regions[source[d, r]]
        table = problem.tables[d]
        found.append(
            {
                "op": "copy",
                "table": table.name,
                "from": come,
                "to": regions[r],
                "bytes": table.bytes,
            }
        )
    for d, r in np.argwhere(columns.held & ~placed):
        table = problem.tables[d]
        found.append(
            {"op": "drop", "table": table.name, "region": regions[r], "bytes": table.bytes}
        )
    return found


def refusal_of(problem: Problem, conflict: Conflict) -> dict[str, Any]:
    """The answer when there is no placement."""
    return {
        "status": "infeasible",
        "objective": None,
        "bound": None,
        "gap": None,
        "controllable_gap": None,
        "conflict": {
            "tables": [problem.tables[d].name for d in conflict.tables],
            "regions": [problem.regions[r].name for r in conflict.regions],
            "bytes": conflict.bytes,
            "why": conflict.why,
        },
    }
