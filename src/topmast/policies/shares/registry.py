"""The policies by name. To add one: a file in `objectives`, and a line here."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from topmast.model.errors import InvalidInput
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.objectives import (
    allox,
    allox_oldest,
    finish_time,
    greedy,
    hierarchical,
    makespan,
    max_min,
    max_throughput,
    min_cost,
    random_pairs,
)
from topmast.policies.shares.problem import Problem
from topmast.policies.shares.shares import Shares

Solve = Callable[[Columns], Shares]


class Policy(Struct, frozen=True):
    """A policy: how it is solved, and whether jobs may share workers under it."""

    solve: Solve
    pairs: bool = True
    moves: bool = True
    """A running job may have to make room, even if the policy knows nothing of types."""
    fills: bool = True
    """As in the hook `shares`."""
    every_pair: bool = False
    """As in the hook `shares`."""
    adds_speeds: bool = False
    """It adds up speeds of several jobs: whether they are in steps a second decides."""
    begin: Callable[[], Solve] | None = None
    """Makes one that remembers what it decided; None: each problem stands by itself."""


POLICIES = {
    max_min.NAME: Policy(max_min.solve),
    finish_time.NAME: Policy(finish_time.solve),
    makespan.NAME: Policy(makespan.solve),
    max_throughput.NAME: Policy(max_throughput.solve, adds_speeds=True),
    min_cost.NAME: Policy(min_cost.solve, adds_speeds=True),
    min_cost.NAME_SLO: Policy(min_cost.solve_with_deadlines, adds_speeds=True),
    greedy.FIFO: Policy(greedy.solve_fifo, pairs=False, moves=False, fills=False),
    greedy.SJF: Policy(greedy.solve_sjf, pairs=False, moves=False, fills=False),
    hierarchical.NAME: Policy(hierarchical.solve),
    allox.NAME: Policy(allox.solve, pairs=False),
    allox_oldest.NAME: Policy(allox_oldest.solve, pairs=False),
    random_pairs.NAME: Policy(random_pairs.solve, every_pair=True, begin=random_pairs.RandomPairs),
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
