"""Clients that submit without a break, each to the server that leads, and what they were promised."""

import random
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.failover.system import Server, System

PAUSE_S = 0.02
REST_S = 0.15
REAL_SHARE = 0.04
"""Of so many jobs tasks run; the others wait behind a job that has all GPUs."""
TASK = """
import fcntl, os, pathlib, sys, time
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
run = f"{name} {os.environ['TOPMAST_JOB_ID']} {os.environ['TOPMAST_EPOCH']}"
def say(kind):
    with open(folder / "proof", "a") as file:
        file.write(f"{kind} {run}\\n")
def run_once(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return say("double")
    before = file.read()
    if "done" in before:
        return say("double")
    if before:
        say("stopped")
    say("start")
    print("begun", file=file, flush=True)
    time.sleep(0.3)
    print("done", file=file, flush=True)
    say("done")
    return 0
with open(folder / "locks" / name, "a+") as file:
    file.seek(0)
    sys.exit(5 if run_once(file) is None else 0)
"""
"""It fails if it runs elsewhere or is done, and says so if it was stopped in its midst."""


@dataclass(frozen=True)
class Acknowledged:
    """A submission and its answer."""

    name: str
    job: str
    at_s: float
    server: str
    real: bool


@dataclass
class Load:
    """What all clients share."""

    system: System
    seed: int
    over: threading.Event = field(default_factory=threading.Event)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    """Answers that should not be."""

    def __post_init__(self) -> None:
        (self.system.folder / "locks").mkdir()
        (self.system.folder / "task.py").write_text(TASK)

    def fill(self) -> None:
        """Have a job take all GPUs for ever, so that most of the others wait."""
        server = self.system.leader()
        assert server is not None
        for n in range(2):
            job = {"name": f"fill-{n}", "priority": "critical", "preemptible": False,
                   "resources": {"accelerators": "H100:8"}, "run": "sleep 100000"}  # fmt: skip
            status, _ = server.ask(
                "POST", "/jobs", {"job": job, "user": "tests"}, f"fill-{n}", 10.0
            )
            assert status == 201

    def job(self, name: str, real: bool) -> dict[str, object]:
        """A job file. Of those with tasks half run in the region apart, which alone has the L4."""
        folder = self.system.folder
        words = [sys.executable, "-S", str(folder / "task.py"), str(folder), name]
        odd = int(name.rpartition("-")[2]) % 2
        small = {"accelerators": "L4:1"} if odd else {"cpus": 1}
        need = small if real else {"accelerators": "H100:8"}
        return {"name": name, "priority": "low", "resources": need, "run": shlex.join(words)}

    def acknowledges_after(self, at_s: float) -> bool:
        """Whether a job was acknowledged after a time."""
        return any(found.at_s > at_s for found in self.acknowledged[-100:])

    def gaps_s(self, since_s: float, until_s: float) -> float:
        """The longest time without an acknowledgement in a period, from the last one before it.

        To be asked when there was one at its end: a gap that lasts is none yet.
        """
        times = sorted(found.at_s for found in self.acknowledged)
        before = [at_s for at_s in times if at_s < since_s][-1:]
        inside = [at_s for at_s in times if since_s <= at_s <= until_s]
        points = before + inside
        return max((b - a for a, b in pairwise(points)), default=0.0)


class Client(threading.Thread):
    """Submits one job after the other; one that is not answered is sent again, with its key."""

    def __init__(self, load: Load, number: int) -> None:
        super().__init__(name=f"client {number}", daemon=True)
        self._load = load
        self._number = number
        self._random = random.Random(load.seed * 1000 + number)
        self._servers = list(load.system.servers.values())

    def run(self) -> None:
        """Until the load is over, and the last job is acknowledged."""
        for name in self._names():
            if self._load.over.is_set():
                return
            self._submit(name, self._random.random() < REAL_SHARE)
            time.sleep(REST_S)

    def _names(self) -> Iterator[str]:
        n = 0
        while True:
            n += 1
            yield f"c{self._number}-{n}"

    def _submit(self, name: str, real: bool) -> None:
        body = {"job": self._load.job(name, real), "user": "tests"}
        while True:
            server = self._servers[0]
            status, found = server.ask("POST", "/jobs", body, name)
            if status == 201:
                self._load.acknowledged.append(
                    Acknowledged(name, found["id"], time.monotonic(), server.name, real)
                )
                return
            if status not in (0, 503):
                self._load.odd.append(f"{name}: {status} {found}")
            self._servers.reverse()
            time.sleep(PAUSE_S)


