"""How fast the search decides over a large fleet: on free GPUs, and with preemption.

A decision is a whole one: the queue's request to the fleet placer in, the complete plan out (seats,
terms of the score, victims). Each plan is then carried out, so that every request meets another
fleet. Every decision considers all regions, clusters and hosts.
"""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from topmast.adapters.kernels import load_kernels
from topmast.bench.fleet import SIZES_GPUS, Filled, FleetSize, gang_of, sizes_that_fit
from topmast.bench.setup import machine
from topmast.model.job import MILLI, Band, JobSpec
from topmast.model.plan import Plan
from topmast.model.states import Outcome

GANG_TASKS = 8
PREEMPTED_FILL = 0.98
PASSES = 50
"""Decisions of each kind before the first that counts."""


class SearchOptions(Struct, frozen=True):
    """What to measure."""

    size: FleetSize = FleetSize()
    fill: float = 0.9
    seed: int = 0
    decisions: int = 2_000
    """Those of each kind, one at a time."""
    sizes_gpus: Sequence[int] = SIZES_GPUS
    first_use: bool = True
    mix: bool = False
    """Requests tell the mix of tasks seen lately, as those of a queue do."""
    settings: dict[str, str] = {}
    """Of the profile."""


def measure_search(options: SearchOptions) -> dict[str, Any]:
    """Fill a fleet, and place single GPUs, gangs and preemptors on it."""
    begun_s = time.perf_counter()
    load_kernels()
    load_s = time.perf_counter() - begun_s
    begun_s = time.perf_counter()
    fleet = Filled(options.size, options.seed, settings=options.settings, mixed=options.mix)
    build_s = time.perf_counter() - begun_s
    sizes = list(sizes_that_fit(options.size, options.sizes_gpus))
    begun_s = time.perf_counter()
    fleet.fill_up(options.fill, sizes)
    fill_s = time.perf_counter() - begun_s
    filled = {"fill": fleet.fill, "running_jobs": fleet.running, "held_gpus": fleet.held_gpus}
    gc.collect()
    gc.freeze()  # as a server does with what it begins with
    figures = _on_free_gpus(fleet, options.decisions)
    fleet.fill_up(max(PREEMPTED_FILL, options.fill), sizes)
    figures |= {"preempt_fill": fleet.fill, "preempt_running_jobs": fleet.running}
    figures |= _with_victims(fleet, options.decisions)
    gc.unfreeze()
    figures["rss_bytes"] = peak_rss_bytes()
    if options.first_use:
        figures |= first_use()
    return figures | filled | {
        "build_s": build_s,
        "fill_s": fill_s,
        "load_kernels_s": load_s,
        "size": msgspec.to_builtins(options.size),
        "sizes_gpus": sizes,
        "seed": options.seed,
        "profile": fleet.profile.name,
        "mix": options.mix,
        "settings": options.settings,
        "machine": machine(),
    }  # fmt: skip


