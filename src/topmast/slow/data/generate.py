"""Made-up problems of the sizes and shapes that planners meet, from a seed.

*sparse*: about as many workloads as tables, each table read by few. *dense*: the popularity of
tables is that of production (P50/P90/P99 = 3/17/45 workloads a table). Tables are in namespaces; a
part `cross` of what a workload reads lies in others than its own, and with 1 tables read together
are drawn at random.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from msgspec import Struct

from topmast.slow.arrays import Floats, Ints

Kind = Literal["sparse", "dense"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MODELS = ("H100", "A100", "V100")
TABLE_GB = 200.0
"""The median table; sizes are lognormal."""
FILL = 0.8
"""Of all storage, the part that the least replicas take up."""
LOAD = 0.93
"""Of all GPUs of a model, the part that is wanted."""
WORST = 2.6
"""Demand by supply of the worst region and model at the start."""
NAMESPACE = 20
"""Tables of a namespace."""
SKEW = 0.55
"""How much the places of data at the start have to do with those of GPUs: 0 all, 1 nothing."""
POPULARITY = ((0.0, 1.0), (0.5, 3.0), (0.9, 17.0), (0.99, 45.0), (1.0, 120.0))


class Shape(Struct, frozen=True, kw_only=True):
    """What to make up; ``cross``: of dense reads, the part outside the namespace."""

    kind: Kind = "sparse"
    tables: int = 2_000
    regions: int = 10
    workloads: int = 2_000
    seed: int = 0
    cross: float = 0.15


def make(shape: Shape) -> dict[str, Any]:
    """A problem document; the same for the same shape."""
    rng = np.random.default_rng([shape.seed, KINDS.index(shape.kind), shape.tables])
    names = [f"region-{r:02}" for r in range(shape.regions)]
    size = np.ceil(rng.lognormal(np.log(TABLE_GB), 1.4, shape.tables)) * 1e9
    reads = _reads(shape, rng)
    wants = _wants(shape, rng)
    share = _shares(shape, rng)
    home = _homes(shape, rng, share)
    held = _held(shape, rng, home)
    supply = _supply(wants["gpus"], share, _load(reads, size, held, wants["gpus"]))
    least = np.where(rng.random(shape.tables) < 0.1, 2, 1)
    storage = _storage(shape, rng, size, held, least)
    allowed = _allowed(shape, rng, held, least)
    cpus = wants["cpus"].sum() / shape.regions * rng.uniform(1.2, 2.0, shape.regions)
    total = float((size * least).sum())
    return {
        "regions": [
            {
                "name": name,
                "storage_bytes": int(storage[r]),
                "gpus": {m: int(supply[r, g]) for g, m in enumerate(MODELS) if supply[r, g] > 0},
                "cpus": int(cpus[r]),
            }
            for r, name in enumerate(names)
        ],
        "tables": [
            {
                "name": f"table-{d:05}",
                "bytes": int(size[d]),
                "replicas": [names[r] for r in np.nonzero(held[d])[0]],
                "allowed": None
                if allowed[d].all()
                else [names[r] for r in np.nonzero(allowed[d])[0]],
                "min_replicas": int(least[d]),
            }
            for d in range(shape.tables)
        ],
        "workloads": _workloads(reads, wants),
        "links": _links(rng, names, total),
        "move_budget_bytes": int(total),
        "prices": _prices(float(wants["gpus"].sum()), total),
    }  # fmt: skip


def _reads(shape: Shape, rng: np.random.Generator) -> list[Ints]:
    """The tables of each workload."""
    tables, workloads = shape.tables, shape.workloads
    if shape.kind == "sparse":
        weight = rng.lognormal(0.0, 1.0, tables)
        counts = 1 + rng.geometric(0.55, workloads) - 1 + (rng.random(workloads) < 0.3)
        order = rng.permutation(tables)
        return [
            _near(rng, order, weight, min(int(count), tables)) for count in counts
        ]  # fmt: skip
    return _popular(shape, rng)


def _popular(shape: Shape, rng: np.random.Generator) -> list[Ints]:
    """Reads of given popularity: each table's readers, most of them from its own namespace."""
    tables, workloads = shape.tables, shape.workloads
    points, levels = zip(*POPULARITY, strict=True)
    read_by = np.exp(np.interp(rng.random(tables), points, np.log(levels)))
    read_by = np.maximum(1, np.rint(read_by * workloads / (3.0 * tables))).astype(int)
    spaces = max(1, tables // NAMESPACE)
    space_of = np.sort(rng.integers(0, spaces, tables))
    weight = np.bincount(space_of, weights=read_by, minlength=spaces)
    home = np.sort(rng.choice(spaces, workloads, p=weight / weight.sum()))
    slots = rng.permutation(np.repeat(np.arange(tables), read_by))
    away = rng.random(len(slots)) < shape.cross
    first = np.searchsorted(home, space_of[slots], side="left")
    last = np.searchsorted(home, space_of[slots], side="right")
    away |= last <= first
    near = first + (rng.random(len(slots)) * np.maximum(1, last - first)).astype(int)
    owner = np.where(away, rng.integers(0, workloads, len(slots)), near)
    found: list[set[int]] = [set() for _ in range(workloads)]
    for w, d in zip(owner.tolist(), slots.tolist(), strict=True):
        found[w].add(d)
    for w, chosen in enumerate(found):
        if not chosen:
            chosen.add(int(slots[w % len(slots)]))
    return [np.array(sorted(chosen), np.int64) for chosen in found]


def _near(rng: np.random.Generator, order: Ints, weight: Floats, count: int) -> Ints:
    """Tables of one namespace: near each other in an order, popular ones first."""
    begin = int(rng.integers(0, len(order)))
    around = order[(begin + np.arange(max(20, count))) % len(order)]
    chance = weight[around] / weight[around].sum()
    return np.unique(rng.choice(around, count, replace=False, p=chance))


def _wants(shape: Shape, rng: np.random.Generator) -> dict[str, Any]:
    """What workloads want: most GPUs of one model, some of two, analytics CPUs alone."""
    count = shape.workloads
    gpus = np.zeros((count, len(MODELS)))
    first = rng.choice(len(MODELS), count, p=(0.5, 0.35, 0.15))
    amount = np.ceil(rng.lognormal(np.log(12.0), 1.1, count))
    gpus[np.arange(count), first] = amount
    second = rng.random(count) < 0.08
    gpus[second, (first[second] + 1) % len(MODELS)] = np.ceil(amount[second] / 2)
    analytics = rng.random(count) < 0.15
    gpus[analytics] = 0.0
    cpus = np.where(analytics, np.ceil(rng.lognormal(np.log(200.0), 1.0, count)), 0.0)
    spark = analytics & (rng.random(count) < 0.5)
    kind = np.where(analytics, np.where(spark, "spark", "presto"), "training")
    return {"gpus": gpus, "cpus": cpus, "kind": kind}


def _shares(shape: Shape, rng: np.random.Generator) -> Floats:
    """The part of each model that each region has: uneven, and some regions lack a model."""
    share = rng.lognormal(0.0, 0.7, (shape.regions, len(MODELS)))
    absent = rng.random(share.shape) < 0.15
    absent[0] = False
    share = np.where(absent, 0.0, share)
    result: Floats = share / share.sum(axis=0)
    return result


def _load(reads: list[Ints], size: Floats, held: Any, gpus: Floats) -> Floats:
    """GPUs wanted in each region at the start, every workload being where most of its bytes are."""
    load = np.zeros((held.shape[1], gpus.shape[1]))
    for w, tables in enumerate(reads):
        load[(held[tables] * size[tables, None]).sum(axis=0).argmax()] += gpus[w]
    return load


def _supply(gpus: Floats, share: Floats, load: Floats) -> Floats:
    """GPUs of each region and model, so that the worst demand/supply at the start is `WORST`.

    Uneven shares are mixed with what is wanted at the start, as little as that takes.
    """
    total = gpus.sum(axis=0) / LOAD
    there = share > 0
    supply = np.ceil(share * total)
    for mix in np.linspace(0.0, 1.0, 201):
        mixed = np.where(there, (1.0 - mix) * share + mix * load / load.sum(axis=0), 0.0)
        supply = np.ceil(mixed / mixed.sum(axis=0) * total)
        if (load[there] / np.maximum(supply[there], 1.0)).max() <= WORST:
            break
    result: Floats = supply
    return result


def _homes(shape: Shape, rng: np.random.Generator, share: Floats) -> Ints:
    """Where each table grew up: partly where GPUs are, partly where they are not."""
    natural = share.sum(axis=1) / share.sum()
    other = rng.dirichlet(np.full(shape.regions, 3.0))
    chance = (1.0 - SKEW) * natural + SKEW * other
    blocks = rng.choice(shape.regions, max(1, shape.tables // 10), p=chance)
    return blocks[rng.integers(0, len(blocks), shape.tables)].astype(np.int64)


def _held(shape: Shape, rng: np.random.Generator, home: Ints) -> Any:
    """Replicas at the start: at home, and a second of every eighth table; a few tables are new."""
    held = np.zeros((shape.tables, shape.regions), bool)
    held[np.arange(shape.tables), home] = True
    twice = rng.random(shape.tables) < 0.125
    held[twice, rng.integers(0, shape.regions, twice.sum())] = True
    held[rng.random(shape.tables) < 0.01] = False
    return held


def _storage(
    shape: Shape, rng: np.random.Generator, size: Floats, held: Any, least: Ints
) -> Floats:
    """Bytes of each region: some room everywhere, and no region over full at the start."""
    total = (size * least).sum() / FILL
    share = rng.dirichlet(np.full(shape.regions, 12.0))
    there = (size[:, None] * held).sum(axis=0)
    result: Floats = np.ceil(np.maximum(total * share, 1.02 * there))
    return result


def _allowed(shape: Shape, rng: np.random.Generator, held: Any, least: Ints) -> Any:
    """Residency: one table in ten may lie in half of the regions only."""
    allowed = np.ones(held.shape, bool)
    bound = rng.random(shape.tables) < 0.1
    allowed[bound] = rng.random((int(bound.sum()), shape.regions)) < 0.5
    allowed |= held
    short = allowed.sum(axis=1) < least
    allowed[short] = True
    return allowed


def _links(rng: np.random.Generator, names: list[str], total: float) -> list[dict[str, Any]]:
    """Every region to every other; together they carry about twice what the tables weigh."""
    pairs = [(a, b) for a in names for b in names if a != b]
    each = total / max(1, len(pairs)) * 2.0 * rng.uniform(0.3, 1.7, len(pairs))
    return [
        {"from": a, "to": b, "bytes_per_period": int(limit)}
        for (a, b), limit in zip(pairs, each, strict=True)
    ]


def _workloads(reads: list[Ints], wants: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for w, tables in enumerate(reads):
        row = wants["gpus"][w]
        found.append(
            {
                "name": f"workload-{w:05}",
                "tables": [f"table-{d:05}" for d in tables],
                "gpus": {model: float(row[g]) for g, model in enumerate(MODELS) if row[g] > 0},
                "cpus": float(wants["cpus"][w]),
                "kind": str(wants["kind"][w]),
            }
        )
    return found


def _prices(gpus: float, total_bytes: float) -> dict[str, Any]:
    """One GPU not collocated costs 1; the least replicas cost about a seventh of what all GPUs
    would.
    """
    replica = 0.15 * gpus / total_bytes
    return {
        "non_collocated_gpu": 1.0,
        "non_collocated_cpu": 0.01,
        "overload_gpu": [[0.05, 0.5], [0.2, 1.0], [1.0, 3.0]],
        "replica_byte": replica,
        "moved_byte": 0.3 * replica,
    }
