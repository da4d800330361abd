"""How fast a killed server with a long queue is back: from its start to its first decision."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

from topmast.bench.http import Connection
from topmast.bench.setup import Server, folder, job, machine
from topmast.client import Client

BULK = 10_000
PATIENCE_S = 120.0
PLACED = ("STARTING", "RUNNING", "RECOVERING", "SUCCEEDED", "FAILED")


def measure_recovery(jobs: int, seed: int, state: Path | None) -> dict[str, Any]:
    """Queue ``jobs`` on a cordoned fleet, SIGKILL the server, start it again, let the fleet work.

    The first decision is the first `placed` event after the restart, by the server's clock.
    """
    rng = random.Random(seed)
    with folder(state) as path:
        server = Server(path)
        try:
            with Client(server.url) as client:
                hosts = [host.name for host in client.hosts()]
                for host in hosts:
                    client.cordon(host)
            asyncio.run(_queue(server.url, jobs, rng))
        finally:
            server.kill()
        journal_bytes = sum(file.stat().st_size for file in path.glob("journal.sqlite*"))
        server = Server(path)
        try:
            placed_s = _first_decision(server.url, hosts)
            rss_bytes = server.peak_rss_bytes()
            queued = _clear(server.url, hosts)
        finally:
            server.stop()
    return {
        "jobs": jobs,
        "journal_bytes": journal_bytes,
        "recover_s": placed_s - server.spawned_s,
        "rss_bytes": rss_bytes,
        "ready_s": server.ready_s - server.spawned_s,
        "found_jobs": queued,
        "seed": seed,
        "machine": machine(),
    }


async def _queue(url: str, jobs: int, rng: random.Random) -> None:
    connection = Connection(url)
    await connection.open()
    for first in range(0, jobs, BULK):
        documents = [job(rng, i) for i in range(first, min(first + BULK, jobs))]
        await connection.post("/api/v1/jobs/bulk", {"jobs": documents, "user": "bench"})
    connection.close()


def _first_decision(url: str, hosts: list[str]) -> float:
    """Let the hosts work; returns when the first job was placed."""
    with Client(url) as client:
        client.uncordon(hosts[0])
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            for view in client.jobs(states=PLACED):
                story = client.story(view.id)
                placed = [line.at_s for line in story.history if line.kind == "placed"]
                return min(placed)
            time.sleep(0.01)
    raise TimeoutError("no job was placed")


def _clear(url: str, hosts: list[str]) -> int:
    """Stop what was started; returns how many jobs the server knows."""
    with Client(url) as client:
        known = sum(client.health().jobs.values())
        client.cordon(hosts[0])
        for view in list(client.jobs(states=PLACED)):
            client.cancel(view.id)
    return known
