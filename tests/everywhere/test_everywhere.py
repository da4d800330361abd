"""One global queue runs gangs on Slurm, Kubernetes and plain hosts at once, and each of them once."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

from tests.everywhere.figures import FIGURES, KINDS, Figures
from tests.everywhere.judge import BODY, judge, read_bodies
from tests.everywhere.picture import draw
from tests.everywhere.world import ENGINES, World, missing, world
from tests.support.kubelab.image import NAME
from tests.support.live import eventually, live
from topmast import Client
from topmast.adapters.kernels import load_kernels
from topmast.client import WaitTimeout
from topmast.model.views import JobView

JOBS = 200
PATIENCE_S = 900.0
TENANTS = ("vision", "speech", "language")
pytestmark = [
    pytest.mark.slurm, pytest.mark.ssh, pytest.mark.kubernetes, pytest.mark.slow,
    pytest.mark.timeout(1800),
]  # fmt: skip


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if reason := missing():
        pytest.skip(reason)
    load_kernels()  # the server is waited for, and compiling takes longer than that
    with world(tmp_path_factory.mktemp("world")) as found:
        yield found


def jobs(
    count: int, seed: int, priority: str, lasts_s: float, records: Path
) -> list[dict[str, object]]:
    """Gangs of one to sixteen GPUs of three tenants; some with half a GPU, which only SSH hosts share."""
    draw = random.Random(seed)
    found: list[dict[str, object]] = []
    for number in range(count):
        gpus, nodes = draw.choice([(1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (8, 2)])
        found.append({
            "name": f"{priority}-{number}", "tenant": TENANTS[number % 3], "priority": priority,
            "num_nodes": nodes, "resources": {"accelerators": {"H100": gpus}},
            "checkpoint": {"grace": "2s"}, "max_restarts": 3, "run": BODY,
            "envs": {
                "LASTS_S": str(round(lasts_s * draw.uniform(0.5, 1.5), 1)),
                "RECORDS": str(records),
            },
        })  # fmt: skip
        if priority == "high" and number % 5 == 0:
            # Only Kubernetes runs images, and one of its two hosts is lost for good.
            found[-1] |= {"image": NAME, "num_nodes": 1}
        elif priority == "high" and number % 5 == 1:
            found[-1] |= {"num_nodes": 1, "resources": {"accelerators": {"H100": 0.5}}}
    return found


def busiest(client: Client, engine: str, but: str = "") -> str | None:
    """A host of this kind of engine on which something runs that nothing preempts.

    Of two such hosts, the one with the younger job: what is about to end may end before it is lost.
    """
    used: Counter[str] = Counter()
    begun_s: dict[str, float] = {}
    for job in client.jobs(states=("RUNNING",)):
        if ENGINES[job.cluster or ""] == engine and job.band == "high":
            for host in job.hosts:
                used[host] += host != but
                begun_s[host] = max(begun_s.get(host, 0.0), job.start_s or 0.0)
    used = +used
    return min(used, key=lambda host: (-used[host], -begun_s[host], host)) if used else None


def wait(client: Client, names: list[str]) -> list[JobView]:
    """Until all have ended, telling now and then how far they are."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        with suppress(WaitTimeout):
            return list(client.wait(names, timeout_s=min(30.0, end_s - time.monotonic())))
        states = Counter(job.state for job in client.jobs())
        note(f"{dict(states)}")
        assert time.monotonic() < end_s, f"not all ended in {PATIENCE_S:.0f} s: {states}"


def note(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def test_two_hundred_gangs_of_three_tenants_run_once_wherever_there_is_room(
    there: World, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Through preemption on every kind of engine, the loss of a host on each, and a cut cable."""
    began_s = time.monotonic()
    with live(tmp_path, there.fleet(), {"min_runtime_s": "0"}) as (_, client):
        low = client.submit_many(jobs(150, 1, "low", 8.0, there.records))
        eventually(
            lambda: len(list(client.jobs(states=("RUNNING",)))) >= 12, "work everywhere", 240.0
        )
        high = client.submit_many(jobs(50, 2, "high", 10.0, there.records))
        for engine in KINDS:
            host = eventually(partial(busiest, client, engine), f"work on {engine}", 240.0)
            note(f"{host} of {engine} is lost")
            there.lose(engine, host)
        host = eventually(partial(busiest, client, "ssh", but=host), "more work on ssh", 240.0)
        note(f"{host} is cut off for a while")
        there.cut_off(host)
        ended = wait(client, [*low.ids, *high.ids])
        stories = {job.id: client.story(job.id) for job in ended}

    took_s = time.monotonic() - began_s
    verdict = judge(read_bodies(there.records), {job.id: job.tasks for job in ended})
    figures = Figures.of(stories, verdict, took_s)
    request.config.stash[FIGURES] = asdict(figures)
    if picture := os.environ.get("TOPMAST_PICTURE"):
        shutil.copy(draw(stories.values(), there.gpus(), figures, tmp_path), picture)

    assert verdict.twice == []
    assert figures.jobs == JOBS
    assert Counter(job.state for job in ended) == {"SUCCEEDED": JOBS}
    for name, story in stories.items():
        good = [a.epoch for a in story.attempts if a.outcome == "succeeded"]
        assert len(good) == 1, f"{name} succeeded in attempts {good}"
        # A gang may end in the very moment in which it is stopped: then it runs again.
        *before, last = verdict.finished[name] or [0]
        stopped = [a.epoch for a in story.attempts if a.outcome in ("preempted", "host_lost")]
        assert last == good[0], f"{name} succeeded in {good[0]}, and its bodies in {last}"
        assert set(before) <= set(stopped), f"{name} finished in {before} and in {last}"
    for engine in KINDS:
        assert figures.succeeded[engine] > 0, figures
        assert figures.preempted[engine] > 0, figures
        assert figures.host_lost[engine] > 0, figures
    assert figures.moved_between_engines > 0, figures
