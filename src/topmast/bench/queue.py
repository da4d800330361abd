"""From submission to decision with a long queue on a full fleet, while jobs end and others arrive.

All machines of a server run as they are: queue, fleet placer, placers, cluster managers. There is
no journal and no HTTP; engines obey. The loop serves one event after the other on a clock that its
own work moves (see `live`): a job that arrives while it is busy waits, and that counts. A job is
*decided* when it is placed, or when no plan was found for it or for its placement class, so that it
is passed over until something changes.
"""

from __future__ import annotations

import gc
import random
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from topmast.adapters.kernels import load_kernels
from topmast.bench.fleet import MODEL, SIZES_GPUS, FleetSize, job_of, regions_of, sizes_that_fit
from topmast.bench.live import Engine, Live
from topmast.bench.search import peak_rss_bytes
from topmast.bench.setup import machine, write
from topmast.fast.queue import facts as f
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import Fleet, TenantSpec
from topmast.model.job import Band, JobSpec
from topmast.model.states import JobState
from topmast.policies.registry import load_profile
from topmast.runtime.machines import Machines
from topmast.runtime.meter import Family as Histograms
from topmast.service.gauges import gauges
from topmast.service.metrics import HTTP_S, Sources, copied, text

TENANTS = 16
QUOTA_SHARE = 0.6
"""So much of the fleet is in the tenants' quotas; the rest they borrow."""
BANDS = tuple(Band)
SETTLED_S = 3_600.0
"""The least age of running jobs when the measurement begins, so that they may be stopped."""
BULK = 10_000
SCRAPES = 20


class QueueOptions(Struct, frozen=True):
    """What to measure."""

    size: FleetSize = FleetSize()
    jobs: int = 100_000
    """So many wait at the beginning."""
    rate: float = 100.0
    """So many jobs end and as many arrive each second."""
    duration_s: float = 20.0
    """How long that goes on."""
    seed: int = 0
    profile: str = "mast"


def measure_queue(options: QueueOptions, out: Path | None = None) -> dict[str, Any]:
    """Fill the fleet from the queue, then let jobs come and go."""
    load_kernels()
    begun_s = time.perf_counter()
    office = Office(options)
    office.fill()
    fill_s = time.perf_counter() - begun_s
    office.settle()
    settle_s = time.perf_counter() - begun_s - fill_s
    before = office.counts()
    gc.collect()
    gc.freeze()  # as a server does with what it begins with
    office.come_and_go()
    gc.unfreeze()
    document = {
        **office.figures(),
        **office.scrape(),
        "before": before,
        "after": office.counts(),
        "rss_bytes": peak_rss_bytes(),
        "fill_s": fill_s,
        "settle_s": settle_s,
        "size": msgspec.to_builtins(options.size),
        "jobs": options.jobs,
        "rate": options.rate,
        "duration_s": options.duration_s,
        "seed": options.seed,
        "profile": options.profile,
        "machine": machine(),
    }
    if out is not None:
        write(out, "queue", document)
    return document


