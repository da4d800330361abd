"""Runs of the simulator for tests: a small world, and its tables in memory."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tests.support.build import cluster, dataset, fleet
from topmast.model.fleet import Fleet
from topmast.policies.options import Profile
from topmast.policies.registry import load_profile
from topmast.sim.books import ALLOCATIONS, COPIES, JOBS, Tables
from topmast.sim.settings import Settings
from topmast.sim.simulation import Result, Simulation
from topmast.sim.timeline import HEADER
from topmast.slow.data.access_log import Entry
from topmast.traces.throughputs import Throughputs
from topmast.traces.trace import Trace, trace_of

Row = dict[str, Any]
FREE = Settings().without_overheads()


class Run(Struct):
    """One run and everything that it wrote."""

    result: Result
    jobs: list[Row]
    allocations: list[Row]
    timeline: list[Row]
    copies: list[Row]

    def job(self, name: str) -> Row:
        """The row of a job."""
        return next(row for row in self.jobs if row["job_id"] == name)


def run(
    trace: Trace,
    world: Fleet,
    profile: str | Profile = "fifo-skip",
    settings: Settings = FREE,
    seed: int = 0,
    **options: str,
) -> Run:
    """Simulate; ``options`` are laid over a profile given by name."""
    made = load_profile(profile, options) if isinstance(profile, str) else profile
    return run_timed(trace, world, made, None, settings, seed)


def run_timed(
    trace: Trace,
    world: Fleet,
    profile: Profile,
    throughputs: Throughputs | None,
    settings: Settings = FREE,
    seed: int = 0,
    read: Sequence[Entry] = (),
) -> Run:
    """Simulate with a table of measured speeds, alone and in pairs; ``read``: before the run."""
    tables: dict[str, list[Row]] = {"jobs": [], "allocations": [], "timeline": [], "copies": []}

    def into(name: str, header: Sequence[str]) -> Any:
        return lambda row: tables[name].append(dict(zip(header, row, strict=True)))

    simulation = Simulation(
        trace, world, profile, settings,
        Tables(into("jobs", JOBS), into("allocations", ALLOCATIONS), into("timeline", HEADER),
               into("copies", COPIES)),
        seed, throughputs=throughputs,
    )  # fmt: skip
    if simulation.planning is not None:
        simulation.planning.remember(read)
    simulation.run()
    return Run(simulation.finish(), **tables)


def jobs(*rows: tuple[Any, ...], **more: Any) -> Trace:
    """A trace of (submit_s, duration_s, gpus); other columns by name."""
    submit_s, duration_s, gpus = zip(*rows, strict=True)
    return trace_of("test", submit_s=submit_s, duration_s=duration_s, gpus=gpus, **more)


def small_fleet() -> Fleet:
    """Two regions of 16 and 8 GPUs, with data in one, the other, or both."""
    return fleet(
        cluster("east-1", hosts=2, gpus=8),
        cluster("west-1", hosts=1, gpus=8, model="A100"),
        datasets=(
            dataset("here", "east", size_bytes=4 * 10**10),
            dataset("there", "west", size_bytes=2 * 10**10),
            dataset("both", "east", "west"),
        ),
    )


def mixed_trace(count: int, seed: int, most_tasks: int = 0) -> Trace:
    """Jobs of all bands, some with data, some in gangs, some that nothing could ever hold.

    ``most_tasks``: the small ones may have so many, and as few as one.
    """
    rng = random.Random(seed)
    pick = rng.choice
    table: dict[str, Any] = {
        "submit_s": sorted(rng.uniform(0, 20_000.0) for _ in range(count)),
        "duration_s": [rng.uniform(30.0, 8_000.0) for _ in range(count)],
        "gpus": [pick((0.5, 1, 2, 4, 8)) for _ in range(count)],
        "tasks": [pick((1, 1, 1, 2)) for _ in range(count - 1)] + [64],
        "band": [pick((400, 300, 200, 200, 100, 0)) for _ in range(count)],
        "tenant": [pick(("a", "b", "c")) for _ in range(count)],
        "user": [pick(("ann", "bob")) for _ in range(count)],
        "gpu_models": [pick(("", "H100", "H100|A100", "A100")) for _ in range(count)],
        "speeds": ["" for _ in range(count)],
        "datasets": [pick(("", "", "here", "there", "both", "here|both")) for _ in range(count)],
    }
    if most_tasks:
        tasks = table["tasks"]
        table["min_tasks"] = [1 if n <= most_tasks else n for n in tasks]
        table["max_tasks"] = [max(n, most_tasks) for n in tasks]
    return trace_of("mixed", **table)
