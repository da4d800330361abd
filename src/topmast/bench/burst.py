"""How fast a server places jobs that came together: from the acknowledgement to the engines.

A real server takes all jobs in one request: HTTP, journal with fsync, links where regions are
apart. Its engines start nothing, and note when they were ordered to start what.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from topmast.adapters.store import open_journal
from topmast.bench.fake_engine import ORDER
from topmast.bench.fleet import FleetSize, regions_of
from topmast.bench.http import Connection
from topmast.bench.servers import QUEUE, Servers
from topmast.bench.setup import folder, write
from topmast.fast.queue import facts as f
from topmast.model import ids
from topmast.model.errors import Unavailable
from topmast.model.fleet import RegionSpec
from topmast.runtime.codec import decode_event, decode_facts

BANDS = ("critical", "high", "normal", "low")
TENANTS = ("red", "green", "blue")
MOST_GPUS = 8
"""Of one task."""
POLL_S = 0.01
QUIET_S = 3.0
"""The burst is over when no order came for so long, and the processes were mostly idle."""
IDLE = 0.5
"""Cores in use by them then, at most: jobs that wait are looked at now and then."""
PATIENCE_S = 120.0
"""It is over at the latest when no order came for so long."""
CLUSTERS_PER_REGION = 10
HOSTS_PER_CLUSTER = 4
"""Small fleets have so many hosts in a cluster at least."""


class BurstOptions(Struct, frozen=True):
    """What to measure."""

    jobs: int = 10_000
    hosts: int = 20_000
    regions: int = 20
    gpus_per_host: int = 8
    apart: bool = False
    """Each region has a process of its own."""
    delay_s: float = 0.0
    """Each request between processes takes so much longer than loopback does."""
    seed: int = 0
    settings: dict[str, str] = {}
    """Options of the policies."""

    def size(self) -> FleetSize:
        """The fleet. Raises InvalidInput."""
        fit = self.hosts // max(1, self.regions) // HOSTS_PER_CLUSTER
        clusters = self.regions * max(1, min(CLUSTERS_PER_REGION, fit))
        return FleetSize(self.regions, clusters, self.hosts, self.gpus_per_host).checked()


def measure_burst(
    options: BurstOptions, state: Path | None = None, out: Path | None = None
) -> dict[str, Any]:
    """One burst on an empty fleet."""
    regions = regions_of(options.size())
    with folder(state) as made:
        orders = made / "orders"
        orders.touch()
        servers = Servers(
            _fleet(regions), made,
            apart=[region.name for region in regions] if options.apart else (),
            settings=[f"{key}={value}" for key, value in options.settings.items()],
            delay_s=options.delay_s, orders=orders,
        )  # fmt: skip
        try:
            probes = _probe(servers, orders, regions)
            first, acknowledged_s = asyncio.run(_submit(servers.url[QUEUE], options))
            found = _wait(servers, orders, probes + options.jobs)
            rss_bytes, processes = servers.peak_rss_bytes(), len(servers.processes)
        finally:
            servers.stop()
        document = {
            **_figures(found[found["number"] >= first], acknowledged_s, options),
            "score_mean": _score_mean(made / QUEUE, first),
            "rss_bytes": rss_bytes,
            "processes": processes,
        }
    if out is not None:
        write(out, "burst", document)
    return document


def _figures(
    orders: npt.NDArray[Any], acknowledged_s: float, options: BurstOptions
) -> dict[str, Any]:
    """How many jobs were placed, and when, after the acknowledgement."""
    after_s = np.sort(orders["at_s"]) - acknowledged_s
    placed = len(after_s)
    p50, p99 = (np.percentile(after_s, (50, 99)) * 1e3).tolist() if placed else (None, None)
    return {
        "jobs": options.jobs,
        "hosts": options.hosts,
        "regions": options.regions,
        "placed": placed,
        "placed_per_s": placed / max(POLL_S, float(after_s[-1])) if placed else 0.0,
        "p50_ms": p50,
        "p99_ms": p99,
    }


def _score_mean(state: Path, first: int) -> float | None:
    """The mean score of the plans of the burst, by the journal of the queue."""
    journal = open_journal(state / "journal.sqlite")
    try:
        scores = [
            fact.plan.score
            for record in journal.records()
            if record.machine == ids.QUEUE
            for fact in f.plans_won(
                decode_event(record.event), decode_facts(record.machine, record.facts)
            )
            if ids.job_number(fact.job) >= first
        ]
    finally:
        journal.close()
    return float(np.mean(scores)) if scores else None


# --- jobs -----------------------------------------------------------------------------------------


def burst(options: BurstOptions) -> list[dict[str, Any]]:
    """70% of the jobs have one GPU, 20% have eight, 10% are gangs of 2 to 16 tasks of eight."""
    rng = random.Random(options.seed)
    return [_job(rng, i, options.gpus_per_host) for i in range(options.jobs)]


def _job(rng: random.Random, number: int, gpus_per_host: int) -> dict[str, Any]:
    kind = rng.random()
    tasks = rng.randint(2, 16) if kind >= 0.9 else 1
    gpus = 1 if kind < 0.7 else min(MOST_GPUS, gpus_per_host)
    return {
        "name": f"burst-{number}",
        "tenant": rng.choice(TENANTS),
        "priority": rng.choice(BANDS),
        "num_nodes": tasks,
        "resources": {"accelerators": f"H100:{gpus}"},
        "run": "python train.py\n",
    }


def _fleet(regions: list[RegionSpec]) -> dict[str, Any]:
    """The fleet file: the regions, each with one more host that only a probe asks for."""
    document: dict[str, Any] = {}
    for region in regions:
        clusters: dict[str, Any] = {}
        for cluster in region.clusters:
            kind = cluster.hosts[0]
            host = {"count": len(cluster.hosts), "gpu": kind.model, "gpus": kind.gpus}
            clusters[cluster.name] = {"hosts": [host]}
        probe = {"count": 1, "gpu": f"probe-{region.name}", "gpus": 1}
        clusters[region.clusters[0].name]["hosts"].append(probe)
        document[region.name] = {"clusters": clusters}
    return {"regions": document, "tenants": {tenant: {} for tenant in TENANTS}}


# --- the course of it -----------------------------------------------------------------------------


def _probe(servers: Servers, orders: Path, regions: list[RegionSpec]) -> int:
    """Wait until each region has placed a job; returns how many orders that took."""
    jobs = [
        {
            "name": f"probe-{region.name}",
            "resources": {"accelerators": f"probe-{region.name}:1"},
            "run": "true\n",
        }
        for region in regions
    ]
    servers.client.submit_many(jobs, key="probes")
    begun_s = time.monotonic()
    while len(_read(orders)) < len(jobs):
        if time.monotonic() - begun_s > PATIENCE_S:
            raise Unavailable(f"not every region placed a job within {PATIENCE_S:g} s")
        time.sleep(POLL_S)
    return len(jobs)


async def _submit(url: str, options: BurstOptions) -> tuple[int, float]:
    """Submit all jobs at once; returns the number of the first, and when that was acknowledged."""
    connection = Connection(url)
    await connection.open()
    body = {"jobs": burst(options), "user": "bench"}
    answer = await connection.post("/api/v1/jobs/bulk", body)
    acknowledged_s = time.time()
    connection.close()
    return ids.job_number(answer["ids"][0]), acknowledged_s


def _wait(servers: Servers, orders: Path, wanted: int) -> npt.NDArray[Any]:
    """All orders, once the last came, or no more come."""
    count, since_s, cpu_s = -1, 0.0, 0.0
    while True:
        now_s, there = time.monotonic(), orders.stat().st_size // ORDER.size
        if there >= wanted:
            break
        if there != count:
            count, since_s, cpu_s = there, now_s, _cpu_s(servers)
        elif now_s - since_s > PATIENCE_S:
            break
        elif now_s - since_s > QUIET_S:
            if _cpu_s(servers) - cpu_s < IDLE * (now_s - since_s):
                break
            time.sleep(QUIET_S)
        time.sleep(POLL_S)
    return _read(orders)


def _cpu_s(servers: Servers) -> float:
    return sum(servers.cpu_s().values())


def _read(orders: Path) -> npt.NDArray[Any]:
    """When each job was ordered first."""
    kind = np.dtype([("at_s", "<f8"), ("number", "<u4")])
    found = np.frombuffer(orders.read_bytes(), kind)
    _, firsts = np.unique(found["number"], return_index=True)
    return found[firsts]
