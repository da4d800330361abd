"""How fast an expected start is found, with a long queue and a fleet that is full."""

from __future__ import annotations

import random
import time
from typing import Any

from topmast.adapters.kernels import load_kernels
from topmast.bench.setup import machine
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import ClusterSpec, Fleet, HostSpec, RegionSpec, TenantSpec
from topmast.model.job import MILLI, Accelerator, Band, JobSpec, Resources, TaskGroup
from topmast.policies.registry import load_profile
from topmast.runtime.machines import Machines
from topmast.service.forecast import patience
from topmast.sim.clock import VirtualClock
from topmast.sim.forecast import Forecast
from topmast.sim.heap import EventHeap
from topmast.sim.loop import Loop
from topmast.sim.whatif import state_snapshot_of

HOSTS = 64
REGIONS = ("east", "west", "north")
TENANTS = 20
BANDS = (Band.HIGH, Band.NORMAL, Band.LOW)
FROM_S = 1.7e9
FILL_S = 60.0


def measure_eta(jobs: int, seed: int, profile: str = "mast") -> dict[str, Any]:
    """Fill a fleet of 1,536 GPUs, queue ``jobs`` more, and ask when the middle and last ones start.

    Each question has a forecast of its own, like the first one to a server: taking the snapshots
    (all that the server's own thread does), restoring them, and running ahead.
    """
    load_kernels()
    machines = _full(random.Random(seed), jobs, profile)
    queue = machines.queue
    waiting = list(queue.backlog.in_order())
    rows: list[dict[str, Any]] = []
    for name, job in (
        ("first", waiting[0]), ("middle", waiting[len(waiting) // 2]), ("last", waiting[-1]),
    ):  # fmt: skip
        begun_s = time.perf_counter()
        state = state_snapshot_of(queue, machines.region_states(), FROM_S + FILL_S, 1)
        copied_s = time.perf_counter()
        forecast = Forecast(state, queue.profile)
        restored_s = time.perf_counter()
        start = forecast.start_of(job, patience())
        over_s = time.perf_counter()
        rows.append(
            {
                "job": name, "eta_s": over_s - begun_s, "snapshot_s": copied_s - begun_s,
                "restore_s": restored_s - copied_s, "run_s": over_s - restored_s,
                "wait_s": None if start.at_s is None else start.at_s - forecast.from_s,
                "steps": forecast.whatif.steps, "started": len(forecast.starts),
                "basis": start.basis,
            }
        )  # fmt: skip
    return {
        "eta_s": max(float(row["eta_s"]) for row in rows),
        "rows": rows,
        "jobs": len(waiting),
        "running": sum(len(p.state.allocations) for p in machines.placers.values()),
        "lines": len(queue.backlog.job_classes),
        "profile": profile,
        "seed": seed,
        "machine": machine(),
    }


def _full(rng: random.Random, jobs: int, profile: str) -> Machines:
    """Machines of a fleet on which everything is taken, with a queue of ``jobs``."""
    machines = Machines(load_profile(profile), reconcile=False)
    clock, heap = VirtualClock(), EventHeap()
    clock.now_s = FROM_S
    loop = Loop(machines, clock, heap, {})
    for region in REGIONS:
        loop.outside[ids.engine(f"{region}-1")] = lambda message: None
    loop.post(ids.QUEUE, (m.ConfigureFleet(_fleet()),))
    gpus = 8 * HOSTS * len(REGIONS)
    specs = [_job(rng, number) for number in range(gpus + jobs)]
    taken, count = 0, 0
    while taken < 2 * gpus:
        taken += specs[count].gpus_milli() // MILLI
        count += 1
    loop.post(ids.QUEUE, (m.SubmitJobs(tuple(specs[:count])),))
    _until(loop, FROM_S + FILL_S)
    left = jobs - sum(1 for _ in machines.queue.backlog.in_order())
    if left > 0:
        loop.post(ids.QUEUE, (m.SubmitJobs(tuple(specs[count : count + left])),))
    return machines


def _until(loop: Loop, until_s: float) -> None:
    while len(loop.heap) and loop.heap.next_s() <= until_s:
        loop.step()
    loop.clock.now_s = until_s


def _fleet() -> Fleet:
    def host(region: str, number: int) -> HostSpec:
        return HostSpec(f"{region}-{number}", "H100", 8, rack=f"{region}-r{number // 8}")

    regions = tuple(
        RegionSpec(name, (ClusterSpec(f"{name}-1", tuple(host(name, i) for i in range(HOSTS))),))
        for name in REGIONS
    )
    quota = 8 * HOSTS * len(REGIONS) // TENANTS
    tenants = tuple(TenantSpec(f"team{i}", {"H100": quota}) for i in range(TENANTS))
    return Fleet(regions, tenants=tenants)


def _job(rng: random.Random, number: int) -> JobSpec:
    count, gpus = rng.choice(((1, 1), (1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8)))
    resources = Resources((Accelerator("H100", gpus * MILLI),))
    group = TaskGroup("tasks", count, resources, run="")
    return JobSpec(
        name=f"job-{number}", groups=(group,), tenant=f"team{rng.randrange(TENANTS)}",
        band=rng.choice(BANDS), duration_s=rng.lognormvariate(8.0, 1.2),
    )  # fmt: skip