def _on_free_gpus(fleet: Filled, count: int) -> dict[str, Any]:
    """Singles and gangs, with and without CPUs and memory, on a quarter of what is free.

    They end, and others follow.
    """
    figures: dict[str, Any] = {}
    room = fleet.size.gpus - fleet.held_gpus
    for name, limited in (("", False), ("limited_", True)):
        single = gang_of(1, 1, Band.HIGH, limited=limited)
        gang = _gang(fleet, limited=limited)
        figures |= _one_at_a_time(fleet, f"{name}single", [single], count, stays_gpus=room // 4)
        half = max(1, count // 2)
        figures |= _one_at_a_time(fleet, f"{name}gang", [gang], half, stays_gpus=room // 4)
    return figures


def _with_victims(fleet: Filled, count: int) -> dict[str, Any]:
    """Preemptors of a high band take what is free, then stop others: an eighth of the fleet."""
    figures: dict[str, Any] = {}
    stays_gpus = fleet.size.gpus // 8
    for name, limited in (("", False), ("limited_", True)):
        small = [
            gang_of(1, gpus, Band.HIGH, limited=limited) for gpus in (1, fleet.size.gpus_per_host)
        ]
        gang = [_gang(fleet, limited=limited)]
        figures |= _one_at_a_time(
            fleet, f"{name}preempt", small, count, stays_gpus=stays_gpus, preempt=True
        )
        figures |= _one_at_a_time(
            fleet, f"{name}preempt_gang", gang, max(1, count // 5), stays_gpus=stays_gpus,
            preempt=True,
        )  # fmt: skip
    return figures


def _gang(fleet: Filled, *, limited: bool = False) -> JobSpec:
    """64 GPUs, or as many as eight whole hosts have: rack preferred, pod required."""
    return gang_of(GANG_TASKS, min(8, fleet.size.gpus_per_host), Band.HIGH, limited=limited)


def _one_at_a_time(
    fleet: Filled,
    name: str,
    specs: Sequence[JobSpec],
    count: int,
    *,
    stays_gpus: int,
    preempt: bool = False,
) -> dict[str, Any]:
    """Microseconds of one decision after the other, and of carrying it out.

    Jobs that were placed stay until they hold ``stays_gpus``; then all of them end, and the fleet
    is filled as it was.
    """
    fill, placed = fleet.fill, list[Plan]()
    decided, carried, stopping = Times(), Times(), Times()
    refused = held_gpus = 0
    for number in range(PASSES + count):
        spec = specs[number % len(specs)]
        question = fleet.question(spec, preempt=preempt)
        with decided:
            plan = fleet.decide(question)
        if plan is not None:
            with carried:
                fleet.carry_out(fleet.commit(plan, spec))
            if plan.victims:
                stopping.add(decided)
            placed.append(plan)
            held_gpus += plan.gpus_milli // MILLI
        if number < PASSES:
            for times in (decided, carried, stopping):
                times.clear()
        else:
            refused += plan is None
        if held_gpus >= stays_gpus:
            _clear(fleet, placed, fill)
            held_gpus = 0
    _clear(fleet, placed, fill)
    figures = decided.figures(name) | carried.figures(f"{name}_carried_out")
    figures[f"{name}_per_s"] = count / (sum(decided.wall_s) + sum(carried.wall_s))
    if preempt:
        figures |= stopping.figures(f"{name}_stopping")
    return figures | {f"{name}_refused": refused}


def _clear(fleet: Filled, placed: list[Plan], fill: float) -> None:
    """Let the jobs end that were placed, and those come that they stopped."""
    for plan in placed:
        fleet.end(plan.region, plan.job, Outcome.SUCCEEDED)
    placed.clear()
    if fleet.fill < fill:
        fleet.fill_up(fill)


class Times:
    """How long the same thing took each time: on the clock, and of it on a processor."""

    def __init__(self) -> None:
        self.wall_s: list[float] = []
        self.cpu_s: list[float] = []
        self._begun = 0.0, 0.0

    def __enter__(self) -> None:
        cpu_s = time.thread_time()
        self._begun = time.perf_counter(), cpu_s

    def __exit__(self, *_: object) -> None:
        self.wall_s.append(time.perf_counter() - self._begun[0])
        self.cpu_s.append(time.thread_time() - self._begun[1])

    def add(self, other: Times) -> None:
        """Count the last of others here too."""
        self.wall_s.append(other.wall_s[-1])
        self.cpu_s.append(other.cpu_s[-1])

    def clear(self) -> None:
        """Forget all."""
        self.wall_s.clear()
        self.cpu_s.clear()

    def figures(self, name: str) -> dict[str, Any]:
        """Percentiles under names that begin with ``name``; only wall times include neighbours."""
        if not self.wall_s:
            return {f"{name}_count": 0}
        return {
            f"{name}_p50_us": _percentile_us(self.wall_s, 50),
            f"{name}_p99_us": _percentile_us(self.wall_s, 99),
            f"{name}_max_us": max(self.wall_s) * 1e6,
            f"{name}_cpu_p50_us": _percentile_us(self.cpu_s, 50),
            f"{name}_cpu_p99_us": _percentile_us(self.cpu_s, 99),
            f"{name}_count": len(self.wall_s),
        }


def _percentile_us(times_s: Sequence[float], percent: float) -> float:
    return float(np.percentile(times_s, percent)) * 1e6


# --- the process --------------------------------------------------------------------------------


def peak_rss_bytes() -> int:
    """The most memory that this process has held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def first_use() -> dict[str, float]:
    """The time of a process without compiled kernels: wall and CPU seconds of two processes."""
    wall_s, cpu_s = _compiled_anew("load_kernels")
    return {"first_use_compile_s": wall_s, "first_use_compile_cpu_s": cpu_s}


def _compiled_anew(load: str) -> tuple[float, float]:
    """Wall and CPU seconds until a function returns that loads kernels, in a process of its own."""
    script = (
        "import json, os, time; begun = time.perf_counter()\n"
        f"from topmast.adapters.kernels import {load}\n"
        f"{load}()\n"
        "print(json.dumps([time.perf_counter() - begun, sum(os.times()[:4])]))"
    )
    with tempfile.TemporaryDirectory(prefix="topmast-bench-") as folder:
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, check=True, text=True,
            env={**os.environ, "NUMBA_CACHE_DIR": folder},
        )  # fmt: skip
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=tuple[float, float])
