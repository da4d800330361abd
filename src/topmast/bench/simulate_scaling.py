"""How the cost of a simulated job grows with jobs, hosts and the length of the queue.

Each run is made in a process of its own, so that its memory is its own, too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from topmast.bench.fleet import FleetSize
from topmast.bench.scaling import exponent, write_table
from topmast.bench.setup import write
from topmast.bench.simulate import SimulateOptions, measure_simulation
from topmast.model.errors import TopmastError

JOBS = (2_000, 5_000, 10_000, 20_000)
HOSTS = (500, 1_000, 2_500, 5_000, 12_500)
HOSTS_PER_CLUSTER = 50
REGIONS_OF_HOSTS = 10
LOADS = (8.0, 16.0, 32.0, 128.0)
QUEUED_ON = FleetSize(4, 4, 40)
"""A small fleet, so that few jobs make a long queue."""
KEPT = (
    "us_per_job", "cpu_s", "wall_s", "jobs_per_s", "jobs_per_cpu_s", "peak_rss_bytes", "finished",
    "events",
)  # fmt: skip


class Point(Struct, frozen=True):
    """One run of a series."""

    axis: str
    """What grows."""
    options: SimulateOptions


def points(like: SimulateOptions) -> Iterator[Point]:
    """More and more jobs; more and more hosts at the same load; longer and longer queues."""
    for jobs in JOBS:
        yield Point("jobs", replace(like, jobs=jobs))
    few = replace(like, jobs=min(like.jobs, JOBS[0]))
    for hosts in HOSTS:
        size = FleetSize(REGIONS_OF_HOSTS, hosts // HOSTS_PER_CLUSTER, hosts)
        yield Point("hosts", replace(few, size=size))
    for load in LOADS:
        yield Point("queue_max", replace(few, size=QUEUED_ON, load=load))


def simulate_and_write(
    options: SimulateOptions, *, scaling: bool, out: Path | None
) -> dict[str, Any]:
    """`topmast bench simulate`: the figures of one run and, for ``scaling``, of all the others."""
    document = measure_simulation(options)
    document["command"] = command_of(options, scaling=scaling)
    if scaling:
        rows = [_row(point, measure_apart(point.options)) for point in points(options)]
        document["growth"] = growth_of(rows)
        document["scaling"] = rows
    if out is not None:
        write(out, "simulate", document)
        if scaling:
            write_table(out / "scaling.csv", document["scaling"])
            draw(out, document["scaling"])
    return document


def command_of(options: SimulateOptions, *, scaling: bool = False) -> str:
    """The command that measures this."""
    return " ".join(["topmast", *_arguments(options), *(["--scaling"] if scaling else [])])


def _arguments(options: SimulateOptions) -> list[str]:
    size = options.size
    arguments = [
        "bench", "simulate", "--jobs", options.jobs, "--profile", options.profile,
        "--load", options.load, "--regions", size.regions, "--clusters", size.clusters,
        "--hosts", size.hosts, "--gpus-per-host", size.gpus_per_host, "--seed", options.seed,
    ]  # fmt: skip
    return [str(argument) for argument in arguments]


def measure_apart(options: SimulateOptions) -> dict[str, Any]:
    """Measure in a process of its own. Raises TopmastError if that fails."""
    sys.stderr.write(f"{command_of(options)}\n")
    command = [sys.executable, "-m", "topmast.app", *_arguments(options), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TopmastError(f"{command_of(options)}: {done.stderr.strip()}")
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def _row(point: Point, figures: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of one run."""
    own = ("jobs", "hosts", "regions", "load", "queue_max")
    return {
        "axis": point.axis,
        **{name: figures[name] for name in (*own, *KEPT)},
        "command": figures["command"],
    }


def growth_of(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By series: the exponent e of cost ~ x**e. 0 for a job is linear growth of the run."""
    found = []
    for axis in dict.fromkeys(row["axis"] for row in rows):
        series = [row for row in rows if row["axis"] == axis]
        amounts = [row[axis] for row in series]
        exponents = {
            name: exponent(amounts, [row[name] for row in series])
            for name in ("us_per_job", "cpu_s", "peak_rss_bytes")
        }
        found.append({"axis": axis, **exponents})
    return found


def draw(folder: Path, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """A plot for each series: CPU microseconds of a job."""
    from topmast import plot

    paths = []
    for axis in dict.fromkeys(row["axis"] for row in rows):
        series = [row for row in rows if row["axis"] == axis]
        drawn = plot.figure()
        amounts = [row[axis] for row in series]
        costs = [row["us_per_job"] for row in series]
        drawn.axes[0].plot(amounts, costs, marker="o", label="measured")
        linear = [costs[0] * amount / amounts[0] for amount in amounts]
        drawn.axes[0].plot(amounts, linear, "--", color="#6b7280", label="growing as fast")
        drawn.axes[0].set_xscale("log")
        drawn.axes[0].set_yscale("log")
        says = {"queue_max": "longest queue"}.get(axis, axis)
        plot.label(drawn, f"A simulated job against {says}", says, "CPU, us")
        plot.legend(drawn)
        paths += plot.save(drawn, folder, f"by-{axis.replace('_', '-')}")
    return paths
