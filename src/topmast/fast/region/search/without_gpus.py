"""The search for one task without GPUs, over all regions in one call of a kernel.

What it costs on each host, and the best host of each cluster, is kept, and worked out anew where
hosts have changed. In each region the plan is that of `one_task`, or of `mixed` where free GPUs are
not judged by the shapes of recent tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from topmast.fast.region.inventory.arrays import F64, I64
from topmast.fast.region.inventory.columns import Floats, Ints, cpus_of
from topmast.fast.region.inventory.index import Index
from topmast.fast.region.search import compiled, loads, scoring
from topmast.fast.region.search.kept_kernels import same_slots
from topmast.fast.region.search.kernels import EPSILON, INFINITE, NOWHERE
from topmast.fast.region.search.limited_kernels import STEPS
from topmast.fast.region.search.packing import Seated
from topmast.fast.region.search.stranded import (
    EASE,
    HAIR,
    Left,
    Mixture,
    ease,
    left_of,
    mixture_of,
    stranded_of,
)
from topmast.jit import inner, kernel
from topmast.model.absent import given
from topmast.model.job import MILLI, Level
from topmast.model.plan import Free, PlacementRequest, RegionTerms, Seat
from topmast.policies.options import ScoreWeights


class Found(Struct, frozen=True):
    """Where the task would sit."""

    region: str
    seated: Seated
    stranding: float | None
    """What it pays for the GPUs that it strands by shapes; None where these do not count."""


class _Known(Struct, frozen=True):
    """What is known of tasks of one kind."""

    mixture: Mixture
    arguments: tuple[Any, ...]
    """Those of `best_hosts` that are the same for all of them."""


class Workspace:
    """What these searches keep with an index."""

    def __init__(self, index: Index) -> None:
        self.known: dict[object, _Known] = {}
        """By kind of task, of `compiled.COSTS_KEPT` kinds."""
        clusters, hosts = len(index.clusters), len(index.version)
        rows = np.arange(hosts)
        self.first: Ints = np.full(clusters, hosts)
        """(C) the row of its first host, and that after the last."""
        np.minimum.at(self.first, index.cluster_of, rows)
        self.last: Ints = np.zeros(clusters, np.int64)
        np.maximum.at(self.last, index.cluster_of, rows + 1)
        regions = [part.region for part in index.parts]
        ends = [index.spans[region] for region in regions]
        self.region_of: Ints = np.repeat(np.arange(len(regions)), [b - a for a, b in ends])
        """(C)"""
        gpus = index.arrays.offset[1:] > index.arrays.offset[:-1]
        self.has_gpus: Floats = gpus.astype(np.float64)
        """(H) 1 for a host with GPUs."""
        self.at: Ints = np.zeros((2, len(regions)), np.int64)
        self.cost: Floats = np.zeros(len(regions))


def applies(index: Index, ask: PlacementRequest, weights: ScoreWeights) -> bool:
    """Whether the request is for one task without GPUs, on any host, and free rooms are alike.

    Reserved seats are the caller's to keep out (`first_starts.kept_out`).
    """
    group = ask.groups[0]
    if len(ask.groups) != 1 or group.count != 1 or group.resources.accelerators:
        return False
    if ask.more is not None or not scoring.choices_of(ask):
        return False
    by_load = weights.allocated_gpus or weights.allocated_cpus or weights.allocated_memory
    if type(ask.mode) is not Free or by_load or index.slices is not None:
        return False
    return not index.excluded(ask)


def best(
    index: Index,
    ask: PlacementRequest,
    weights: ScoreWeights,
    terms: Mapping[str, RegionTerms],
    cluster_cost: Floats,
) -> Found | None:
    """The place of least score; ties go to the first region by name."""
    space, needs = index.workspace(Workspace), ask.groups[0].resources
    judged = scoring.by_shapes(ask, weights)
    known = _known(index, ask, weights, judged)
    amounts = cpus_of(needs), float(needs.memory_bytes)
    asked: tuple[Any, ...] = (*known.arguments, *amounts, cluster_cost, space.at, space.cost)
    best_hosts(*asked)
    found: tuple[float, int] | None = None
    beside = _beside(ask, weights)
    for number, part in enumerate(index.parts):
        row = space.at.item(1, number)
        if row == NOWHERE or part.region not in terms:
            continue
        its = scoring.terms_alike(ask, weights, Level.HOST, 0)
        own = terms[part.region]
        its["fragmentation"] = space.cost.item(number) if judged else 0.0
        its["data"] = weights.data * own.data_s / 3600.0
        its["balance"] = weights.balance * own.balance
        if beside is not None:
            its["allocation"] = beside * space.has_gpus.item(row)
        score = scoring.total(its)
        if found is None or score < found[0]:
            found = score, number
    if found is None:
        return None
    number = found[1]
    part, row = index.parts[number], space.at.item(1, number)
    seat = Seat(ask.groups[0].name, 0, index.host_names[row], (), MILLI)
    cluster = index.clusters[space.at.item(0, number)][1]
    seated = Seated(cluster, 0, Level.HOST, (seat,), 0)
    return Found(part.region, seated, space.cost.item(number) if judged else None)


def _beside(ask: PlacementRequest, weights: ScoreWeights) -> float | None:
    """What the task pays on a host with GPUs, in the steps of `loads.Loads`; None: nothing at all.

    No other load has a price here.
    """
    return STEPS * (weights.gpu_hosts / STEPS) if loads.counts(ask, weights) else None


def _known(index: Index, ask: PlacementRequest, weights: ScoreWeights, judged: bool) -> _Known:
    """What is kept of tasks of the kind, by the shapes now."""
    space, needs = index.workspace(Workspace), ask.groups[0].resources
    models, model_of = _models(index)
    shapes = given(ask.shapes, ()) if judged else ()
    mixture = mixture_of(shapes, models, weights.fragmentation)
    spared = _beside(ask, weights) or 0.0
    key = (needs.cpus, needs.memory_bytes, spared)
    found = space.known.pop(key, None)
    if found is None or found.mixture is not mixture:
        a, hosts, clusters = index.arrays, len(index.version), len(index.clusters)
        found = _Known(
            mixture,
            (
                a.free_milli, a.offset, a.free_cpus, a.free_memory, a.available, index.version,
                index.changes, model_of, spared * space.has_gpus, *mixture, space.first, space.last,
                space.region_of, np.full(hosts, -1), np.full((2, hosts), INFINITE),
                np.full(clusters, -1), np.full(clusters, NOWHERE),
            ),
        )  # fmt: skip
    space.known[key] = found
    if len(space.known) > compiled.COSTS_KEPT:
        del space.known[next(iter(space.known))]
    return found


def _models(index: Index) -> tuple[tuple[str, ...], Ints]:
    """The GPU models, and the number of each host's."""
    shared = index.workspace(compiled.Workspace)
    return shared.models, shared.model_of


