"""`topmast bench`: measurements on this machine, as one JSON document each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from topmast.bench.options import (
    ClosedLoopOptions,
    EnginesOptions,
    FillingOptions,
    FleetOptions,
    PlanDataOptions,
    SlowPathOptions,
)
from topmast.bench.ranking import measure_ranking
from topmast.bench.recover import measure_recovery
from topmast.bench.submit import measure_submission
from topmast.model.errors import InvalidInput

__all__ = [
    "ClosedLoopOptions",
    "EnginesOptions",
    "FillingOptions",
    "FleetOptions",
    "PlanDataOptions",
    "SlowPathOptions",
    "run_bench",
]


def run_bench(
    name: str,
    *,
    jobs: int | None = None,
    clients: int | None = None,
    duration_s: float | None = None,
    seed: int = 0,
    state: Path | None = None,
    fleet: FleetOptions | None = None,
    throughputs: Path | None = None,
    peer: bool = True,
    plans: PlanDataOptions | None = None,
    slow: SlowPathOptions | None = None,
    filling: FillingOptions | None = None,
    engines: EnginesOptions | None = None,
    loop: ClosedLoopOptions | None = None,
    store: str | None = None,
) -> dict[str, Any]:
    """Run the benchmark ``name``; what is None takes the benchmark's default."""
    size = fleet or FleetOptions()
    runs: dict[str, Callable[[], dict[str, Any]]] = {
        "submit": lambda: measure_submission(
            jobs or 10_000, clients or 64, duration_s or 5.0, seed, state, store
        ),
        "recover": lambda: measure_recovery(jobs or 100_000, seed, state),
        "ranking": lambda: measure_ranking(jobs or 1_000_000, seed),
        "search": lambda: _search(size, jobs, seed),
        "queue": lambda: _queue(size, jobs, duration_s, seed),
        "simulate": lambda: _simulate(size, jobs, seed),
        "eta": lambda: _eta(jobs, seed),
        "plan-data": lambda: _plan_data(plans or PlanDataOptions(seed=seed)),
        "plan-capacity": lambda: _plan_capacity(size, slow or SlowPathOptions(), seed),
        "mover": lambda: _mover(slow or SlowPathOptions(), seed, state),
        "apart": lambda: _apart(size, jobs, seed, state),
        "burst": lambda: _burst(size, jobs, seed, state),
        "policies": lambda: _policies(jobs, seed, throughputs, peer),
        "predict": lambda: _predict(jobs, seed),
        "fill": lambda: _fill(filling),
        "engines": lambda: _engines(engines, state),
        "closed-loop": lambda: _closed_loop(loop or ClosedLoopOptions(seed=seed), state),
    }
    if name not in runs:
        raise InvalidInput(f"no benchmark '{name}'", remedy=f"known: {', '.join(runs)}")
    return runs[name]()


def _fill(options: FillingOptions | None) -> dict[str, Any]:
    from topmast.bench.filling import measure_filling

    if options is None:
        raise InvalidInput("a trace and a fleet are missing", remedy="--trace FILE --fleet FILE")
    return measure_filling(options)


def _engines(options: EnginesOptions | None, state: Path | None) -> dict[str, Any]:
    from topmast.bench.engines import measure_engines

    if options is None:
        raise InvalidInput("a fleet is missing", remedy="--fleet FILE")
    return measure_engines(options, state)


def _closed_loop(options: ClosedLoopOptions, state: Path | None) -> dict[str, Any]:
    from topmast.bench.closed_loop import measure_closed_loop

    return measure_closed_loop(options, state)


def _eta(jobs: int | None, seed: int) -> dict[str, Any]:
    from topmast.bench.eta import measure_eta

    return measure_eta(jobs or 10_000, seed)


def _predict(jobs: int | None, seed: int) -> dict[str, Any]:
    from topmast.bench.predict import measure_predictions

    return measure_predictions(jobs or 60_000, seed)


def _plan_data(options: PlanDataOptions) -> dict[str, Any]:
    from topmast.bench.plandata import measure_plan_data

    return measure_plan_data(options)


