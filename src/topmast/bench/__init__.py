"""`topmast bench`: measurements on this machine, as one JSON document each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from topmast.bench.options import FleetOptions, PlanDataOptions
from topmast.bench.ranking import measure_ranking
from topmast.bench.recover import measure_recovery
from topmast.bench.submit import measure_submission
from topmast.model.errors import InvalidInput

__all__ = ["FleetOptions", "PlanDataOptions", "run_bench"]


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
) -> dict[str, Any]:
    """Run the benchmark ``name``; what is None takes the benchmark's default."""
    if name == "submit":
        return measure_submission(jobs or 10_000, clients or 64, duration_s or 5.0, seed, state)
    if name == "recover":
        return measure_recovery(jobs or 100_000, seed, state)
    if name == "ranking":
        return measure_ranking(jobs or 1_000_000, seed)
    if name == "search":
        return _search(fleet or FleetOptions(), jobs, seed)
    if name == "queue":
        return _queue(fleet or FleetOptions(), jobs, duration_s, seed)
    if name == "simulate":
        return _simulate(fleet or FleetOptions(), jobs, seed)
    if name == "eta":
        from topmast.bench.eta import measure_eta

        return measure_eta(jobs or 10_000, seed)
    if name == "plan-data":
        from topmast.bench.plandata import measure_plan_data

        return measure_plan_data(plans or PlanDataOptions(seed=seed))
    if name == "apart":
        return _apart(fleet or FleetOptions(), jobs, seed, state)
    if name == "policies":
        return _policies(jobs, seed, throughputs, peer)
    known = "submit, recover, ranking, search, queue, simulate, apart, eta, policies or plan-data"
    raise InvalidInput(f"no benchmark '{name}'", remedy=known)


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