class Office:
    """A whole system with a long queue, and its clients."""

    def __init__(self, options: QueueOptions) -> None:
        self.options = options
        self.rng = random.Random(options.seed)
        self.machines = Machines(load_profile(options.profile))
        self.live = Live(self.machines, self._hear)
        self.sizes_gpus = list(sizes_that_fit(options.size, SIZES_GPUS))
        self.decided_s: list[float] = []
        """How long each job that arrived waited for its first decision."""
        self.placed = 0
        self._arrivals_s: deque[float] = deque()
        """When the jobs came that the queue has not heard of yet."""
        self._came_s: dict[str, float] = {}
        """Jobs that were submitted and are not decided: when they came."""
        self._configure()

    def _configure(self) -> None:
        size = self.options.size
        regions = tuple(regions_of(size))
        for region in regions:
            for cluster in region.clusters:
                Engine(self.live, cluster.name)
        quota = {MODEL: int(QUOTA_SHARE * size.gpus / TENANTS)}
        tenants = tuple(TenantSpec(f"team{i:02d}", quota) for i in range(TENANTS))
        self.live.post(0.0, ids.QUEUE, m.ConfigureFleet(Fleet(regions, tenants=tenants)))
        self.live.run(1.0)

    def job(self) -> JobSpec:
        """One of some hundred kinds: a tenant, a band, a size; a quarter with CPUs and memory."""
        rng = self.rng
        spec = job_of(
            rng.choice(self.sizes_gpus), self.options.size.gpus_per_host, rng.choice(BANDS),
            limited=rng.random() < 0.25,
        )  # fmt: skip
        return msgspec.structs.replace(spec, tenant=f"team{rng.randrange(TENANTS):02d}")

    # --- before -----------------------------------------------------------------------------------

    def fill(self) -> None:
        """Submit jobs until so many wait although nothing more fits."""
        wanted = self.options.jobs
        while (missing := wanted - len(self.machines.queue.backlog.ranking)) > 0:
            for first in range(0, missing, BULK):
                batch = tuple(self.job() for _ in range(min(missing - first, BULK)))
                self.live.post(self.live.now_s, ids.QUEUE, m.SubmitJobs(batch))
            self.live.run(float("inf"), or_rest=True)

    def settle(self) -> None:
        """Let running jobs grow old enough to be stopped, and let preemption happen."""
        self.live.now_s += SETTLED_S
        self.live.run(float("inf"), or_rest=True)

    def counts(self) -> dict[str, int]:
        """Jobs that wait and run, lines, GPUs that are held."""
        queue = self.machines.queue
        states = [record.state for record in queue.jobs.records.values()]
        return {
            "waiting_jobs": len(queue.backlog.ranking),
            "running_jobs": sum(state is JobState.RUNNING for state in states),
            "lines": len(queue.backlog.job_classes),
            "held_gpus": int(sum(p.held_gpus() for p in self.machines.placers.values())),
        }

    # --- measured ---------------------------------------------------------------------------------

    def come_and_go(self) -> None:
        """Jobs arrive, and running ones end, at random moments."""
        live = self.live
        live.forget()
        begun_s = live.now_s
        end_s = begun_s + self.options.duration_s
        for at_s in self._moments(end_s):
            self._arrivals_s.append(at_s)
            live.post(at_s, ids.QUEUE, m.SubmitJobs((self.job(),)))
        self.arrivals = len(self._arrivals_s)
        for at_s in self._moments(end_s):
            live.run(at_s)
            self._end_one(at_s)
        live.run(end_s)
        self.took_s = live.now_s - begun_s
        late = [*self._came_s.values(), *self._arrivals_s]
        self.undecided_s = [live.now_s - at_s for at_s in late if at_s < end_s]

    def _moments(self, end_s: float) -> Iterator[float]:
        """Random moments, ``rate`` a second on average."""
        at_s = self.live.now_s
        while (at_s := at_s + self.rng.expovariate(self.options.rate)) < end_s:
            yield at_s

    def _end_one(self, at_s: float) -> None:
        """Some running job succeeds."""
        engines = [engine for engine in self.live.engines.values() if engine.gangs]
        if engines:
            engine = self.rng.choice(engines)
            engine.end(self.rng.choice(list(engine.gangs)), 0, at_s)

    def _hear(self, event: m.Message, facts: Sequence[Struct]) -> None:
        """The queue has decided something: about which of the jobs that arrived?"""
        queue = self.machines.queue
        if isinstance(event, m.SubmitJobs) and self._arrivals_s:
            for fact in facts:
                if isinstance(fact, f.Admitted):
                    job = ids.job_id(fact.first_number)
                    self._came_s[job] = self._arrivals_s.popleft()
        if not self._came_s:
            return
        for fact in f.plans_won(event, facts):
            if fact.job in self._came_s:
                self.placed += 1
                self._decided(fact.job)
        if isinstance(event, m.SubmitJobs | m.FleetBids | m.Wake):
            ranking = queue.backlog.ranking
            for job in [job for job in self._came_s if ranking.is_passed_over(job)]:
                self._decided(job)

    def _decided(self, job: str) -> None:
        came_s = self._came_s.pop(job, None)
        if came_s is not None:  # else it was placed before its line was closed
            self.decided_s.append(self.live.now_s - came_s)

    def figures(self) -> dict[str, Any]:
        """What was measured. A job without a decision at the end counts with its wait."""
        live, times_s = self.live, [*self.decided_s, *self.undecided_s]
        spent = sorted(live.spent_s.items(), key=lambda item: -item[1])
        return {
            "decision_p50_ms": _percentile_ms(times_s, 50),
            "decision_p99_ms": _percentile_ms(times_s, 99),
            "decision_max_ms": max(times_s, default=0.0) * 1e3,
            "utilisation": live.busy_s / self.took_s,
            "arrived": self.arrivals,
            "placed_at_once": self.placed,
            "refused_at_first": len(self.decided_s) - self.placed,
            "undecided": len(self.undecided_s),
            "turns": live.turns,
            "busy_s": live.busy_s,
            "events": [
                {"event": what, "count": live.handled[what], "spent_s": spent_s}
                for what, spent_s in spent
            ],
        }  # fmt: skip

    def scrape(self) -> dict[str, float]:
        """What the metrics cost: how long a scrape holds the loop, and how much counting takes."""
        queue, placers = self.machines.queue, self.machines.placers
        copy_s, text_s = [], []
        for _ in range(SCRAPES):
            begun_s = time.perf_counter()
            sources = Sources(
                self.live.meter, Histograms(HTTP_S), 0, {}, 1, gauges(queue, placers)
            )  # fmt: skip
            figures = copied(sources)
            copied_s = time.perf_counter()
            text(figures)
            copy_s.append(copied_s - begun_s)
            text_s.append(time.perf_counter() - copied_s)
        return {
            "scrape_held_p50_ms": _percentile_ms(copy_s, 50),
            "scrape_held_max_ms": max(copy_s) * 1e3,
            "scrape_text_p50_ms": _percentile_ms(text_s, 50),
            "metering_share": self.live.metered_s / self.live.busy_s,
        }


def _percentile_ms(times_s: Sequence[float], percent: float) -> float:
    return float(np.percentile(times_s, percent)) * 1e3 if times_s else 0.0