# --- kernels --------------------------------------------------------------------------------------


@kernel
def best_hosts(
    free_milli: I64, offset: I64, free_cpus: F64, free_memory: F64, available: NDArray[np.bool_],
    version: I64, changes: I64, model_of: I64, beside: F64, apply: bool, milli: I64,
    shape_cpus: F64, shape_memory: F64, right: NDArray[np.bool_], share: F64, useless: F64,
    price: float, first: I64, last: I64, region_of: I64, seen: I64, costs: F64, as_of: I64,
    best_of: I64, cpus: float, memory: float, cluster_cost: F64, at: I64, cost: F64,
) -> None:  # fmt: skip
    """The best cluster and host of each region, to ``at`` (2 x R), and what it pays, to ``cost``.

    Kept from one question to the next: ``costs`` (2 x H), what the task pays by shapes, and that
    with what it pays ``beside`` (H), as of the version that was ``seen`` (H); the best host of a
    cluster (C) as of its change. Ties go to the first. O(C + hosts of clusters that changed).
    """
    m = Mixture(apply, milli, shape_cpus, shape_memory, right, share, useless, price)
    least = np.full(cost.shape[0], INFINITE)
    at[:] = NOWHERE
    like = NOWHERE
    for cluster in range(cluster_cost.shape[0]):
        if cluster_cost[cluster] == INFINITE:
            continue
        if as_of[cluster] != changes[cluster]:
            as_of[cluster] = changes[cluster]
            lowest, best = INFINITE, NOWHERE
            for host in range(first[cluster], last[cluster]):
                if seen[host] != version[host]:
                    seen[host] = version[host]
                    if (
                        not available[host]
                        or (cpus > 0.0 and cpus > free_cpus[host] + HAIR)
                        or (memory > 0.0 and memory > free_memory[host])
                    ):
                        costs[0, host], costs[1, host] = INFINITE, INFINITE
                        continue
                    if like != NOWHERE and _alike(
                        free_milli, offset, free_cpus, free_memory, model_of, host, like
                    ):
                        costs[0, host] = costs[0, like]
                    else:
                        free = free_milli[offset[host] : offset[host + 1]]
                        costs[0, host] = _cost(
                            m,
                            model_of[host],
                            free,
                            free_cpus[host],
                            free_memory[host],
                            cpus,
                            memory,
                        )
                        like = host
                    costs[1, host] = costs[0, host] + beside[host]
                if costs[1, host] < lowest - EPSILON:
                    lowest, best = costs[1, host], host
            best_of[cluster] = best
        host = best_of[cluster]
        if host == NOWHERE:
            continue
        region, score = region_of[cluster], cluster_cost[cluster] + costs[1, host]
        if score < least[region] - EPSILON:
            least[region], cost[region] = score, costs[0, host]
            at[0, region], at[1, region] = cluster, host


@inner
def _alike(
    free_milli: I64, offset: I64, free_cpus: F64, free_memory: F64, model_of: I64, host: int,
    other: int,
) -> bool:  # fmt: skip
    """Whether a task pays the same on two hosts. O(slots)."""
    if free_cpus[host] != free_cpus[other] or free_memory[host] != free_memory[other]:
        return False
    if model_of[host] != model_of[other]:
        return False
    return same_slots(free_milli, offset, host, other)


@inner
def _cost(
    m: Mixture, model: int, free: I64, free_cpus: float, free_memory: float, cpus: float,
    memory: float,
) -> float:  # fmt: skip
    """What a task pays on a host, as in `one_task`; nothing where shapes do not count."""
    if not m.apply:
        return 0.0
    old = left_of(m, free, free_cpus, free_memory)
    left = Left(old.whole, old.parts, old.useless, free_cpus - cpus, free_memory - memory)
    change = stranded_of(m, model, left) - stranded_of(m, model, old)
    return m.price * (change + EASE * ease(left))
