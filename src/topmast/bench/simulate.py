"""How fast the simulator runs a generated trace on a generated fleet, and with what memory."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from topmast.bench.fleet import FleetSize, regions_of
from topmast.bench.pool import replay
from topmast.bench.setup import machine
from topmast.experiments.collector import calm
from topmast.experiments.outputs import tables_in
from topmast.fast.region import warm
from topmast.model.errors import InvalidInput
from topmast.model.fleet import Fleet
from topmast.policies.registry import load_profile
from topmast.sim.settings import Settings
from topmast.sim.simulation import Result, Simulation
from topmast.traces.generate import generate
from topmast.traces.trace import Trace

KIND = "philly-like"
POOL_JOBS = 100_000
"""The bare pool replays no more than so many."""


class SimulateOptions(Struct, frozen=True, kw_only=True):
    """What is run."""

    size: FleetSize = FleetSize(20, 200, 12_500)
    jobs: int = 20_000
    load: float = 0.9
    """The GPU time of all jobs over what there is while they arrive."""
    profile: str = "mast"
    seed: int = 0


def measure_simulation(options: SimulateOptions) -> dict[str, Any]:
    """Run `philly-like` jobs; every job, attempt and interval is written to disk as it is known.

    Raises InvalidInput for options that do not fit.
    """
    if not options.load > 0:
        raise InvalidInput("is not above 0", field="--load", remedy="for example 0.9")
    trace = _trace(options)
    fleet = Fleet(tuple(regions_of(options.size.checked())))
    result, (wall_s, cpu_s), queue = _run(options, trace, fleet)
    jobs = len(trace)
    return {
        "jobs_per_s": jobs / wall_s,
        "jobs_per_cpu_s": jobs / cpu_s,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "us_per_job": 1e6 * cpu_s / jobs,
        "peak_rss_bytes": peak_rss_bytes(),
        "jobs": jobs,
        "finished": result.summary["finished"],
        "waiting": result.summary["waiting"],
        "never_startable": result.summary["never_startable"],
        "events": result.events,
        "wait_mean_s": result.summary["wait_s"]["mean"],
        "queue_max": queue,
        "bare_pool_jobs_per_cpu_s": _bare_pool(trace, options.size.gpus),
        "trace": KIND,
        "profile": options.profile,
        "load": options.load,
        "regions": options.size.regions,
        "clusters": options.size.clusters,
        "hosts": options.size.hosts,
        "gpus": options.size.gpus,
        "seed": options.seed,
        "machine": machine(),
    }


def _trace(options: SimulateOptions) -> Trace:
    """The jobs, arriving as fast as the load wants it; no larger than a cluster may hold."""
    trace, _ = generate(KIND, options.jobs, options.seed)
    asked_gpu_s = float((trace.gpus * trace.tasks * trace.duration_s).sum())
    span_s = float(np.ptp(trace.submit_s)) or 1.0
    return trace.with_load(options.load / (asked_gpu_s / span_s / options.size.gpus))


def _run(
    options: SimulateOptions, trace: Trace, fleet: Fleet
) -> tuple[Result, tuple[float, float], int]:
    """The run; its wall and CPU seconds, and the longest queue that was seen."""
    warm.warm_up()
    longest = 0
    with (
        tempfile.TemporaryDirectory(prefix="topmast-bench-") as folder,
        tables_in(Path(folder), _discard) as tables,
    ):
        profile, settings = load_profile(options.profile), Settings()
        simulation = Simulation(trace, fleet, profile, settings, tables, options.seed)
        ranking = simulation.machines.queue.backlog.ranking

        def tell(over: int, now_s: float) -> None:
            nonlocal longest
            longest = max(longest, len(ranking))

        with calm():
            begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
            simulation.run(tell)
            wall_s, cpu_s = time.perf_counter() - begun_s, time.process_time() - begun_cpu_s
        result = simulation.finish()
    return result, (wall_s, cpu_s), longest


def _discard(row: object) -> None:
    """Rows that are not wanted."""


def _bare_pool(trace: Trace, gpus: int) -> float:
    """Jobs a CPU second that a bare pool of as many GPUs replays."""
    head = trace.head(POOL_JOBS)
    columns = head.submit_s.tolist(), head.duration_s.tolist(), (head.gpus * head.tasks).tolist()
    begun_s = time.process_time()
    replay(*columns, gpus)
    return len(head) / max(1e-9, time.process_time() - begun_s)


def peak_rss_bytes() -> int:
    """The most memory that this process has held.

    It is VmHWM: the figure of getrusage begins with the parent's.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most if sys.platform == "darwin" else most * 1024)
