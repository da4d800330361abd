"""The quality and speed of capacity plans on generated fleets, from ample to scarce capacity."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from msgspec import Struct

from topmast.bench.setup import machine, write
from topmast.slow.capacity.generate import Shape, make
from topmast.slow.capacity.planner import compile_kernels, plan
from topmast.slow.capacity.reading import convert_problem

ASKED = (0.86, 0.93, 0.97, 1.05)
"""Of all GPUs, the parts that clusters ask for: what it takes to survive a domain comes on top."""
GOAL, LIMIT_S = 0.01, 60.0


class PlanCapacityOptions(Struct, frozen=True, kw_only=True):
    """The fleet, and the time for one plan."""

    hosts: int = 100_000
    clusters: int = 200
    domains: int = 40
    seed: int = 0
    limit_s: float = LIMIT_S
    out: Path | None = None


def measure_plan_capacity(options: PlanCapacityOptions) -> dict[str, Any]:
    """A plan for each of `ASKED`: its gap, and how long it took."""
    compile_kernels()
    rows = [_row(options, asked) for asked in ASKED]
    document = {"rows": rows, "goal": {"gap": GOAL, "s": LIMIT_S}, "machine": machine()}
    if options.out is not None:
        write(options.out, "plan-capacity", document)
    return document


def _row(options: PlanCapacityOptions, asked: float) -> dict[str, Any]:
    shape = Shape(
        hosts=options.hosts, clusters=options.clusters, domains=options.domains, asked=asked,
        seed=options.seed,
    )  # fmt: skip
    problem = convert_problem(make(shape))
    begun_s, begun_cpu_s = time.monotonic(), time.process_time()
    answer = plan(problem, options.limit_s, time.monotonic)
    return {
        "hosts": options.hosts,
        "clusters": options.clusters,
        "domains": options.domains,
        "asked": asked,
        "seed": options.seed,
        "objective": answer["objective"],
        "gap": answer["gap"],
        "wall_s": time.monotonic() - begun_s,
        "cpu_s": time.process_time() - begun_cpu_s,
        "moved_hosts": sum(
            answer["assignment"][host.name] != host.cluster for host in problem.hosts
        ),
    }