@dataclass
class Verdict:
    """Broken promises, in words."""

    lost: list[str]
    double_runs: list[str]
    stale_orders: list[str]
    others: list[str]

    @property
    def clean(self) -> bool:
        """Whether every promise was kept."""
        return not (self.lost or self.double_runs or self.stale_orders or self.others)


def settle(load: Load, patience_s: float = 90.0) -> Verdict:
    """Wait for the jobs with tasks, and hold all that is known against what was promised."""
    server = load.system.leader()
    assert server is not None
    real = {found.job: found.name for found in load.acknowledged if found.real}
    deadline_s = time.monotonic() + patience_s
    views = jobs_of(server)
    while time.monotonic() < deadline_s and not _all_ended(views, real):
        time.sleep(1.0)
        views = jobs_of(server)
    return Verdict(
        list(_lost(load, views)), list(_doubles(load, views)),
        [*stale_orders(load.system.folder / "orders"), *stale_orders(load.system.apart / "batches")],
        [*load.odd, *_stopped(load)],
    )  # fmt: skip


def jobs_of(server: Server) -> dict[str, tuple[str, str]]:
    """All jobs: name and state by id."""
    found, cursor = {}, ""
    while True:
        path = f"/jobs?limit=1000&cursor={cursor}" if cursor else "/jobs?limit=1000"
        status, page = server.ask("GET", path, timeout_s=20.0)
        assert status == 200, f"{path}: {status} {page}"
        found.update({view["id"]: (view["name"], view["state"]) for view in page["jobs"]})
        cursor = page.get("next_cursor") or ""
        if not cursor:
            return found


def _all_ended(views: dict[str, tuple[str, str]], real: dict[str, str]) -> bool:
    return all(views.get(job, ("", ""))[1] in ("SUCCEEDED", "FAILED") for job in real)


def _lost(load: Load, views: dict[str, tuple[str, str]]) -> Iterator[str]:
    for sent in load.acknowledged:
        name, state = views.get(sent.job, ("", ""))
        if name != sent.name:
            yield f"{sent.job} ({sent.name}) was acknowledged by {sent.server}, and is {name or 'unknown'}"
        elif sent.real and state != "SUCCEEDED":
            yield f"{sent.job} ({sent.name}) is {state}"


def _doubles(load: Load, views: dict[str, tuple[str, str]]) -> Iterator[str]:
    for name, count in Counter(name for name, _ in views.values()).items():
        if count > 1:
            yield f"{name} was submitted once, and there are {count} jobs of that name"
    for line, count in Counter(_proof(load)).items():
        if line.startswith("double") or (count > 1 and not line.startswith("stopped")):
            yield f"{line}: {count} times"


def _stopped(load: Load) -> Iterator[str]:
    """Tasks that were ended in their midst, which nothing asked for."""
    return (f"{line}: had begun before" for line in _proof(load) if line.startswith("stopped"))


def _proof(load: Load) -> list[str]:
    """What the tasks have written."""
    file = load.system.folder / "proof"
    return file.read_text().splitlines() if file.exists() else []


def stale_orders(file: Path) -> list[str]:
    """Orders that were carried out after one of a later leader, or of another with its epoch."""
    found = []
    highest, leader = 0, ""
    for line in file.read_text().splitlines() if file.exists() else ():
        pid, epoch, order = line.split()
        if int(epoch) > highest:
            highest, leader = int(epoch), pid
        elif int(epoch) < highest or pid != leader:
            found.append(
                f"{order} of epoch {epoch}, process {pid}, after epoch {highest} of {leader}"
            )
    return found
