"""How fast the search decides over a large fleet: in bulk, one at a time, and with preemption.

*One at a time* is the whole decision that the queue asks the desk for: a question in, the complete plan
out (seats, terms of the score, victims). Each plan is then carried out, so that every question meets another
fleet. *In bulk* is one kernel call that searches for a batch of equal jobs and holds their GPUs, each on what
those before left. Every decision looks at all regions, clusters and hosts.
"""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from topmast.bench.fleet import SIZES_GPUS, Filled, FleetSize, gang_of, sizes_that_fit
from topmast.bench.setup import machine
from topmast.fast.placement import bulk, compiled
from topmast.fast.placement.desk import costs_of
from topmast.fast.placement.kernels import NOWHERE, Question
from topmast.fast.placement.warm import warm_up
from topmast.model.job import Band, JobSpec
from topmast.model.plan import Plan
from topmast.model.states import Outcome

GANG_TASKS = 8
BULK_SINGLES, BULK_GANGS, BULK_RUNS = 10_000, 100, 5
PREEMPTED_FILL = 0.98
PASSES = 50
"""Decisions of each kind before the first that counts."""


class SearchOptions(Struct, frozen=True):
    """What to measure. ``decisions`` are those of each kind, one at a time."""

    size: FleetSize = FleetSize()
    fill: float = 0.9
    seed: int = 0
    decisions: int = 2_000
    sizes_gpus: Sequence[int] = SIZES_GPUS
    first_use: bool = True


def measure_search(options: SearchOptions) -> dict[str, Any]:
    """Fill a fleet, and place single GPUs, gangs and preemptors on it."""
    begun_s = time.perf_counter()
    warm_up()
    load_s = time.perf_counter() - begun_s
    begun_s = time.perf_counter()
    fleet = Filled(options.size, options.seed)
    build_s = time.perf_counter() - begun_s
    sizes = list(sizes_that_fit(options.size, options.sizes_gpus))
    begun_s = time.perf_counter()
    fleet.fill_up(options.fill, sizes)
    fill_s = time.perf_counter() - begun_s
    filled = {"fill": fleet.fill, "running_jobs": fleet.running, "held_gpus": fleet.held_gpus}
    gc.collect()
    gc.freeze()  # as a server does with what it begins with
    figures = _in_bulk(fleet) | _on_free_gpus(fleet, options.decisions)
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
        "machine": machine(),
    }  # fmt: skip


# --- one at a time -----------------------------------------------------------------------------------


