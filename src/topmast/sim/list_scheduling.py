"""A start reckoned from GPU counts alone: for queues that are too long to run ahead in time.

List scheduling in the present order of the queue (Graham, 1969), on one pool for each GPU model:
a job starts when those before it have started and enough GPUs of its first model are free. It
knows nothing of hosts, quotas, data or preemption.
"""

from __future__ import annotations

import heapq

from topmast.model.job import MILLI, JobSpec
from topmast.sim.whatif import WhatIf


class Pool:
    """The GPUs of one model: how many are free at ``at_s``, and when others come free."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.free = 0.0
        self.size = 0.0
        self.ends: list[tuple[float, float]] = []

    def start(self, gpus: float, run_s: float) -> float | None:
        """When the next job of the pool starts; None for one it could never hold. O(log jobs)."""
        if gpus > self.size:
            return None
        while self.free < gpus and self.ends:
            end_s, back = heapq.heappop(self.ends)
            self.at_s, self.free = max(self.at_s, end_s), self.free + back
        if self.free < gpus:
            return None
        self.free -= gpus
        heapq.heappush(self.ends, (self.at_s + run_s, gpus))
        return self.at_s


def list_scheduled_start(whatif: WhatIf, job: str) -> tuple[float, int] | None:
    """When a job starts that the what-if run has not got to, and how many are before it.

    None: as much as it asks for is not in service. O(jobs log jobs).
    """
    pools, queue = _pools(whatif), whatif.machines.queue
    for ahead, name in enumerate(queue.backlog.in_order()):
        spec = queue.jobs.records[name].spec
        start_s: float | None = whatif.clock.now_s
        if gpus := spec.gpus_milli() / MILLI:
            model = _model(spec, pools)
            pool = pools.get(model)
            start_s = None if pool is None else pool.start(gpus, _held_s(whatif, name, model))
        if name == job:
            return None if start_s is None else (start_s, ahead)
    return None


def _held_s(whatif: WhatIf, job: str, model: str) -> float:
    """How long a job that waits will have GPUs of a model, but for checkpoints."""
    spec, settings = whatif.machines.queue.jobs.records[job].spec, whatif.settings
    speed = 1.0 if spec.duration_s is None else settings.gpu_speed.get(model, 1.0)
    return settings.startup_s + whatif.work.left_s[job] / speed


def _model(spec: JobSpec, pools: dict[str, Pool]) -> str:
    """The first model that a job lists and that there is; of any model, the one with the most
    GPUs.
    """
    listed = [a.model for g in spec.groups for a in g.resources.accelerators]
    named = next((model for model in listed if model in pools), None)
    if named is not None or not any(model is None for model in listed):
        return named or ""
    return max(pools, key=lambda model: pools[model].size, default="")


def _pools(whatif: WhatIf) -> dict[str, Pool]:
    """What is in service and what runs on it, by model."""
    now = whatif.clock.now_s
    pools: dict[str, Pool] = {}
    for placer in whatif.machines.placers.values():
        columns = placer.columns
        for row, host in enumerate(columns.hosts[: columns.places]):
            if host.gpus and columns.available[row]:
                pool = pools.setdefault(host.model, Pool(now))
                pool.size += host.gpus
                pool.free += host.gpus
        for allocation in placer.state.allocations.values():
            plan = allocation.plan
            engine = whatif.engines[plan.cluster].attempts.get(allocation.job)
            end_s = now if engine is None else max(now, engine.progress.end_s())
            for model, milli in plan.held().items():
                if model in pools:
                    pools[model].free -= milli / MILLI
                    pools[model].ends.append((end_s, milli / MILLI))
    for pool in pools.values():
        heapq.heapify(pool.ends)
    return pools
