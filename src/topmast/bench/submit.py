"""How fast submissions are acknowledged, each acknowledgement being durable (after fsync)."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from pathlib import Path
from typing import Any

from topmast.adapters.store import is_empty
from topmast.bench.http import Connection
from topmast.bench.setup import Server, folder, job, machine
from topmast.client import Client
from topmast.model.errors import Conflict

JOBS = "/api/v1/jobs"
STARTS = 15
CANCELLED = 7_000
"""So many of the jobs of the bulk request are cancelled in one."""


def measure_submission(
    jobs: int,
    clients: int,
    duration_s: float,
    seed: int,
    state: Path | None,
    store: str | None = None,
) -> dict[str, Any]:
    """One client alone, ``clients`` at once, one bulk request of ``jobs``, some of which one more
    request cancels; and submit-to-start.

    ``store``: the URL of an empty database for the journal, instead of a file.
    """
    if store is not None and not is_empty(store):
        raise Conflict(f"{store} is not empty: make a database for the benchmark")
    rng = random.Random(seed)
    with folder(state) as path:
        server = Server(path, *(("--store", store) if store is not None else ()))
        try:
            start_ms = _starts(server.url)
            _fill(server.url)
            single = asyncio.run(_load(server.url, 1, duration_s, rng))
            together = asyncio.run(_load(server.url, clients, duration_s, rng))
            bulk_s, ids = asyncio.run(_bulk(server.url, jobs, rng))
            cancelled = ids[:CANCELLED]
            cancel_s = asyncio.run(_cancel(server.url, cancelled))
            rss_bytes = server.peak_rss_bytes()
            _empty(server.url)
        finally:
            server.stop()
    return {
        "single_per_s": len(single) / duration_s,
        "concurrent_per_s": len(together) / duration_s,
        "bulk_per_s": jobs / bulk_s,
        "cancel_s": cancel_s,
        "cancelled_jobs": len(cancelled),
        "p50_ms": _percentile(together, 50),
        "p99_ms": _percentile(together, 99),
        "single_p50_ms": _percentile(single, 50),
        "single_p99_ms": _percentile(single, 99),
        "submit_to_start_p50_ms": statistics.median(start_ms),
        "rss_bytes": rss_bytes,
        "clients": clients,
        "bulk_jobs": jobs,
        "store": "SQLite" if store is None else "PostgreSQL",
        "duration_s": duration_s,
        "seed": seed,
        "machine": machine(),
    }


def _starts(url: str) -> list[float]:
    """Milliseconds from the call to the first line of the job's own script, on an idle fleet."""
    times_ms = []
    with Client(url) as client:
        for i in range(STARTS):
            begun_s = time.time()
            document = {
                "name": f"start-{i}",
                "tenant": "team0",
                "resources": {"accelerators": "H100:1"},
                "run": "date +%s.%N\n",
            }
            receipt = client.submit(document)
            client.wait([receipt.id], timeout_s=60)
            output = "".join(chunk.text for chunk in client.logs(receipt.id))
            times_ms.append((float(output.split()[0]) - begun_s) * 1e3)
    return times_ms


def _fill(url: str) -> None:
    """Long jobs on every GPU, so that what is submitted next stays in the queue."""
    with Client(url) as client:
        for model, gangs in (("H100", 4), ("A100", 2)):
            for i in range(gangs):
                client.submit(
                    {
                        "name": f"fill-{model}-{i}",
                        "tenant": f"team{i % 4}",
                        "priority": "critical",
                        "preemptible": False,
                        "resources": {"accelerators": f"{model}:8"},
                        "run": "sleep 3600\n",
                    }
                )


def _empty(url: str) -> None:
    """Cancel what runs, so that no process outlives the benchmark."""
    with Client(url) as client:
        running = [view.id for view in client.jobs(states=("STARTING", "RUNNING"))]
        for running_id in running:
            client.cancel(running_id)
        client.wait(running, timeout_s=60)


async def _load(url: str, clients: int, duration_s: float, rng: random.Random) -> list[float]:
    """Latencies, in seconds, of launches by ``clients`` that each wait for their answer."""
    latencies: list[float] = []
    end_s = time.perf_counter() + duration_s
    number = 0

    async def one() -> None:
        nonlocal number
        connection = Connection(url)
        await connection.open()
        while (begun_s := time.perf_counter()) < end_s:
            number += 1
            await connection.post(JOBS, {"job": job(rng, number), "user": "bench"})
            latencies.append(time.perf_counter() - begun_s)
        connection.close()

    await asyncio.gather(*(one() for _ in range(clients)))
    return latencies


async def _bulk(url: str, jobs: int, rng: random.Random) -> tuple[float, list[str]]:
    """Seconds until one request of ``jobs`` jobs is acknowledged, and their ids."""
    documents = [job(rng, i) for i in range(jobs)]
    connection = Connection(url)
    await connection.open()
    begun_s = time.perf_counter()
    answer = await connection.post(f"{JOBS}/bulk", {"jobs": documents, "user": "bench"})
    taken_s = time.perf_counter() - begun_s
    assert len(answer["ids"]) == jobs
    connection.close()
    return taken_s, answer["ids"]


async def _cancel(url: str, jobs: list[str]) -> float:
    """Seconds until one request that cancels waiting jobs is answered: all of them have ended."""
    connection = Connection(url)
    await connection.open()
    begun_s = time.perf_counter()
    answer = await connection.post(f"{JOBS}/cancel", {"jobs": jobs, "user": "bench"})
    taken_s = time.perf_counter() - begun_s
    assert {job["state"] for job in answer["jobs"]} == {"CANCELLED"}
    assert len(answer["jobs"]) == len(jobs)
    connection.close()
    return taken_s


def _percentile(seconds: list[float], percent: float) -> float:
    """In milliseconds, by the nearest rank."""
    ordered = sorted(seconds)
    rank = max(0, min(len(ordered) - 1, round(percent / 100 * len(ordered)) - 1))
    return ordered[rank] * 1e3
