"""How the cost of a decision grows with hosts, regions and running jobs: figures and plots.

Each fleet is made and measured in a process of its own, so that its memory is its own, too.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from topmast.bench.fleet import FleetSize
from topmast.bench.search import SearchOptions, measure_search
from topmast.bench.setup import write
from topmast.model.errors import TopmastError

HOSTS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
HOSTS_PER_CLUSTER = 100
REGIONS_OF_HOSTS = 10
REGIONS = (1, 5, 20, 50)
MIXES: tuple[tuple[int, ...], ...] = (
    (64,),
    (16, 64),
    (1, 2, 4, 8, 16, 64),
    (1, 2, 4, 8),
    (1, 2),
    (1,),
)
"""Sizes of the jobs that hold the same fleet: the smaller, the more of them run."""
DECISIONS = 500
COSTS = (
    "single_p50_us", "gang_p50_us", "preempt_p50_us", "preempt_gang_p50_us",
    "limited_single_p50_us", "limited_gang_p50_us", "single_per_s", "gang_per_s",
)  # fmt: skip
KEPT = (*COSTS, "single_p99_us", "gang_p99_us", "preempt_p99_us", "rss_bytes", "fill", "fill_s")
NAMES = {
    "single_p50_us": "1 GPU",
    "gang_p50_us": "64 GPUs",
    "preempt_p50_us": "1 or 8 GPUs, with victims",
    "preempt_gang_p50_us": "64 GPUs, with victims",
    "limited_single_p50_us": "1 GPU, CPUs, memory",
    "limited_gang_p50_us": "64 GPUs, CPUs, memory",
}


class Point(Struct, frozen=True):
    """One fleet of a series."""

    axis: str
    """What grows."""
    size: FleetSize
    sizes_gpus: tuple[int, ...] = (1, 2, 4, 8, 16, 64)


def points() -> Iterator[Point]:
    """Fleets of more and more hosts, regions, and running jobs."""
    for hosts in HOSTS:
        yield Point("hosts", FleetSize(REGIONS_OF_HOSTS, hosts // HOSTS_PER_CLUSTER, hosts))
    for regions in REGIONS:
        yield Point("regions", FleetSize(regions=regions))
    for mix in MIXES:
        yield Point("running_jobs", FleetSize(), mix)


def search_and_write(options: SearchOptions, *, scaling: bool, out: Path | None) -> dict[str, Any]:
    """`topmast bench search`: the figures of one fleet and, for ``scaling``, of all the others."""
    document = measure_search(options)
    document["command"] = command_of(options, scaling=scaling)
    if scaling:
        rows = [_row(point, measure_apart(point, options)) for point in points()]
        document["growth"] = growth_of(rows)
        document["scaling"] = rows
    if out is not None:
        write(out, "search", document)
        if scaling:
            write_table(out / "scaling.csv", document["scaling"])
            draw(out, document["scaling"])
    return document


def command_of(options: SearchOptions, *, scaling: bool = False) -> str:
    """The command that measures this."""
    return " ".join(["topmast", *_arguments(options), *(["--scaling"] if scaling else [])])


def _arguments(options: SearchOptions) -> list[str]:
    size = options.size
    arguments = [
        "bench", "search", "--regions", size.regions, "--clusters", size.clusters,
        "--hosts", size.hosts, "--gpus-per-host", size.gpus_per_host, "--fill", options.fill,
        "--sizes", ",".join(map(str, options.sizes_gpus)), "--jobs", options.decisions,
        "--seed", options.seed, *(["--mix"] if options.mix else []),
        *(f"--set={key}={value}" for key, value in options.settings.items()),
    ]  # fmt: skip
    return [str(argument) for argument in arguments]


def measure_apart(point: Point, like: SearchOptions) -> dict[str, Any]:
    """Measure a fleet in a process of its own."""
    options = SearchOptions(
        size=point.size, fill=like.fill, seed=like.seed, sizes_gpus=point.sizes_gpus,
        decisions=min(like.decisions, DECISIONS), mix=like.mix, settings=like.settings,
    )  # fmt: skip
    sys.stderr.write(f"{command_of(options)}\n")
    command = [sys.executable, "-m", "topmast.app", *_arguments(options)]
    done = subprocess.run(
        [*command, "--no-first-use", "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise TopmastError(f"{command_of(options)}: {done.stderr.strip()}")
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def _row(point: Point, figures: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of one fleet."""
    return {
        "axis": point.axis,
        "regions": point.size.regions,
        "clusters": point.size.clusters,
        "hosts": point.size.hosts,
        "running_jobs": figures["running_jobs"],
        "sizes_gpus": ",".join(map(str, point.sizes_gpus)),
        **{name: figures[name] for name in KEPT},
        "command": figures["command"],
    }


# --- growth -------------------------------------------------------------------------------------


def growth_of(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By series and cost: the exponent e of cost ~ x**e, by least squares on logarithms."""
    found = []
    for axis in dict.fromkeys(row["axis"] for row in rows):
        series = [row for row in rows if row["axis"] == axis]
        exponents = {
            name: exponent([row[axis] for row in series], [row[name] for row in series])
            for name in (*COSTS, "rss_bytes")
        }
        found.append({"axis": axis, **exponents})
    return found


def exponent(amounts: Sequence[float], costs: Sequence[float | None]) -> float | None:
    """The slope of a line through the logarithms; 1 is linear growth, None is too few points."""
    pairs = [(amount, cost) for amount, cost in zip(amounts, costs, strict=True) if cost]
    if len({amount for amount, _ in pairs}) < 2:
        return None
    x, y = np.log(np.array(pairs)).T
    return round(float(np.polyfit(x, y, 1)[0]), 3)


# --- tables and plots ---------------------------------------------------------------------------


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The rows as CSV, costs to three decimals."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()})


def draw(folder: Path, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """A plot for each series: median microseconds of a decision, and linear growth."""
    from topmast import plot

    paths = []
    for axis in dict.fromkeys(row["axis"] for row in rows):
        series = [row for row in rows if row["axis"] == axis]
        amounts = [row[axis] for row in series]
        drawn = plot.figure()
        for name, says in NAMES.items():
            drawn.axes[0].plot(amounts, [row[name] for row in series], marker="o", label=says)
        least = min(series[0][name] for name in NAMES)
        linear = [least * amount / amounts[0] for amount in amounts]
        drawn.axes[0].plot(amounts, linear, "--", color="#6b7280", label="linear growth")
        drawn.axes[0].set_xscale("log")
        drawn.axes[0].set_yscale("log")
        says = axis.replace("_", " ")
        plot.label(drawn, f"One decision against {says}", says, "median, us")
        plot.legend(drawn)
        paths += plot.save(drawn, folder, f"by-{axis.replace('_', '-')}")
    return paths
