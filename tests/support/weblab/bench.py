"""How fast the dashboard of a large server is: the last line is JSON.

python -m tests.support.weblab.bench [--jobs 1000000] [--gpus 100000] [--readers 50] [--pairs 200]
python -m tests.support.weblab.bench --only-cost    # what open dashboards cost the decisions, alone

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
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import msgspec
import psutil

from tests.support.weblab.browser import Viewer, browser
from tests.support.weblab.cost import compared, deciding_s, threads_s
from topmast.bench.http import Connection

HOST_GPUS, HOST_CPUS, CLUSTERS, BULK = 8, 192, 10, 20_000
SEEN_WITHIN_S = 120.0
WINDOW_MS = 1_000.0
"""A new window of Chromium loads parts of its own, which are no part of a page."""
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
    hosts = [{"count": count, "gpu": "H100", "gpus": HOST_GPUS, "cpus": HOST_CPUS, "rack_size": 16}]
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
        sys.executable, "-m", "topmast.bench.fake_engine", "0", "--cpu-time",
        "--fleet", str(file), "--state", str(folder / "state"), "--port", "0", "--json",
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
    times_s, before_s = [], threads_s(process)
    with httpx.Client(timeout=60) as client:
        for _ in range(count):
            begun_s = time.monotonic()
            client.get(f"{url}/metrics").raise_for_status()
            times_s.append(time.monotonic() - begun_s)
    each_s = deciding_s(before_s, threads_s(process)) / count
    return {
        "median_ms": round(1e3 * median(times_s), 1), "max_ms": round(1e3 * max(times_s), 1),
        "deciding_ms": round(1e3 * each_s, 2),
    }  # fmt: skip


def _renderer_mb() -> float:
    """The memory of the largest renderer that this process has below it, shared pages left out."""
    sizes = [0]
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # the tabs before are ending
            if "--type=renderer" in child.cmdline():
                sizes.append(child.memory_full_info().uss)
    return max(sizes) / 1e6


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    for name, usual in (
        ("--jobs", 1_000_000),
        ("--gpus", 100_000),
        ("--readers", 50),
        ("--pairs", 200),
        ("--settle-s", 1_800),
    ):
        parser.add_argument(name, type=int, default=usual)
    parser.add_argument("--only-cost", action="store_true")
    given = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as name, server(Path(name), given.gpus) as (url, process):
        say(f"submitting {given.jobs:,} jobs to {url}")
        asyncio.run(fill(url, given.jobs))
        running = settled(url, given.gpus // HOST_GPUS, given.jobs, given.settle_s)
        found: dict[str, Any] = {"jobs": given.jobs, "running": running, "gpus": given.gpus}
        if not given.only_cost:
            say("looking at pages")
            found["groups_ms"] = grouped(url)
            found["scrapes"] = scrapes(url, process, SCRAPES)
            found |= looked_at(url)
            say(json.dumps(found))
        if given.readers:
            say(
                f"deciding alone, and with {given.readers} dashboards: {given.pairs} pairs of turns"
            )
            found["decisions"] = compared(url, process, given.readers, given.pairs)
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main()