def _plan_capacity(fleet: FleetOptions, slow: SlowPathOptions, seed: int) -> dict[str, Any]:
    from topmast.bench.plancapacity import PlanCapacityOptions, measure_plan_capacity

    usual = PlanCapacityOptions()
    options = PlanCapacityOptions(
        hosts=fleet.hosts or usual.hosts,
        clusters=fleet.clusters or usual.clusters,
        domains=slow.domains or usual.domains,
        seed=seed,
        limit_s=slow.limit_s or usual.limit_s,
        out=fleet.out,
    )
    return measure_plan_capacity(options)


def _mover(slow: SlowPathOptions, seed: int, state: Path | None) -> dict[str, Any]:
    from topmast.bench.mover import MoverOptions, measure_mover

    usual = MoverOptions()
    options = MoverOptions(
        size_bytes=slow.size_bytes or usual.size_bytes, files=slow.files or usual.files, seed=seed
    )
    return measure_mover(options, state)


def _policies(jobs: int | None, seed: int, throughputs: Path | None, peer: bool) -> dict[str, Any]:
    from topmast.bench.policies import PolicyOptions, measure_policies

    return measure_policies(PolicyOptions(jobs, seed, throughputs, peer))


def _apart(fleet: FleetOptions, jobs: int | None, seed: int, state: Path | None) -> dict[str, Any]:
    from topmast.bench.apart import ApartOptions, measure_apart

    usual = ApartOptions()
    options = ApartOptions(
        jobs=jobs or usual.jobs,
        hosts=fleet.hosts or usual.hosts,
        delay_s=fleet.delay_s or usual.delay_s,
        seed=seed,
    )
    return measure_apart(options, state, fleet.out)


def _burst(fleet: FleetOptions, jobs: int | None, seed: int, state: Path | None) -> dict[str, Any]:
    from topmast.bench.burst import BurstOptions, measure_burst

    usual = BurstOptions()
    options = BurstOptions(
        jobs=jobs or usual.jobs,
        hosts=fleet.hosts or usual.hosts,
        regions=fleet.regions or usual.regions,
        gpus_per_host=fleet.gpus_per_host or usual.gpus_per_host,
        apart=fleet.apart,
        delay_s=fleet.delay_s or usual.delay_s,
        seed=seed,
        settings=fleet.settings,
    )
    return measure_burst(options, state, fleet.out)


def _search(fleet: FleetOptions, jobs: int | None, seed: int) -> dict[str, Any]:
    from topmast.bench.scaling import search_and_write
    from topmast.bench.search import SearchOptions

    usual = SearchOptions()
    options = SearchOptions(
        size=fleet.size(),
        fill=usual.fill if fleet.fill is None else fleet.fill,
        seed=seed,
        decisions=jobs or usual.decisions,
        sizes_gpus=fleet.sizes_gpus or usual.sizes_gpus,
        first_use=fleet.first_use,
        mix=fleet.mix,
        settings=fleet.settings,
    )
    return search_and_write(options, scaling=fleet.scaling, out=fleet.out)


def _simulate(fleet: FleetOptions, jobs: int | None, seed: int) -> dict[str, Any]:
    from topmast.bench.simulate import SimulateOptions
    from topmast.bench.simulate_scaling import simulate_and_write

    usual = SimulateOptions()
    options = SimulateOptions(
        size=fleet.size(usual.size),
        jobs=jobs or usual.jobs,
        load=usual.load if fleet.load is None else fleet.load,
        profile=fleet.profile or usual.profile,
        seed=seed,
    )
    return simulate_and_write(options, scaling=fleet.scaling, out=fleet.out)


def _queue(
    fleet: FleetOptions, jobs: int | None, duration_s: float | None, seed: int
) -> dict[str, Any]:
    from topmast.bench.queue import QueueOptions, measure_queue

    usual = QueueOptions()
    options = QueueOptions(
        size=fleet.size(),
        jobs=jobs or usual.jobs,
        rate=fleet.rate or usual.rate,
        duration_s=duration_s or usual.duration_s,
        seed=seed,
    )
    return measure_queue(options, fleet.out)
