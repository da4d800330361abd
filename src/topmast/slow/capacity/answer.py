"""The answer as a document, priced from the hosts themselves and not from the program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from topmast.slow.capacity.problem import Problem

OPTIMAL = 1e-6
"""The gap up to which an answer counts as optimal."""
Tally = dict[tuple[int | None, str], dict[str, int]]


def document_of(problem: Problem, owners: Sequence[str | None], bound: float) -> dict[str, Any]:
    """The answer where ``owners`` are those of the problem's hosts, in order. O(size of the
    problem).
    """
    shortfall = shortfall_of(problem, owners)
    terms = _terms(problem, owners, shortfall)
    objective = math.fsum(terms.values())
    bound = min(bound, objective)
    gap = (objective - bound) / max(abs(objective), 1e-9)
    return {
        "status": "optimal" if gap <= OPTIMAL else "feasible",
        "objective": objective,
        "bound": bound,
        "gap": gap,
        "terms": terms,
        "assignment": {host.name: owner for host, owner in zip(problem.hosts, owners, strict=True)},
        "shortfall": shortfall,
    }


def shortfall_of(problem: Problem, owners: Sequence[str | None]) -> dict[str, dict[str, float]]:
    """The GPUs that every cluster lacks of every model that it wants."""
    tally: dict[tuple[str | None, str], dict[str, int]] = {}
    for host, owner in zip(problem.hosts, owners, strict=True):
        domains = tally.setdefault((owner, host.model), {})
        domains[host.domain] = domains.get(host.domain, 0) + host.gpus
    short: dict[str, dict[str, float]] = {}
    for cluster in problem.clusters:
        mine = short[cluster.name] = {}
        for model, wanted in cluster.capacity.items():
            domains = tally.get((cluster.name, model), {})
            worst = max(domains.values(), default=0) if cluster.survive_domain else 0
            mine[model] = max(0, _plain(wanted) - (sum(domains.values()) - worst))
    return short


def _plain(value: float) -> float:
    """A whole number without its point."""
    return int(value) if value == int(value) else value


def _terms(
    problem: Problem, owners: Sequence[str | None], shortfall: dict[str, dict[str, float]]
) -> dict[str, float]:
    prices = problem.prices
    preferred = {cluster.name: cluster.datacenter for cluster in problem.clusters}
    every: dict[str, int] = {}
    free: dict[str, int] = {}
    in_use = idle = far = 0
    for host, owner in zip(problem.hosts, owners, strict=True):
        every[host.model] = every.get(host.model, 0) + host.gpus
        if owner is None:
            free[host.model] = free.get(host.model, 0) + host.gpus
        elif preferred[owner] not in (None, host.datacenter):
            far += host.gpus
        if owner != host.cluster:
            in_use += host.in_use
            idle += not host.in_use
    lacking = sum(
        max(0, math.ceil(problem.buffer_fraction * gpus) - free.get(model, 0))
        for model, gpus in every.items()
    )
    missing = math.fsum(gpus for models in shortfall.values() for gpus in models.values())
    return {
        "shortfall": prices.shortfall_gpu * missing,
        "buffer": prices.buffer_gpu * lacking,
        "moves_in_use": prices.move_in_use * in_use,
        "moves_idle": prices.move_idle * idle,
        "far": prices.far_gpu * far,
    }
