"""From a fleet and a forecast to a problem of data placement.

A forecast says how many GPU-seconds of each *kind* each *reading* will need: a reading is a set
of tables that are read together, a kind a GPU model and whether the work is pressing. The problem
has two measures of every model in every region: pressing work against the GPUs there are, and all
work against as much of it as the region's share of the GPUs. The second is what levels work that
can wait, of which there may be more than the fleet can do.

A robust plan is made for several days at once: each *scenario* has loads of its own on the same
replicas (a sample average approximation; Kleywegt, Shapiro, Homem-de-Mello 2002).

Gangs that a region cannot hold whole are workloads of their own, which may not be served there:
they also need a trifle of a *gate*, a measure that all regions but those have more of than
is needed. They are rare: of the tables that may have one tomorrow, few have one in any scenario.
So what is *expected* of them, table by table, needs its gate too, and nothing else: it asks for
replicas where such gangs fit, and loads no GPU a second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from topmast.model.fleet import DatasetSpec, Fleet
from topmast.slow.arrays import Floats
from topmast.slow.data.problem import Link, Prices, Problem, Region, Table, Workload

UNLIMITED_BYTES = 2.0**62
ANY = ""
"""The model of work that takes any, or names one that the fleet has not: measured apart from the
models.
"""
LEAST_GPUS = 1e-6
"""Demand below this many GPUs is none."""
GATE_GPUS = 1e-9
"""What a workload of a scenario needs of a gate: too little to cost anything."""
GATE_ROOM = 10.0
"""A gate has so many times what is needed of it, so that it is never the worst load."""


class Kind(Struct, frozen=True):
    """Work for GPUs of one model; ``pressing``: of bands that have to be served at once.

    ``barred``: regions of which no cluster could hold it, for the size of its gangs.
    """

    model: str
    pressing: bool
    barred: tuple[str, ...] = ()


class Terms(Struct, frozen=True, forbid_unknown_fields=True):
    """What a plan weighs; prices are for one GPU over a period, so that 1 is a GPU's own price.

    ``overload``: (up to which part of the supply, price). ``replica_part``: what a second copy of
    everything would cost, in parts of all GPUs; ``move_part``: the same of moving it. ``growth``:
    bytes of new replicas over those of one copy of everything, at most (None: links and storage
    alone limit).
    """

    non_collocated: float = 6.0
    overload: tuple[tuple[float, float], ...] = ((0.1, 1.0), (0.3, 2.0), (1.0, 6.0))
    replica_part: float = 0.02
    move_part: float = 0.01
    growth: float | None = None


def problem_of(
    fleet: Fleet,
    replicas: Mapping[str, Sequence[str]],
    readings: Sequence[tuple[str, ...]],
    kinds: Sequence[Kind],
    days: Floats,
    period_s: float,
    terms: Terms,
    expected: Floats | None = None,
) -> Problem:
    """The problem for ``days`` [s, i, k]: GPU-seconds of each reading and kind in equally likely
    scenarios.

    ``replicas``: where each dataset is complete now. ``expected`` [i, k]: GPU-seconds of the mean
    day that the scenarios are drawn around, if they are drawn. O(datasets + scenarios x readings x
    kinds).
    """
    one_copy_bytes = float(sum(d.size_bytes for d in fleet.datasets)) or 1.0
    gpus = float(sum(fleet.gpus().values()))
    per_byte = gpus * len(days) / one_copy_bytes
    budget = None if terms.growth is None else terms.growth * one_copy_bytes
    rare = () if expected is None else _rare(readings, kinds, expected * len(days) / period_s)
    return Problem(
        regions=_regions(fleet, kinds, days / period_s, rare),
        tables=tuple(_table(d, replicas.get(d.name, ())) for d in fleet.datasets),
        prices=Prices(
            non_collocated_gpu=terms.non_collocated,
            overload_gpu=terms.overload,
            replica_byte=terms.replica_part * per_byte,
            moved_byte=terms.move_part * per_byte,
        ),
        workloads=(*_workloads(readings, kinds, days / period_s, _with_any(fleet.gpus())), *rare),
        links=tuple(
            Link(link.source, link.target, link.bytes_per_s * period_s) for link in fleet.links
        ),
        move_budget_bytes=budget,
    )


def with_placement(fleet: Fleet, answer: Mapping[str, Any]) -> Fleet:
    """The fleet with its datasets where an answer puts them."""
    placement = answer["placement"]
    datasets = tuple(replace(d, replicas=tuple(placement[d.name])) for d in fleet.datasets)
    return replace(fleet, datasets=datasets)


def _table(dataset: DatasetSpec, replicas: Sequence[str]) -> Table:
    return Table(
        dataset.name,
        dataset.size_bytes,
        tuple(sorted(replicas)),
        dataset.allowed,
        min_replicas=max(1, dataset.min_replicas),
    )


def _regions(
    fleet: Fleet, kinds: Sequence[Kind], gpus: Floats, rare: Sequence[Workload]
) -> tuple[Region, ...]:
    """Regions with the supply of each measure in each scenario, and with what gates have."""
    room = GATE_ROOM * (1.0 + sum(sum(each.gpus.values()) for each in rare))
    total = _with_any(fleet.gpus())
    models = tuple(_model_of(kind, total) for kind in kinds)
    wanted = [
        {
            model: sum(float(day[:, k].sum()) for k, m in enumerate(models) if m == model)
            for model in total
        }
        for day in gpus
    ]  # fmt: skip
    found = []
    for region in sorted(fleet.regions, key=lambda r: r.name):
        here = _with_any(Fleet((region,)).gpus())
        supply: dict[str, float] = {}
        for scenario, by_model in enumerate(wanted):
            for model, there in here.items():
                if by_model[model] <= 0.0:
                    continue
                fair = max(1.0, by_model[model] / total[model])
                supply[_measure(model, "pressing", scenario)] = float(there)
                supply[_measure(model, "all", scenario)] = there * fair
        for kind, model in zip(kinds, models, strict=True):
            if kind.barred and model in here and region.name not in kind.barred:
                supply[_gate(kind)] = room
        storage = UNLIMITED_BYTES if region.storage_bytes is None else region.storage_bytes
        found.append(Region(region.name, storage, supply))
    return tuple(found)


def _with_any(gpus: Mapping[str, int]) -> dict[str, int]:
    """GPUs by model, and all of them for work that takes any."""
    return {**gpus, ANY: sum(gpus.values())} if gpus else {}


def _model_of(kind: Kind, models: Mapping[str, int]) -> str:
    return kind.model if kind.model in models else ANY


def _measure(model: str, what: str, scenario: int) -> str:
    return f"{model} {what} {scenario}"


def _gate(kind: Kind) -> str:
    return f"{kind.model} not in {', '.join(kind.barred)}"


def _workloads(
    readings: Sequence[tuple[str, ...]],
    kinds: Sequence[Kind],
    gpus: Floats,
    models: Mapping[str, int],
) -> tuple[Workload, ...]:
    """One for each reading, scenario and set of regions that cannot hold its gangs."""
    found = []
    for scenario, by_reading in enumerate(gpus):
        for number, tables in enumerate(readings):
            demands: dict[tuple[str, ...], dict[str, float]] = {}
            for kind, wanted in zip(kinds, by_reading[number].tolist(), strict=True):
                if wanted < LEAST_GPUS:
                    continue
                demand = demands.setdefault(kind.barred, {})
                if kind.barred:
                    demand[_gate(kind)] = GATE_GPUS
                measures = ("pressing", "all") if kind.pressing else ("all",)
                for what in measures:
                    name = _measure(_model_of(kind, models), what, scenario)
                    demand[name] = demand.get(name, 0.0) + wanted
            for barred, demand in demands.items():
                beside = f" not in {', '.join(barred)}" if barred else ""
                found.append(Workload(f"{number}/{scenario}{beside}", tables, demand))
    return tuple(found)


def _rare(
    readings: Sequence[tuple[str, ...]], kinds: Sequence[Kind], gpus: Floats
) -> tuple[Workload, ...]:
    """One for each reading and gate, of what is expected [i, k] of gangs that need that gate."""
    found = []
    for number, tables in enumerate(readings):
        expected: dict[str, float] = {}
        for kind, wanted in zip(kinds, gpus[number].tolist(), strict=True):
            if kind.barred and wanted >= LEAST_GPUS:
                gate = _gate(kind)
                expected[gate] = expected.get(gate, 0.0) + wanted
        for gate, wanted in expected.items():
            found.append(Workload(f"{number}/expected {gate}", tables, {gate: wanted}))
    return tuple(found)
