"""Made-up problems of the sizes that planners meet, from a seed.

Hosts stand in datacenters, domains and racks; each domain has one or two models. Clusters own
hosts at random, a few domains more than others, and then ask for other capacities than they have:
that is what makes moves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from topmast.slow.arrays import Floats

MODELS = (("H100", 8), ("A100", 8), ("V100", 4))
DOMAINS_PER_DATACENTER = 10
RACKS_PER_DOMAIN = 20
ASSIGNED = 0.9
"""Of all hosts, the part that has an owner at the start."""
IN_USE = 0.7
"""Of owned hosts, the part that runs something."""
CHANGE = 0.25
"""The spread (of a lognormal) of what a cluster asks for, by what it has."""
SURVIVE = 0.9
"""Of all clusters, the part that survives a domain."""
PRICES = {"shortfall_gpu": 100.0, "buffer_gpu": 50.0, "move_in_use": 20.0, "move_idle": 1.0,
          "far_gpu": 0.05}  # fmt: skip


class Shape(Struct, frozen=True, kw_only=True):
    """What to make up; ``asked``: of all GPUs, the part that clusters ask for together."""

    hosts: int = 10_000
    clusters: int = 40
    domains: int = 40
    asked: float = 0.9
    seed: int = 0


def make(shape: Shape) -> dict[str, Any]:
    """A problem as its file has it. O(hosts)."""
    draw = np.random.default_rng([shape.seed, shape.hosts, shape.clusters, shape.domains])
    weight = draw.lognormal(0.0, 1.0, shape.clusters)
    share = weight / weight.sum()
    datacenters = -(-shape.domains // DOMAINS_PER_DATACENTER)
    home = draw.integers(0, datacenters, shape.clusters)
    near = draw.random((shape.domains, shape.clusters)) * share
    near /= near.sum(axis=1, keepdims=True)
    domain = np.arange(shape.hosts) % shape.domains
    model = draw.choice(len(MODELS), shape.hosts, p=(0.5, 0.3, 0.2))
    owner = np.full(shape.hosts, -1)
    for d in range(shape.domains):
        mine = np.nonzero(domain == d)[0]
        owner[mine] = draw.choice(shape.clusters, len(mine), p=near[d])
    owner[draw.random(shape.hosts) > ASSIGNED] = -1
    in_use = (draw.random(shape.hosts) < IN_USE) & (owner >= 0)
    rack = draw.integers(0, RACKS_PER_DOMAIN, shape.hosts)
    hosts = [
        {
            "name": f"host-{i:06}", "model": MODELS[model[i]][0], "gpus": MODELS[model[i]][1],
            "datacenter": f"dc-{domain[i] // DOMAINS_PER_DATACENTER}",
            "domain": f"row-{domain[i]:03}", "rack": f"row-{domain[i]:03}-{rack[i]:02}",
            "cluster": f"cluster-{owner[i]:03}" if owner[i] >= 0 else None,
            "in_use": bool(in_use[i]),
        }
        for i in range(shape.hosts)
    ]  # fmt: skip
    clusters = []
    asked = _asked(shape, draw, model, owner)
    survive = draw.random(shape.clusters) < SURVIVE
    for k in range(shape.clusters):
        capacity = {name: int(asked[k, m]) for m, (name, _) in enumerate(MODELS) if asked[k, m]}
        place = f"dc-{home[k]}" if draw.random() < 0.5 else None
        clusters.append(
            {"name": f"cluster-{k:03}", "capacity": capacity,
             "survive_domain": bool(survive[k]), "datacenter": place}
        )  # fmt: skip
    return {"hosts": hosts, "clusters": clusters, "buffer_fraction": 0.02, "prices": dict(PRICES)}


def _asked(shape: Shape, draw: np.random.Generator, model: Any, owner: Any) -> Floats:
    """The GPUs that each cluster asks for of each model [K, M]: what it has, changed and scaled."""
    asked = np.zeros((shape.clusters, len(MODELS)))
    for m, (_, gpus) in enumerate(MODELS):
        here = (model == m) & (owner >= 0)
        asked[:, m] = gpus * np.bincount(owner[here], minlength=shape.clusters)
        asked[:, m] *= draw.lognormal(0.0, CHANGE, shape.clusters)
        total = gpus * int((model == m).sum())
        asked[:, m] *= shape.asked * total / max(1.0, asked[:, m].sum())
    whole: Floats = np.floor(asked)
    return whole
