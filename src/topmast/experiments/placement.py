"""A simple data placement, made once before a run: where each dataset gets replicas.

It stands in for the slow path. Datasets that jobs read together are one unit and stay together.
Greedy: the unit with the most demand first, to the region where the worst ratio of demand to supply
stays lowest; then a second replica for units that are worth most per byte, while a budget of
storage lasts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from topmast.fast.queue import could_hold
from topmast.model.fleet import DatasetSpec, Fleet
from topmast.sim.workload import Workload
from topmast.traces.trace import Trace

Floats = NDArray[np.float64]
STAYS = 0.05
"""So much lower the worst ratio must be for a unit to leave the region where it is."""


class PlacementOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """How to place. ``overhead``: bytes of replicas beyond one copy, over those of one copy, at
    most.

    ``together``: what stays in one region: datasets read `by-job` together, or all of a
    `by-tenant`. ``forecast_error``: the standard deviation of the logarithm of a forecast over
    the truth.
    """

    together: str = "by-job"
    overhead: float = 0.6
    forecast_error: float = 0.3


class Unit(Struct):
    """Datasets that stay together: their demand in GPU-seconds by model (m), their home, their
    size.
    """

    datasets: list[int]
    gpu_s: Floats
    size_bytes: int
    regions: list[int]
    able: NDArray[np.bool_]
    """(R) Regions that could hold the largest gangs that read these datasets."""


def place(trace: Trace, fleet: Fleet, options: PlacementOptions, seed: int) -> Fleet:
    """The fleet with the replicas that a placement for the jobs of a trace gives it.

    O(jobs + units x regions x log units).
    """
    regions = sorted(r.name for r in fleet.regions)
    models = list(fleet.models())
    units = _units(trace, fleet, options, regions, models)
    draw = np.random.default_rng((seed, 0x71AC))
    for unit in units:
        unit.gpu_s *= float(np.exp(draw.normal(0.0, options.forecast_error)))
    supply = _supply(fleet, regions, models)
    room = _room(fleet, regions)
    load = _first_copies(units, supply, room)
    if options.overhead > 0:
        _second_copies(units, supply, room, load, options.overhead)
    replicas = {i: unit.regions for unit in units for i in unit.datasets}
    datasets = tuple(
        structs.replace(d, replicas=tuple(regions[r] for r in sorted(replicas[i])))
        if i in replicas
        else d
        for i, d in enumerate(fleet.datasets)
    )
    return structs.replace(fleet, datasets=datasets)


# -------------------------------------------------------------------------------- units and supply


def _units(
    trace: Trace, fleet: Fleet, options: PlacementOptions, regions: list[str], models: list[str]
) -> list[Unit]:
    number = {d.name: i for i, d in enumerate(fleet.datasets)}
    reads = [
        [number[name] for name in text.split("|") if name in number] if text else []
        for text in trace.datasets.names
    ]
    joined = _joined(trace, reads, len(number), options.together)
    gpu_s = _demand(trace, reads, models, len(number))
    able = _able(trace, fleet, reads, regions, len(number))
    units: dict[int, Unit] = {}
    for i, d in enumerate(fleet.datasets):
        if d.allowed is not None or not d.replicas:
            continue  # residency: left where it is
        unit = units.setdefault(
            joined[i], Unit([], np.zeros(len(models)), 0, [], np.ones(len(regions), np.bool_))
        )
        unit.datasets.append(i)
        unit.gpu_s += gpu_s[i]
        unit.able &= able[i]
        unit.size_bytes += d.size_bytes
        unit.regions = unit.regions or [regions.index(d.replicas[0])]
    return list(units.values())


def _joined(trace: Trace, reads: Sequence[list[int]], count: int, together: str) -> list[int]:
    """The unit of each dataset, named by one of its members (union-find)."""
    parent = list(range(count))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for read in reads:
        for other in read[1:]:
            parent[root(other)] = root(read[0])
    if together == "by-tenant":
        first: dict[int, int] = {}
        pairs = np.unique(np.stack([trace.tenant.codes, trace.datasets.codes]), axis=1)
        for tenant, code in pairs.T.tolist():
            for i in reads[code]:
                parent[root(i)] = root(first.setdefault(tenant, i))
    return [root(i) for i in range(count)]


def _demand(trace: Trace, reads: Sequence[list[int]], models: list[str], count: int) -> Floats:
    """GPU-seconds wanted by dataset and GPU model; of a job with several models, of its first."""
    gpu_s = np.zeros((count, len(models)))
    wanted = [names.split("|")[0] for names in trace.gpu_models.names]
    work = trace.gpus * trace.tasks * trace.duration_s
    for row, (code, model) in enumerate(
        zip(trace.datasets.codes.tolist(), trace.gpu_models.codes.tolist(), strict=True)
    ):
        name = wanted[model]
        share = work[row] / max(1, len(reads[code]))
        for i in reads[code]:
            if name in models:
                gpu_s[i, models.index(name)] += share
            else:
                gpu_s[i] += share / len(models)
    return gpu_s


def _able(
    trace: Trace, fleet: Fleet, reads: Sequence[list[int]], regions: list[str], count: int
) -> NDArray[np.bool_]:
    """The regions where every job that reads a dataset could run (datasets x regions).

    A kind of job that no region could hold does not count.
    """
    able = np.ones((count, len(regions)), np.bool_)
    known: dict[object, NDArray[np.bool_]] = {}
    clusters = [(regions.index(r.name), c) for r in fleet.regions for c in r.clusters]
    for arrival in Workload(trace, fleet).arrivals():
        spec = arrival.spec
        if spec.groups not in known:
            fits = np.zeros(len(regions), np.bool_)
            for region, cluster in clusters:
                fits[region] |= could_hold(cluster, spec)
            known[spec.groups] = fits if fits.any() else ~fits
        for i in reads[int(trace.datasets.codes[arrival.row])]:
            able[i] &= known[spec.groups]
    return able


def _supply(fleet: Fleet, regions: list[str], models: list[str]) -> Floats:
    """GPUs (regions x models)."""
    supply = np.zeros((len(regions), len(models)))
    for region in fleet.regions:
        for host in (h for c in region.clusters for h in c.hosts if h.gpus):
            supply[regions.index(region.name), models.index(host.model)] += host.gpus
    return supply


def _room(fleet: Fleet, regions: list[str]) -> Floats:
    """Bytes of storage by region."""
    by_name = {r.name: r.storage_bytes for r in fleet.regions}
    return np.array([np.inf if by_name[r] is None else float(by_name[r] or 0) for r in regions])


# ------------------------------------------------------------------------------------------ greedy


def _first_copies(units: list[Unit], supply: Floats, room: Floats) -> Floats:
    """One copy of everything: large demand first. Gives the load (regions x models)."""
    total = sum((unit.gpu_s for unit in units), np.zeros(supply.shape[1]))
    fair = total / np.maximum(supply.sum(axis=0), 1.0)  # GPU-seconds per GPU if all were level
    load = np.zeros_like(supply)
    for unit in sorted(units, key=lambda u: (-float(u.gpu_s.sum()), u.datasets[0])):
        worst = _worst(load + unit.gpu_s, supply, fair, unit.gpu_s)
        worst[room < unit.size_bytes] = np.inf
        worst[~unit.able & unit.able.any()] = np.inf
        best, home = int(np.argmin(worst)), unit.regions[0]
        chosen = home if worst[home] <= max(1.0 - STAYS, worst[best] + STAYS) else best
        unit.regions = [chosen]
        load[chosen] += unit.gpu_s
        room[chosen] -= unit.size_bytes
    return load


def _second_copies(
    units: list[Unit], supply: Floats, room: Floats, load: Floats, overhead: float
) -> None:
    """A second region for what is read most per byte, so that its jobs may go where there is
    room.
    """
    total = sum((unit.gpu_s for unit in units), np.zeros(supply.shape[1]))
    fair = total / np.maximum(supply.sum(axis=0), 1.0)
    budget = overhead * sum(unit.size_bytes for unit in units)
    worth = sorted(
        units, key=lambda u: (-float(u.gpu_s.sum()) / max(1, u.size_bytes), u.datasets[0])
    )
    for unit in worth:
        if unit.size_bytes > budget:
            continue
        worst = _worst(load + unit.gpu_s / 2, supply, fair, unit.gpu_s)
        worst[(room < unit.size_bytes) | ~unit.able] = np.inf
        worst[unit.regions[0]] = np.inf
        best = int(np.argmin(worst))
        if not np.isfinite(worst[best]):
            continue
        load[unit.regions[0]] -= unit.gpu_s / 2
        load[best] += unit.gpu_s / 2
        unit.regions.append(best)
        room[best] -= unit.size_bytes
        budget -= unit.size_bytes


def _worst(load: Floats, supply: Floats, fair: Floats, wanted: Floats) -> Floats:
    """By region: the largest ratio of load to supply, over the models wanted, level being 1."""
    ratio = load / np.maximum(supply, 1e-9) / np.maximum(fair, 1e-9)
    ratio[:, wanted <= 0] = 0.0
    return np.asarray(ratio.max(axis=1), dtype=np.float64)


def overhead_of(datasets: Sequence[DatasetSpec]) -> float:
    """Bytes of replicas beyond one copy of each dataset, over those of one copy."""
    one = sum(d.size_bytes for d in datasets)
    return sum(d.size_bytes * (len(d.replicas) - 1) for d in datasets) / one if one else 0.0
