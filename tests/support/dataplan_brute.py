"""The best data plan of a tiny problem: every placement is tried, each with a linear program of its own."""

import itertools
import random
from typing import Any

import numpy as np
from scipy.optimize import linprog

Document = dict[str, Any]


def tiny(seed: int) -> Document:
    """A tiny problem with a bit of everything; about one in ten has no answer."""
    rng = random.Random(seed)
    regions = [f"r{i}" for i in range(rng.choice((2, 2, 3)))]
    tables = [f"t{i}" for i in range(rng.choice((2, 3)))]
    return {
        "regions": [
            {
                "name": name,
                "storage_bytes": rng.randrange(4, 16),
                "gpus": {m: rng.choice((0, 2, 4, 8)) for m in ("A", "B") if rng.random() < 0.9},
                "cpus": rng.choice((0, 3, 6)),
            }
            for name in regions
        ],
        "tables": [
            {
                "name": name,
                "bytes": rng.randrange(0, 6),
                "replicas": [r for r in regions if rng.random() < 0.5],
                "allowed": rng.choice((None, None, rng.sample(regions, 2))),
                "min_replicas": rng.choice((0, 1, 1, 2)),
            }
            for name in tables
        ],
        "workloads": [
            {
                "name": f"w{i}",
                "tables": rng.sample(tables, rng.randrange(0, min(3, len(tables) + 1))),
                "gpus": {
                    m: float(rng.choice((0, 1, 3, 5))) for m in ("A", "B") if rng.random() < 0.7
                },
                "cpus": float(rng.choice((0, 0, 2, 4))),
                "kind": "training",
            }
            for i in range(rng.randrange(1, 5))
        ],
        "links": [
            {"from": a, "to": b, "bytes_per_period": rng.randrange(0, 12)}
            for a in regions
            for b in regions
            if a != b and rng.random() < 0.8
        ],
        "move_budget_bytes": rng.choice((None, None, 4, 10)),
        "prices": {
            "non_collocated_gpu": 3.0,
            "non_collocated_cpu": rng.choice((0.0, 0.5)),
            "overload_gpu": rng.choice(([[0.5, 1.0], [1.0, 4.0]], [[0.1, 5.0]])),
            "replica_byte": rng.choice((0.1, 0.7)),
            "moved_byte": rng.choice((0.0, 0.4)),
        },
    }


def best(problem: Document) -> float | None:
    """The least objective, or None where there is no placement."""
    regions = problem["regions"]
    choices = []
    for table in problem["tables"]:
        allowed = [r["name"] for r in regions]
        if table["allowed"] is not None:
            allowed = [r for r in allowed if r in table["allowed"]]
        kinds = [
            set(chosen)
            for count in range(table["min_replicas"], len(allowed) + 1)
            for chosen in itertools.combinations(allowed, count)
        ]
        choices.append(kinds)
    found: float | None = None
    for placement in itertools.product(*choices):
        if _fits(problem, placement):
            cost = _cost(problem, placement)
            found = cost if found is None else min(found, cost)
    return found


def _fits(problem: Document, placement: tuple[set[str], ...]) -> bool:
    tables = problem["tables"]
    for region in problem["regions"]:
        here = sum(
            t["bytes"] for t, p in zip(tables, placement, strict=True) if region["name"] in p
        )
        if here > region["storage_bytes"]:
            return False
    copies = [
        (table["bytes"], table["replicas"], target)
        for table, where in zip(tables, placement, strict=True)
        for target in sorted(where - set(table["replicas"]))
    ]
    budget = problem["move_budget_bytes"]
    if budget is not None and sum(size for size, _, _ in copies) > budget:
        return False
    limit: dict[tuple[str, str], int] = {}
    for link in problem["links"]:
        pair = (link["from"], link["to"])
        limit[pair] = limit.get(pair, 0) + link["bytes_per_period"]
    held = [copy for copy in copies if copy[1]]
    for sources in itertools.product(*(replicas for _, replicas, _ in held)):
        used: dict[tuple[str, str], int] = {}
        for (size, _, target), source in zip(held, sources, strict=True):
            used[source, target] = used.get((source, target), 0) + size
        if all(amount <= limit.get(pair, 0) for pair, amount in used.items()):
            return True
    return False


def _cost(problem: Document, placement: tuple[set[str], ...]) -> float:
    """Replicas and moves, and the service by a linear program: shares y, then overload o by segment."""
    prices, regions = problem["prices"], problem["regions"]
    cost: float = 0.0
    for table, where in zip(problem["tables"], placement, strict=True):
        cost += prices["replica_byte"] * table["bytes"] * len(where)
        cost += prices["moved_byte"] * table["bytes"] * len(where - set(table["replicas"]))
    held = {t["name"]: where for t, where in zip(problem["tables"], placement, strict=True)}
    shares = [
        (w, r)
        for w, work in enumerate(problem["workloads"])
        for r, region in enumerate(regions)
        if all(region["name"] in held[table] for table in work["tables"])
        and all(region["gpus"].get(m, 0) > 0 for m, gpus in work["gpus"].items() if gpus > 0)
    ]
    segments = prices["overload_gpu"]
    over = [
        (r, m, s)
        for r, region in enumerate(regions)
        for m in region["gpus"]
        for s in range(len(segments))
    ]
    loss: list[float] = [
        prices["non_collocated_gpu"] * sum(w["gpus"].values())
        + prices["non_collocated_cpu"] * w["cpus"]
        for w in problem["workloads"]
    ]
    objective = [-loss[w] for w, _ in shares] + [segments[s][1] for _, _, s in over]
    bounds: list[tuple[float, float | None]] = [(0, 1) for _ in shares]
    for r, m, s in over:
        begin = segments[s - 1][0] if s else 0.0
        supply = regions[r]["gpus"][m]
        last = s == len(segments) - 1
        bounds.append((0, None if last else (segments[s][0] - begin) * supply))
    rows, limits = [], []
    for w in range(len(problem["workloads"])):
        rows.append([float(w == v) for v, _ in shares] + [0.0] * len(over))
        limits.append(1.0)
    for r, region in enumerate(regions):
        works = problem["workloads"]
        rows.append([works[w]["cpus"] * (q == r) for w, q in shares] + [0.0] * len(over))
        limits.append(region["cpus"])
        for m, supply in region["gpus"].items():
            row = [works[w]["gpus"].get(m, 0.0) * (q == r) for w, q in shares]
            rows.append(row + [-1.0 * (q == r and n == m) for q, n, _ in over])
            limits.append(supply)
    if not objective:
        return float(cost + sum(loss))
    solved = linprog(objective, A_ub=np.array(rows, float), b_ub=limits, bounds=bounds)
    assert solved.status == 0
    return float(cost + sum(loss) + solved.fun)