def _on_free_gpus(fleet: Filled, count: int) -> dict[str, Any]:
    """Singles and gangs, with and without CPUs and memory; each is placed and goes away again."""
    figures: dict[str, Any] = {}
    for name, limited in (("", False), ("limited_", True)):
        single = gang_of(1, 1, Band.HIGH, limited=limited)
        gang = _gang(fleet, limited=limited)
        figures |= _one_at_a_time(fleet, f"{name}single", [single], count, stays=50)
        figures |= _one_at_a_time(fleet, f"{name}gang", [gang], max(1, count // 2), stays=20)
    return figures


def _with_victims(fleet: Filled, count: int) -> dict[str, Any]:
    """Preemptors of the second highest band that may stop everybody below."""
    figures: dict[str, Any] = {}
    for name, limited in (("", False), ("limited_", True)):
        small = [
            gang_of(1, gpus, Band.HIGH, limited=limited) for gpus in (1, fleet.size.gpus_per_host)
        ]
        gang = [_gang(fleet, limited=limited)]
        figures |= _one_at_a_time(fleet, f"{name}preempt", small, count, preempt=True)
        rare = max(1, count // 10)
        figures |= _one_at_a_time(fleet, f"{name}preempt_gang", gang, rare, preempt=True)
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
    preempt: bool = False,
    stays: int = 1,
) -> dict[str, Any]:
    """Microseconds of one decision after the other, and of carrying it out.

    The last ``stays`` jobs placed hold their GPUs while the next is decided.
    """
    decide_s, carry_s = [], []
    placed: list[Plan] = []
    stopped = refused = 0
    for number in range(PASSES + count):
        spec = specs[number % len(specs)]
        question = fleet.question(spec, preempt=preempt)
        begun_s = time.perf_counter()
        plan = fleet.decide(question)
        decided_s = time.perf_counter()
        took_s = decided_s - begun_s
        if plan is None:
            refused += number >= PASSES
        else:
            begun_s = time.perf_counter()
            fleet.carry_out(fleet.commit(plan, spec))
            if number >= PASSES:
                carry_s.append(time.perf_counter() - begun_s)
            stopped += bool(plan.victims) and number >= PASSES
            placed.append(plan)
        if number >= PASSES:
            decide_s.append(took_s)
        if len(placed) > stays:
            _finish(fleet, placed.pop(0))
    for plan in placed:
        _finish(fleet, plan)
    return {
        f"{name}_p50_us": _percentile_us(decide_s, 50),
        f"{name}_p99_us": _percentile_us(decide_s, 99),
        f"{name}_max_us": max(decide_s) * 1e6,
        f"{name}_carried_out_p50_us": _percentile_us(carry_s, 50),
        f"{name}_carried_out_p99_us": _percentile_us(carry_s, 99),
        f"{name}_decisions": len(decide_s),
        f"{name}_refused": refused,
    } | ({f"{name}_stopped_others": stopped} if preempt else {})  # fmt: skip


def _finish(fleet: Filled, plan: Plan) -> None:
    fleet.end(plan.region, plan.job, Outcome.SUCCEEDED)


def _percentile_us(times_s: Sequence[float], percent: float) -> float | None:
    return float(np.percentile(times_s, percent)) * 1e6 if times_s else None


# --- in bulk -----------------------------------------------------------------------------------------


def _in_bulk(fleet: Filled) -> dict[str, Any]:
    """Decisions a second, searched for and held; the GPUs are given back between the runs."""
    index = fleet.machines.pool.index()
    arrays, held = index.arrays, index.holders.held
    hosts = np.full((BULK_SINGLES, 1), NOWHERE, np.int64)
    gang_hosts = np.full((BULK_GANGS, GANG_TASKS), NOWHERE, np.int64)
    tasks = np.zeros_like(gang_hosts)
    room = np.zeros(len(arrays.whole), np.int64)
    single = _question(fleet, gang_of(1, 1, Band.HIGH))
    gang = _question(fleet, _gang(fleet))

    def singles(count: int) -> int:
        return bulk.place_singles(arrays, held, single, count, hosts[:, 0])

    def gangs(count: int) -> int:
        return bulk.place_gangs(arrays, held, gang, count, gang_hosts, tasks, room)

    return _rate(fleet, "single", singles, BULK_SINGLES) | _rate(fleet, "gang", gangs, BULK_GANGS)


def _question(fleet: Filled, spec: JobSpec) -> Question:
    index, ask = fleet.machines.pool.index(), fleet.question(spec).ask
    weights = fleet.machines.desk.score.weights(ask)
    choices = compiled.choices_in(index, ask, (0,))
    costs = costs_of(index, weights, fleet.terms())
    return compiled.question_of(index, ask, weights, choices, costs)


def _rate(fleet: Filled, name: str, place: Callable[[int], int], most: int) -> dict[str, Any]:
    """Decisions a second: the median of several batches, each on the same fleet."""
    index = fleet.machines.pool.index()
    arrays = index.arrays
    free_milli, hist = arrays.free_milli.copy(), arrays.hist.copy()
    rates: list[float] = []
    count = 0
    for _ in range(BULK_RUNS + 1):
        begun_s = time.perf_counter()
        count = place(most)
        rates.append(count / (time.perf_counter() - begun_s))
        changed = np.flatnonzero(arrays.free_milli != free_milli)
        arrays.free_milli[:] = free_milli
        for row in np.unique(np.searchsorted(arrays.offset, changed, side="right") - 1).tolist():
            index.refresh(row)
        assert (arrays.hist == hist).all()
    rates = rates[1:]  # the first may still compile
    return {
        f"{name}_per_s": float(np.median(rates)),
        f"{name}_per_s_runs": rates,
        f"{name}_bulk_decisions": count,
    }


# --- the process -------------------------------------------------------------------------------------


def peak_rss_bytes() -> int:
    """The most memory that this process has held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def first_use() -> dict[str, float]:
    """What a process takes that finds no compiled kernels: the whole start, in wall and CPU seconds."""
    script = (
        "import json, time; begun = time.perf_counter(), time.process_time()\n"
        "from topmast.fast.placement.warm import warm_up\n"
        "warm_up()\n"
        "print(json.dumps([time.perf_counter() - begun[0], time.process_time() - begun[1]]))"
    )
    with tempfile.TemporaryDirectory(prefix="topmast-bench-") as folder:
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, check=True, text=True,
            env={**os.environ, "NUMBA_CACHE_DIR": folder},
        )  # fmt: skip
    wall_s, cpu_s = msgspec.json.decode(done.stdout, type=tuple[float, float])
    return {"first_use_compile_s": wall_s, "first_use_compile_cpu_s": cpu_s}
