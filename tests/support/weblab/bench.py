"""How fast the dashboard of a large server is: the last line is JSON.

python -m tests.support.weblab.bench [--jobs 1000000] [--gpus 100000] [--readers 50]

The server has engines that run nothing; all else is as in production. Times are those of a browser
on the same machine, which must be quiet.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil

from tests.support.weblab.browser import Viewer, browser
from topmast.bench.http import Connection

HOST_GPUS, CLUSTERS, BULK = 8, 10, 20_000
SEEN_WITHIN_S = 120.0
WINDOW_MS = 1_000.0
"""A new window of Chromium loads parts of its own, which are no part of a page."""
PACE, PACED_S = 10.0, 20.0
"""Jobs a second, and for how long, while the share of a core is taken: with dashboards as without."""
SUBMITTED = 1_000
"""Jobs of a turn in which decisions are timed."""
SCRAPES = 100
SEEN = """
const seen = {};
const look = () => {
  const now = performance.now();
  if (!seen.row_ms && document.querySelector("[data-row]")) seen.row_ms = now;
  const map = document.querySelector("gpu-map");
  if (!seen.map_ms && map?.shadowRoot?.querySelector("canvas[role=img]")) seen.map_ms = now;
  requestAnimationFrame(look);
};
window.seen = seen;
requestAnimationFrame(look);
"""
REDRAW = """async () => {
  const map = document.querySelector("gpu-map");
  const text = await (await fetch("/api/v1/fleet/map")).text();
  const times = {map_mb: text.length / 1e6};
  let begun = performance.now();
  map.setAttribute("by", "band");
  times.draw_ms = performance.now() - begun;
  const fleet = JSON.parse(text);
  map.update(fleet);
  const hosts = fleet.regions.flatMap((r) => r.clusters.flatMap((c) => c.hosts));
  for (const host of hosts.slice(0, 125)) host.held = {};
  begun = performance.now();
  map.update(fleet);
  times.update_1000_gpus_ms = performance.now() - begun;
  return times;
}"""


def fleet(gpus: int) -> dict[str, Any]:
    """Two regions with five clusters each."""
    count = gpus // HOST_GPUS // CLUSTERS
    hosts = [{"count": count, "gpu": "H100", "gpus": HOST_GPUS, "rack_size": 16}]
    regions = {
        region: {"clusters": {f"{region}-{i}": {"hosts": hosts} for i in range(CLUSTERS // 2)}}
        for region in ("east", "west")
    }
    tenants = {f"team-{i}": {"quota": {"H100": gpus // 5}} for i in range(5)}
    return {"regions": regions, "tenants": tenants}


@contextmanager
def server(folder: Path, gpus: int) -> Iterator[tuple[str, psutil.Process]]:
    """One with engines that run nothing: its URL and its process."""
    file = folder / "fleet.yaml"
    file.write_text(json.dumps(fleet(gpus)), "utf-8")
    command = [
        sys.executable, "-m", "topmast.bench.fake_engine", "0", "--fleet", str(file),
        "--state", str(folder / "state"), "--port", "0", "--json",
    ]  # fmt: skip
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, (folder / "server.log").read_text("utf-8")[-2_000:]
        yield json.loads(line)["url"], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


async def fill(url: str, jobs: int) -> None:
    """Submit so many jobs of a host each."""
    connection = Connection(url)
    await connection.open()
    for first in range(0, jobs, BULK):
        many = [
            {
                "name": f"job-{i}",
                "run": "true",
                "tenant": f"team-{i % 5}",
                "resources": {"accelerators": f"H100:{HOST_GPUS}"},
            }
            for i in range(first, min(jobs, first + BULK))
        ]
        await connection.post("/api/v1/jobs/bulk", {"jobs": many, "user": f"user-{first}"})
    connection.close()


def settled(url: str, hosts: int, jobs: int, patience_s: float) -> int:
    """Wait until every host has its job, for so long at most; how many run."""
    until_s = time.monotonic() + patience_s
    while True:
        counts = httpx.get(f"{url}/api/v1/health", timeout=60).json()["jobs"]
        running = int(counts.get("RUNNING", 0))
        if running >= min(hosts, jobs) or time.monotonic() >= until_s:
            return running
        time.sleep(1)


def _seen(page: Any, key: str) -> float:
    """Wait for a time that `SEEN` notes: by questions from outside, for pages run no strings."""
    end_s = time.monotonic() + SEEN_WITHIN_S
    while not (found := page.evaluate(f"window.seen.{key} ?? 0")):
        if time.monotonic() > end_s:
            raise TimeoutError(f"{key}: nothing to be seen within {SEEN_WITHIN_S:g} s")
        page.wait_for_timeout(20)
    return float(found)


def looked_at(url: str) -> dict[str, float]:
    """What a browser measures on the queue and on the map."""
    found: dict[str, float] = {}
    with browser() as chromium:
        viewer = Viewer(chromium, url)
        for path, key in (("/", "row_ms"), ("/fleet", "map_ms")):
            times = []
            for _ in range(3):
                with viewer.window() as window:
                    window.page.wait_for_timeout(WINDOW_MS)
                    window.page.add_init_script(SEEN)
                    page = window.open(path)
                    times.append(_seen(page, key))
                    if path == "/fleet" and len(times) == 3:
                        found |= page.evaluate(REDRAW)
                        found["tab_mb"] = _renderer_mb()
            found[f"{key.removesuffix('_ms')}_median_ms"] = sorted(times)[1]
    return {key: round(value, 1) for key, value in found.items()}


def grouped(url: str) -> dict[str, float]:
    """How long the page of groups takes that nobody has asked for before.

    Jobs by a label are looked at one by one.
    """
    found = {}
    for by in ("tenant", "user", "band", "label.none"):
        begun_s = time.monotonic()
        httpx.get(f"{url}/?group={by}", timeout=120).raise_for_status()
        found[by] = round(1e3 * (time.monotonic() - begun_s), 1)
    return found


def scrapes(url: str, process: psutil.Process, count: int) -> dict[str, float]:
    """How long a scrape of the metrics takes, and how much CPU time of the thread that decides."""
    times_s, before_s = [], _deciding_s(process)
    with httpx.Client(timeout=60) as client:
        for _ in range(count):
            begun_s = time.monotonic()
            client.get(f"{url}/metrics").raise_for_status()
            times_s.append(time.monotonic() - begun_s)
    deciding_s = (_deciding_s(process) - before_s) / count
    return {
        "median_ms": round(1e3 * median(times_s), 1), "max_ms": round(1e3 * max(times_s), 1),
        "deciding_ms": round(1e3 * deciding_s, 2),
    }  # fmt: skip


def _deciding_s(process: psutil.Process) -> float:
    """The CPU time of the thread that decides: of those beside that of HTTP the one that works."""
    tasks = Path(f"/proc/{process.pid}/task")
    others = [task for task in tasks.iterdir() if task.name != str(process.pid)]
    return max(int((task / "schedstat").read_text("ascii").split()[0]) for task in others) / 1e9


def _renderer_mb() -> float:
    """The memory of the largest renderer that this process has below it, shared pages left out."""
    sizes = [0]
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # the tabs before are ending
            if "--type=renderer" in child.cmdline():
                sizes.append(child.memory_full_info().uss)
    return max(sizes) / 1e6


def submit(url: str, name: str) -> None:
    """One job without GPUs."""
    job = {"name": name, "run": "true", "tenant": "team-0"}
    asked = {"job": job, "user": "ann"}
    httpx.post(f"{url}/api/v1/jobs", json=asked, timeout=60).raise_for_status()


def shares(url: str, process: psutil.Process) -> dict[str, float]:
    """How much of a core the thread that decides takes, and the server, for jobs at a pace."""

    def cpu_s() -> tuple[float, float]:
        whole = process.cpu_times()
        return _deciding_s(process), whole.user + whole.system

    begun_s, before = time.monotonic(), cpu_s()
    for at in range(int(PACED_S * PACE)):
        time.sleep(max(0.0, begun_s + at / PACE - time.monotonic()))
        submit(url, f"paced-{at}")
    took_s = time.monotonic() - begun_s
    deciding, whole = (100 * (b - a) / took_s for a, b in zip(before, cpu_s(), strict=True))
    return {"deciding_pct": round(deciding, 2), "server_pct": round(whole, 2)}


def decisions(url: str, process: psutil.Process, jobs: int) -> dict[str, float]:
    """What a message of the queue took while so many jobs were submitted.

    That is the time in the queue itself, by the clock, and all CPU time of the thread that decides.
    """

    def timing() -> tuple[int, float, float]:
        steps = httpx.get(f"{url}/api/v1/system", timeout=60).json()["timings"]
        queue = next(step for step in steps if step["step"] == "queue")
        return queue["count"], queue["count"] * queue["mean_s"], _deciding_s(process)

    before = timing()
    for at in range(jobs):
        submit(url, f"more-{at}")
    after = timing()
    count, took_s, cpu_s = (b - a for a, b in zip(before, after, strict=True))
    each_us = 1e6 / max(1, count)
    return {"queue_us": round(each_us * took_s, 1), "cpu_us": round(each_us * cpu_s, 1)}


def compared(url: str, process: psutil.Process, readers: int, pairs: int) -> dict[str, Any]:
    """What deciding takes with dashboards and without: in pairs, of which each second is turned."""
    return {
        "dashboards": readers,
        "fast": _in_pairs(url, readers, pairs, lambda: decisions(url, process, SUBMITTED)),
        "paced": _in_pairs(url, readers, pairs, lambda: shares(url, process)),
    }


def _in_pairs(
    url: str, readers: int, pairs: int, measure: Callable[[], dict[str, float]]
) -> dict[str, Any]:
    """Each figure alone and with dashboards, and the median of how much it grew in a pair."""
    found: dict[str, list[dict[str, float]]] = {"alone": [], "with_them": []}
    for at in range(pairs):
        for kind in sorted(found, reverse=at % 2 == 1):
            with dashboards(url, readers if kind == "with_them" else 0):
                found[kind].append(measure())
    both = list(zip(found["alone"], found["with_them"], strict=True))
    growth = {key: round(median(b[key] / a[key] - 1.0 for a, b in both), 4) for key in both[0][0]}
    return {**found, "growth": growth}


@contextmanager
def dashboards(url: str, count: int) -> Iterator[None]:
    """So many open pages: a stream of events each, and the queue drawn anew as pages do it.

    That is each second, or as soon as the server has something newer.
    """
    over = threading.Event()

    async def reader(client: httpx.AsyncClient) -> None:
        while not over.is_set():
            drawn = await client.get(f"{url}/", headers={"Topmast-Fragment": "1"}, timeout=120)
            await asyncio.sleep(max(1.0, int(drawn.headers.get("Topmast-Rest", 0)) / 1_000))

    async def stream(client: httpx.AsyncClient) -> None:
        async with client.stream("GET", f"{url}/api/v1/events", timeout=None) as answer:
            async for _ in answer.aiter_raw():
                if over.is_set():
                    return

    async def all_of_them() -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(limits=limits) as client:
            streams = [asyncio.create_task(stream(client)) for _ in range(count)]
            await asyncio.gather(*(reader(client) for _ in range(count)))
            for task in streams:
                task.cancel()

    thread = threading.Thread(target=asyncio.run, args=(all_of_them(),))
    thread.start()
    try:
        time.sleep(3)
        yield
    finally:
        over.set()
        thread.join()


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    for name, usual in (
        ("--jobs", 1_000_000),
        ("--gpus", 100_000),
        ("--readers", 50),
        ("--pairs", 5),
        ("--settle-s", 1_800),
    ):
        parser.add_argument(name, type=int, default=usual)
    given = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as name, server(Path(name), given.gpus) as (url, process):
        say(f"submitting {given.jobs:,} jobs to {url}")
        asyncio.run(fill(url, given.jobs))
        running = settled(url, given.gpus // HOST_GPUS, given.jobs, given.settle_s)
        say("looking at pages")
        found: dict[str, Any] = {
            "jobs": given.jobs, "running": running, "gpus": given.gpus, "groups_ms": grouped(url),
            "scrapes": scrapes(url, process, SCRAPES), **looked_at(url),
        }  # fmt: skip
        say(json.dumps(found))
        if given.readers:
            say(f"deciding alone, and with {given.readers} dashboards")
            found["decisions"] = compared(url, process, given.readers, given.pairs)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
