"""One capacity assignment solved, model by model: they share no host, and no term of the
objective.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from topmast.slow.capacity.answer import document_of
from topmast.slow.capacity.classes import Classes, ModelSolution, classes_of, cost_of
from topmast.slow.capacity.formulation import formulate
from topmast.slow.capacity.host_assignment import assign_hosts
from topmast.slow.capacity.prices import solve_by_prices
from topmast.slow.capacity.problem import Cluster, Host, Prices, Problem
from topmast.slow.capacity.uneven import solve_in_pieces
from topmast.slow.highs import Effort, solve

Seconds = Callable[[], float]


SMALL = 2_000
"""Claimants times cells up to which HiGHS is given a model as it is."""


def plan(
    problem: Problem, time_limit_s: float, now_s: Seconds, small: int = SMALL
) -> dict[str, Any]:
    """The answer to ``problem``, as its reference has it, in about ``time_limit_s`` seconds of
    ``now_s``.

    Models with more than ``small`` claimants times cells are solved by prices, others by HiGHS
    alone.
    """
    begun_s = now_s()
    every = classes_of(problem)
    owners = [host.cluster for host in problem.hosts]
    names = [*(cluster.name for cluster in problem.clusters), None]
    bound = 0.0
    for done, classes in enumerate(every):
        share_s = (time_limit_s - (now_s() - begun_s)) / (len(every) - done)
        until_s = now_s() + share_s
        found = solved(classes, lambda until_s=until_s: until_s - now_s(), small)  # type: ignore[misc]
        bound += found.bound
        for index, k in assign_hosts(classes, problem.hosts, found.count).items():
            owners[index] = names[k]
    document = document_of(problem, owners, bound)
    return {**document, "wall_s": now_s() - begun_s}


def solved(classes: Classes, left_s: Seconds, small: int = SMALL) -> ModelSolution:
    """One model: the best counts found, and the bound; whole where it is small."""
    if classes.far.size <= small:
        return whole(classes, left_s)
    if not classes.is_even:
        return solve_in_pieces(classes, left_s)
    return solve_by_prices(classes, left_s)


def compile_kernels() -> None:
    """Compile what is not yet compiled on this machine: seconds once, later nothing."""
    host = Host("host", "model", 1, "datacenter", "domain")
    cluster = Cluster("cluster", {"model": 1.0}, survive_domain=False)
    problem = Problem((host,), (cluster,), 0.0, Prices(1.0, 1.0, 1.0, 1.0, 1.0))
    plan(problem, 60.0, lambda: 0.0, small=0)


def whole(classes: Classes, left_s: Seconds) -> ModelSolution:
    """One model given to HiGHS as it is; the present assignment stands until better is found."""
    stay = classes.have.sum(axis=0)
    program = formulate(classes)
    outcome = solve(program.model, Effort(time_s=left_s()))
    bound = max(0.0, outcome.bound) if np.isfinite(outcome.bound) else 0.0
    if outcome.values is None:
        return ModelSolution(stay, bound)
    count = program.counts(outcome.values)
    return ModelSolution(
        count if cost_of(classes, count) <= cost_of(classes, stay) else stay, bound
    )
