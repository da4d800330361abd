"""The policies by name. To add one: a file in `objectives`, and a line here."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from topmast.model.errors import InvalidInput
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.objectives import (
    allox,
    finish_time,
    greedy,
    hierarchical,
    makespan,
    max_min,
    max_throughput,
    min_cost,
)
from topmast.policies.shares.problem import Problem
from topmast.policies.shares.shares import Shares


class Policy(Struct, frozen=True):
    """A policy: how it is solved, and whether jobs may share workers under it.

    ``source``: where it was published. ``moves``: a running job may have to make room, even if the policy knows
    nothing of types; ``fills``: as the hook `shares` has it.
    """

    solve: Callable[[Columns], Shares]
    source: str
    pairs: bool = True
    moves: bool = True
    fills: bool = True


GAVEL = "Gavel (Narayanan et al., OSDI '20), section 4"
POLICIES = {
    max_min.NAME: Policy(max_min.solve, f"{GAVEL}.1: least attained service"),
    finish_time.NAME: Policy(
        finish_time.solve, f"Themis (Mahajan et al., NSDI '20), in the form of {GAVEL}.2"
    ),
    makespan.NAME: Policy(makespan.solve, f"{GAVEL}.2: minimise makespan"),
    max_throughput.NAME: Policy(max_throughput.solve, f"{GAVEL}.2: maximise total throughput"),
    min_cost.NAME: Policy(min_cost.solve, f"{GAVEL}.2: minimise cost"),
    min_cost.NAME_SLO: Policy(
        min_cost.solve_with_deadlines, f"{GAVEL}.2: minimise cost subject to SLOs"
    ),
    greedy.FIFO: Policy(
        greedy.solve_fifo, f"{GAVEL}.2: FIFO", pairs=False, moves=False, fills=False
    ),
    greedy.SJF: Policy(
        greedy.solve_sjf, f"{GAVEL}.2: shortest job first", pairs=False, moves=False, fills=False
    ),
    hierarchical.NAME: Policy(hierarchical.solve, f"{GAVEL}.3: hierarchical policies"),
    allox.NAME: Policy(allox.solve, "AlloX (Le et al., EuroSys '20)", pairs=False),
}


def policy_named(name: str) -> Policy:
    """The policy ``name``. Raises InvalidInput for one that does not exist."""
    if name not in POLICIES:
        known = ", ".join(POLICIES)
        raise InvalidInput(f"unknown policy '{name}'", field="--policy", remedy=f"known: {known}")
    return POLICIES[name]


def columns_for(policy: Policy, problem: Problem, *, agnostic: bool = False) -> Columns:
    """The columns that a policy is to see of a problem."""
    return Columns(problem, agnostic=agnostic, pairs=policy.pairs)
