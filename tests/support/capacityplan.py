"""Capacity plans judged from their documents alone, and by brute force where they are tiny."""

from __future__ import annotations

import math
import random
from itertools import product
from typing import Any

import pytest

TERMS = ("shortfall", "buffer", "moves_in_use", "moves_idle", "far")


def terms_of(problem: dict[str, Any], assignment: dict[str, str | None]) -> dict[str, float]:
    """The five terms as the contract words them."""
    prices, hosts = problem["prices"], problem["hosts"]
    short = sum(sum(each.values()) for each in shortfall_of(problem, assignment).values())
    buffer = 0
    for model in {host["model"] for host in hosts}:
        alike = [host for host in hosts if host["model"] == model]
        free = sum(host["gpus"] for host in alike if assignment[host["name"]] is None)
        wanted = math.ceil(problem["buffer_fraction"] * sum(host["gpus"] for host in alike))
        buffer += max(0, wanted - free)
    moved = [host for host in hosts if assignment[host["name"]] != host["cluster"]]
    in_use = len([host for host in moved if host["in_use"]])
    homes = {cluster["name"]: cluster["datacenter"] for cluster in problem["clusters"]}
    far = 0
    for host in hosts:
        owner = assignment[host["name"]]
        if owner is not None and homes[owner] is not None and homes[owner] != host["datacenter"]:
            far += host["gpus"]
    return {
        "shortfall": prices["shortfall_gpu"] * short,
        "buffer": prices["buffer_gpu"] * buffer,
        "moves_in_use": prices["move_in_use"] * in_use,
        "moves_idle": prices["move_idle"] * (len(moved) - in_use),
        "far": prices["far_gpu"] * far,
    }


def shortfall_of(
    problem: dict[str, Any], assignment: dict[str, str | None]
) -> dict[str, dict[str, float]]:
    """What each cluster lacks of each model that it asks for."""
    short: dict[str, dict[str, float]] = {}
    for cluster in problem["clusters"]:
        short[cluster["name"]] = {}
        mine = [h for h in problem["hosts"] if assignment[h["name"]] == cluster["name"]]
        for model, wanted in cluster["capacity"].items():
            alike = [host for host in mine if host["model"] == model]
            down = {host["domain"] for host in alike} if cluster["survive_domain"] else set()
            left = [sum(h["gpus"] for h in alike if h["domain"] != each) for each in sorted(down)]
            every = sum(host["gpus"] for host in alike)
            short[cluster["name"]][model] = max(0, wanted - min(left, default=every))
    return short


def check(problem: dict[str, Any], answer: dict[str, Any]) -> None:
    """Assert that the answer is complete, priced right, and as good as it says."""
    assert list(answer["assignment"]) == [host["name"] for host in problem["hosts"]]
    names = {cluster["name"] for cluster in problem["clusters"]}
    assert {owner for owner in answer["assignment"].values() if owner is not None} <= names
    assert answer["shortfall"] == shortfall_of(problem, answer["assignment"])
    assert tuple(answer["terms"]) == TERMS
    assert answer["terms"] == pytest.approx(terms_of(problem, answer["assignment"]), abs=1e-6)
    objective = answer["objective"]
    assert objective == pytest.approx(sum(answer["terms"].values()), abs=1e-6)
    assert answer["bound"] <= objective
    gap = (objective - answer["bound"]) / max(abs(objective), 1e-9)
    assert answer["gap"] == pytest.approx(gap)
    assert answer["status"] == ("optimal" if gap <= 1e-6 else "feasible")


def best(problem: dict[str, Any]) -> float:
    """The least objective of all assignments there are."""
    names = [host["name"] for host in problem["hosts"]]
    owners = [None, *(cluster["name"] for cluster in problem["clusters"])]
    return min(
        sum(terms_of(problem, dict(zip(names, chosen, strict=True))).values())
        for chosen in product(owners, repeat=len(names))
    )


def tiny(seed: int, even: bool) -> dict[str, Any]:
    """A problem of up to 6 hosts. ``even``: all with 4 GPUs, and no domain in two datacenters."""
    draw = random.Random(f"{seed} {even}")
    clusters = [
        {
            "name": f"c{i}",
            "capacity": {m: draw.choice((0, 2, 4, 6.5, 8, 9, 12)) for m in "XY" if draw.random() < 0.8},
            "survive_domain": draw.random() < 0.6,
            "datacenter": draw.choice((None, "d0", "d1")),
        }
        for i in range(draw.randint(1, 3))
    ]  # fmt: skip
    owners = [None, *(cluster["name"] for cluster in clusters)]
    hosts = []
    for i in range(draw.randint(0, 6)):
        domain = draw.randint(0, 3)
        place = domain % 2 if even else draw.randint(0, 1)
        hosts.append(
            {
                "name": f"h{i}", "model": draw.choice("XXXY"),
                "gpus": 4 if even else draw.choice((0, 1, 2, 4)), "datacenter": f"d{place}",
                "domain": f"p{domain}", "rack": f"r{draw.randint(0, 1)}",
                "cluster": draw.choice(owners), "in_use": draw.random() < 0.5,
            }
        )  # fmt: skip
    prices = {
        "shortfall_gpu": draw.choice((0, 0.5, 3, 10)), "buffer_gpu": draw.choice((0, 1, 5)),
        "move_in_use": draw.choice((0, 1, 7)), "move_idle": draw.choice((0, 1, 2)),
        "far_gpu": draw.choice((0, 0.25, 1)),
    }  # fmt: skip
    return {"hosts": hosts, "clusters": clusters, "prices": prices,
            "buffer_fraction": draw.choice((0, 0.02, 0.3))}  # fmt: skip
