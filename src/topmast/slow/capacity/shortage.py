"""What no assignment can give: the smallest sets of clusters that together ask for too much.

Nothing here forbids an answer, as shortfall is priced. These are the capacities of which some
part must be lacking whatever is decided, so that a person knows which to lower, or what to buy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from topmast.slow.capacity.problem import Host, Problem


def shortages_of(problem: Problem) -> list[str]:
    """For each model that is short: the fewest clusters that cannot all be served. O(size, sorted).

    A cluster that survives a domain needs ``capacity * D / (D - 1)`` GPUs at least over D
    domains, as the fullest domain holds no less than the mean; and with all hosts it has what is
    beside the largest domain.
    """
    by_model: dict[str, list[Host]] = {}
    for host in problem.hosts:
        by_model.setdefault(host.model, []).append(host)
    asked = {model for cluster in problem.clusters for model in cluster.capacity}
    every = (_of_model(problem, model, by_model.get(model, [])) for model in sorted(asked))
    return [shortage for shortage in every if shortage]


def _of_model(problem: Problem, model: str, hosts: Sequence[Host]) -> str:
    domains: dict[str, int] = {}
    for host in hosts:
        domains[host.domain] = domains.get(host.domain, 0) + host.gpus
    total, wide = sum(domains.values()), len(domains)
    needs = []
    for cluster in problem.clusters:
        wanted = cluster.capacity.get(model, 0.0)
        if wanted <= 0:
            continue
        if cluster.survive_domain and wanted > total - max(domains.values(), default=0):
            needs.append((math.inf, cluster.name))
        else:
            factor = wide / (wide - 1) if cluster.survive_domain else 1.0
            needs.append((wanted * factor, cluster.name))
    needs.sort(key=lambda each: (-each[0], each[1]))
    taken, names = 0.0, []
    for need, name in needs:
        taken += need
        names.append(name)
        if taken > total * (1 + 1e-12):
            return _worded(model, names, taken, total, wide)
    return ""


def _worded(model: str, names: list[str], taken: float, total: int, domains: int) -> str:
    shown = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
    noun = "cluster" if len(names) == 1 else f"{len(names)} clusters"
    if math.isinf(taken):
        return (
            f"{noun} {shown} cannot have the {model} asked for and survive a domain: "
            f"there are {total:,} GPUs in {domains} domains (lower capacity.{model})"
        )
    return (
        f"{noun} {shown} cannot all have the {model} asked for:"
        f" together at least {taken:,.0f} GPUs, "
        f"and there are {total:,} (lower capacity.{model})"
    )
