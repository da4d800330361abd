"""One global queue runs gangs on Slurm, Kubernetes and plain hosts at once, and each of them once."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from tests.everywhere.world import ENGINES, World, missing, world
from tests.support.kubelab.image import NAME
from tests.support.live import eventually, live
from topmast import Client
from topmast.adapters.kernels import load_kernels
from topmast.model.views import JobView

JOBS = 200
PATIENCE_S = 900.0
TENANTS = ("vision", "speech", "language")
BODY = """python3 -u -c '
import os, sys, time
lasts_s, began_s = float(os.environ["LASTS_S"]), time.time()
print("begin", began_s)
while time.time() < began_s + lasts_s:
    time.sleep(0.2)
    print("alive", time.time())
print("end", time.time())
'
"""
"""Says when it lives. It ignores no signal, so that what is preempted ends at once."""

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


def jobs(count: int, seed: int, priority: str, lasts_s: float) -> list[dict[str, object]]:
    """Gangs of one to sixteen GPUs of three tenants; some with half a GPU, which only SSH hosts share."""
    draw = random.Random(seed)
    found: list[dict[str, object]] = []
    for number in range(count):
        gpus, nodes = draw.choice([(1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (8, 2)])
        found.append({
            "name": f"{priority}-{number}", "tenant": TENANTS[number % 3], "priority": priority,
            "num_nodes": nodes, "resources": {"accelerators": {"H100": gpus}},
            "checkpoint": {"grace": "2s"}, "max_restarts": 3, "run": BODY,
            "envs": {"LASTS_S": str(round(lasts_s * draw.uniform(0.5, 1.5), 1))},
        })  # fmt: skip
        if priority == "high" and number % 5 == 0:
            found[-1]["image"] = NAME  # only Kubernetes runs images
        elif priority == "high" and number % 5 == 1:
            found[-1] |= {"num_nodes": 1, "resources": {"accelerators": {"H100": 0.5}}}
    return found


@dataclass
class Body:
    """What one task of one attempt said of its life."""

    attempt: int
    began_s: float
    seen_s: float
    ended: bool


def bodies(client: Client, job: JobView, attempts: int, tasks: int) -> list[list[Body]]:
    """By task, those of all attempts that began."""
    found: list[list[Body]] = []
    for task in range(tasks):
        lives = []
        for attempt in range(1, attempts + 1):
            said = "".join(c.text for c in client.logs(job.id, task, attempt=attempt))
            times = [float(at_s) for at_s in re.findall(r"(?:begin|alive|end) ([\d.]+)", said)]
            assert said.count("begin") <= 1, f"{job.id}: two bodies wrote one log"
            if times:
                lives.append(Body(attempt, times[0], times[-1], "end " in said))
        found.append(lives)
    return found


def busiest(client: Client, engine: str) -> str | None:
    """A host of this kind of engine on which something runs that nothing preempts."""
    used = Counter(
        host
        for job in client.jobs(states=("RUNNING",))
        if ENGINES[job.cluster or ""] == engine and job.band == "high"
        for host in job.hosts
    )
    return min(used, key=lambda host: (-used[host], host)) if used else None


def test_two_hundred_gangs_of_three_tenants_run_once_wherever_there_is_room(
    there: World, tmp_path: Path
) -> None:
    """Through preemption on every kind of engine, and the loss of a host on each."""
    with live(tmp_path, there.fleet(), {"min_runtime_s": "0"}) as (_, client):
        low = client.submit_many(jobs(150, 1, "low", 8.0))
        eventually(
            lambda: len(list(client.jobs(states=("RUNNING",)))) >= 12, "work everywhere", 240.0
        )
        high = client.submit_many(jobs(50, 2, "high", 10.0))
        for engine in ("ssh", "slurm", "kubernetes"):
            host = eventually(partial(busiest, client, engine), f"work on {engine}", 240.0)
            there.lose(engine, host)
        names = [*low.ids, *high.ids]
        ended = client.wait(names, timeout_s=PATIENCE_S)
        stories = {job.id: client.story(job.id) for job in ended}
        lives = {
            job.id: bodies(client, job, len(stories[job.id].attempts), job.tasks) for job in ended
        }

    assert len(ended) == JOBS
    assert Counter(job.state for job in ended) == {"SUCCEEDED": JOBS}
    outcomes = Counter(
        (ENGINES[attempt.cluster], attempt.outcome)
        for story in stories.values()
        for attempt in story.attempts
    )
    print(dict(outcomes))
    for engine in ("ssh", "slurm", "kubernetes"):
        assert outcomes[engine, "succeeded"] > 0, outcomes
        assert outcomes[engine, "preempted"] > 0, outcomes
        assert outcomes[engine, "host_lost"] > 0, outcomes
    for name, tasks in lives.items():
        good = [a.epoch for a in stories[name].attempts if a.outcome == "succeeded"]
        assert len(good) == 1, f"{name} succeeded in attempts {good}"
        assert len(tasks) >= 1, name
        for life in tasks:
            # A body may end in the very moment in which it is to be stopped: then it runs again.
            assert [body.ended for body in life if body.attempt == good[0]] == [True], life
            for one, other in pairwise(life):
                assert one.seen_s < other.began_s, f"{name} lived twice at a time: {life}"
