"""Problems drawn from a seed, as documents: small, odd, and of every shape."""

from __future__ import annotations

from typing import Any

import numpy as np

Document = dict[str, Any]


def draw(seed: int, *, pairs: bool = False, stuck: bool = False, jobs: int = 9) -> Document:
    """A problem with up to ``jobs`` jobs and four types; with ``stuck``, jobs that run nowhere too."""
    rng = np.random.default_rng((seed, pairs, stuck))
    types = [f"T{kind}" for kind in range(rng.integers(1, 5))]
    workers = {name: int(rng.integers(1, 9)) for name in types}
    most = max(workers.values())
    entities = {f"e{i}": _entity(rng) for i in range(rng.integers(1, 4))}
    document: Document = {
        "workers": workers,
        "jobs": [],
        "costs": {name: float(rng.uniform(0.1, 5)) for name in types},
        "entities": entities,
    }
    for number in range(rng.integers(1, jobs + 1)):
        scale = int(min(rng.choice([1, 1, 1, 2, 4]), 99 if stuck else most))
        document["jobs"].append(_job(rng, number, types, workers, scale, stuck) | {
            "entity": str(rng.choice(list(entities)))
        })  # fmt: skip
    if pairs:
        document["pairs"] = _pairs(rng, document["jobs"], types)
    return document


def _entity(rng: np.random.Generator) -> Document:
    return {
        "weight": float(rng.choice([1, 1, 2, 0.5])),
        "policy": str(rng.choice(["fairness", "fifo"])),
    }


def _job(
    rng: np.random.Generator,
    number: int,
    types: list[str],
    workers: dict[str, int],
    scale: int,
    stuck: bool,
) -> Document:
    size = rng.lognormal(0, 2)
    speeds = {t: float(size * rng.uniform(0.2, 4)) for t in types if rng.random() < 0.8}
    roomy = [t for t in types if workers[t] >= scale]
    if not stuck and not any(t in speeds for t in roomy):
        speeds[str(rng.choice(roomy))] = float(size)
    if stuck and not speeds:
        speeds[types[0]] = 1.0
    return {
        "id": f"job{number}",
        "throughputs": speeds,
        "scale_factor": scale,
        "weight": float(rng.choice([1, 1, rng.uniform(0.1, 10)])),
        "steps_left": float(rng.lognormal(6, 2)),
        "elapsed_s": float(rng.choice([0, rng.lognormal(4, 2)])),
        "isolated_s": float(rng.choice([0, rng.lognormal(4, 2)])),
        "arrival_s": float(rng.integers(0, 5)),
    }


def _pairs(rng: np.random.Generator, jobs: list[Document], types: list[str]) -> list[Document]:
    found = []
    for a, one in enumerate(jobs):
        for b in range(a):
            other = jobs[b]
            if one["scale_factor"] != other["scale_factor"] or rng.random() < 0.3:
                continue
            speeds = {}
            for t in types:
                both = [j["throughputs"].get(t, 0.0) * rng.uniform(0.2, 1.0) for j in (one, other)]
                if rng.random() < 0.4:
                    both[int(rng.integers(2))] = 0.0
                if rng.random() < 0.9:
                    speeds[t] = [float(speed) for speed in both]
            found.append({"ids": [one["id"], other["id"]], "throughputs": speeds})
    return found
