"""What bodies wrote down of their lives, and what follows: no word of Topmast is needed for it.

Each body writes a file of its own into one folder, which all hosts share. So a second body that
Topmast knows nothing of, on a host that it gave up, is seen like any other.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

BODY = """exec python3 -Su -c '
import os, time
names = ("TOPMAST_JOB_ID", "RANK", "TOPMAST_EPOCH", "TOPMAST_HOST")
name = ",".join([*(os.environ[name] for name in names), os.urandom(8).hex()])
lasts_s, began_s = float(os.environ["LASTS_S"]), time.time()
with open(os.path.join(os.environ["RECORDS"], name), "x", buffering=1) as file:
    print("begin", began_s, file=file)
    while time.time() < began_s + lasts_s:
        time.sleep(0.2)
        print("alive", time.time(), file=file)
    print("end", time.time(), file=file)
'
"""
"""Says when it lives. It ignores no signal, so that what is preempted ends at once."""


@dataclass(frozen=True)
class Body:
    """What one process said of its life."""

    job: str
    task: int
    attempt: int
    host: str
    began_s: float
    seen_s: float
    """When it last said that it lives."""
    ended: bool
    """Whether it came to the end of its work."""


def read_bodies(folder: Path) -> list[Body]:
    """All that ever began, in the order in which they did."""
    found = []
    for entry in os.scandir(folder):
        lines = [line.split() for line in Path(entry.path).read_text().splitlines()]
        times = [float(line[1]) for line in lines if len(line) == 2]  # the last may be cut off
        if times:
            job, task, attempt, host, _ = entry.name.split(",")
            ended = lines[-1][0] == "end"
            found.append(
                Body(job, int(task), int(attempt), host, times[0], times[-1], ended)
            )  # fmt: skip
    return sorted(found, key=lambda body: (body.began_s, body.job, body.task))


@dataclass(frozen=True)
class Verdict:
    """What bodies wrote, judged."""

    bodies: int
    twice: list[str]
    """Tasks of which two bodies lived at a time, or began in one attempt."""
    finished: dict[str, list[int]]
    """By job: the attempts in which the bodies of all tasks came to their end."""


def judge(bodies: Iterable[Body], tasks: dict[str, int]) -> Verdict:
    """`tasks`: how many each job has."""
    lives: dict[tuple[str, int], list[Body]] = defaultdict(list)
    ends: dict[tuple[str, int], set[int]] = defaultdict(set)
    count = 0
    for body in bodies:
        count += 1
        lives[body.job, body.task].append(body)
        if body.ended:
            ends[body.job, body.attempt].add(body.task)
    twice = [
        f"{job}, task {task}: {one} and {other}"
        for (job, task), life in sorted(lives.items())
        for one, other in pairwise(sorted(life, key=lambda body: body.began_s))
        if one.seen_s >= other.began_s or one.attempt == other.attempt
    ]
    finished: dict[str, list[int]] = {job: [] for job in tasks}
    for (job, attempt), found in sorted(ends.items()):
        if len(found) == tasks[job]:
            finished[job].append(attempt)
    return Verdict(count, twice, finished)
