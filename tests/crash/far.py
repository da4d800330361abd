"""Gangs on a real cluster that goes wrong in every way, and what was promised of them.

In each round a few gangs start while one or two faults happen. Then all is mended, and every gang
has to end. Each task writes down that it began, and has a mark in its environment: a second one of
a task, and one that lives when it was told dead, are seen at once. Progress goes to stderr; the
last line on stdout is the result, as JSON.

What kind of cluster it is, and what can go wrong there, is for the modules that build on this.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar, TypeVar
from unittest.mock import patch

from tests.contract.engines import WallClock
from tests.crash.mutants import PROTOCOLS, careless
from topmast.adapters.engines.far import engine
from topmast.adapters.engines.far.engine import FarEngine
from topmast.model.job import Checkpoint, JobSpec, Resources, TaskGroup
from topmast.model.messages import Message, StartGang, TaskEvicted, TaskExited, TaskLost
from topmast.model.plan import Seat
from topmast.ports import Engine, Site

GANGS = 3
"""In each round."""
LEASE_S = 15.0
MARK = "CHAOS_GANG"
PATIENCE_S = 180.0
"""How long after everything was mended a gang may need to end."""
BODY = """
trap 'sleep 0.2; exit 9' TERM
mkdir "$CHAOS/$CHAOS_GANG.$RANK" 2>/dev/null || echo "$CHAOS_GANG.$RANK" >> "$CHAOS/twice"
for turn in $(seq 1 $CHAOS_TURNS); do sleep 0.2; done
"""
ENDS = (TaskExited, TaskLost, TaskEvicted)
Mend = Callable[[], None]
Lab = TypeVar("Lab")


@dataclass
class Result:
    """What is asked of a run; all but the first two must be 0."""

    rounds: int = 0
    attempts: int = 0
    bodies_twice: int = 0
    lost_acknowledged: int = 0
    told_dead_while_alive: int = 0

    @property
    def bad(self) -> int:
        return self.bodies_twice + self.lost_acknowledged + self.told_dead_while_alive


@dataclass
class Chaos(ABC):
    """An engine over a cluster, and what was seen."""

    engine_type: ClassVar[type[FarEngine]]
    faults: ClassVar[Mapping[str, Sequence[str]]]
    """Names of methods, by what they are done to: one of a kind at a time. A fault returns what
    mends it.
    """

    folder: Path
    random: random.Random
    result: Result = field(default_factory=Result)
    done: Counter[str] = field(default_factory=Counter)
    ordered: list[StartGang] = field(default_factory=list)
    """The gangs of this round, as far as they were ordered."""
    chosen: dict[str, list[str]] = field(default_factory=dict)
    """Those of the faults that this run has."""
    _ended: dict[tuple[str, int], str] = field(default_factory=dict)
    _stopped: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # --- what a cluster has ---------------------------------------------------------------------

    @property
    @abstractmethod
    def hosts(self) -> Sequence[str]:
        """Names, as in the fleet file."""

    @abstractmethod
    def make(self, folder: Path, site: Site) -> Engine:
        """An engine over it."""

    def prepare(self) -> None:
        """Called before each round."""
        return

    def mend(self) -> None:
        """Undo whatever was done, beyond what each fault mends."""
        return

    def choose(self, only: str) -> None:
        """Have no faults but these, by name with commas between them; empty: all."""
        wanted = {name for names in self.faults.values() for name in names}
        if only:
            wanted &= set(only.split(","))
        chosen = {kind: [f for f in names if f in wanted] for kind, names in self.faults.items()}
        self.chosen = {kind: names for kind, names in chosen.items() if names}

    # --- the engine -----------------------------------------------------------------------------

    def open(self) -> None:
        """Start Topmast's side."""
        site = Site(WallClock(), lambda *_: None, lambda _: None, self.folder / "checkpoints")
        self.engine = self.make(self.folder / "engine", site)
        self.engine.open(self.heard)
        # What was ordered, and not recorded when Topmast ended: its cluster manager sees that too.
        for gang in self.ordered:
            if any((gang.job, seat.rank) not in self._ended for seat in gang.seats):
                self.engine.start_gang(gang)

    def heard(self, message: Message) -> None:
        """News of the engine: what is told dead must be dead by then."""
        if not isinstance(message, ENDS):
            return
        task = (message.job, message.rank)
        alive = living(str(self.folder), message.job, message.rank)
        if not isinstance(message, TaskExited) and message.job not in self._stopped:
            self._stopped.add(message.job)  # as a cluster manager does: a gang ends together
            self.engine.stop(message.job, message.epoch, 0.0)
        with self._lock:
            if alive:
                self.result.told_dead_while_alive += 1
                note(f"{task} was told dead by {message} while {alive} live")
            why = getattr(message, "error", "") or getattr(message, "why", "")
            self._ended.setdefault(task, f"{type(message).__name__} {why[:70]}".strip())

    # --- rounds ---------------------------------------------------------------------------------

    def play(self, number: int) -> None:
        """One round: gangs and faults at once, then mended, then every gang ends."""
        self.prepare()
        jobs = [self.gang(f"r{number}x{index}") for index in range(GANGS)]
        count = min(self.random.choice((1, 1, 2)), len(self.chosen))
        kinds = self.random.sample(sorted(self.chosen), count)
        chosen = [self.random.choice(self.chosen[kind]) for kind in kinds]
        began_s, menders = time.monotonic(), []
        note(f"round {number}: {', '.join(chosen)}")
        self.ordered = []
        for gang in jobs:
            self.ordered.append(gang)
            self.engine.start_gang(gang)
            time.sleep(self.random.uniform(0.0, 0.3))
        for fault in chosen:
            time.sleep(self.random.uniform(0.0, 1.5))
            self.done[fault] += 1
            menders.append(getattr(self, fault)())
        for gang in jobs:
            if self.random.random() < 0.3:
                self.engine.stop(gang.job, gang.epoch, self.random.choice((0.0, 1.0, 5.0)))
        time.sleep(self.random.uniform(0.5, 4.0))
        for mend in menders:
            mend()
        self.mend()
        self.end(jobs)
        self.result.rounds += 1
        ends = Counter(self._ended.get((g.job, s.rank), "none") for g in jobs for s in g.seats)
        took_s = time.monotonic() - began_s
        note(f"  {took_s:.0f} s; {dict(ends)}")

    def gang(self, job: str) -> StartGang:
        """A gang of one to four tasks on some hosts."""
        hosts = self.random.sample(self.hosts, self.random.randint(1, 2))
        tasks = len(hosts) * self.random.randint(1, 2)
        groups = (TaskGroup("trainer", tasks, Resources(), BODY),)
        envs = {
            MARK: job, "CHAOS": str(self.folder / "evidence"),
            "CHAOS_TURNS": str(self.random.randint(5, 40)),
        }  # fmt: skip
        spec = JobSpec(job, groups, envs=envs, checkpoint=Checkpoint(grace_s=3.0))
        seats = tuple(
            Seat("trainer", rank, hosts[rank % len(hosts)], (rank,)) for rank in range(tasks)
        )
        self.result.attempts += 1
        return StartGang(job, 1, spec, "east", "lab", seats)

    def end(self, jobs: list[StartGang]) -> None:
        """Every task is told to have ended."""
        tasks = [(gang.job, seat.rank) for gang in jobs for seat in gang.seats]
        until_s = time.monotonic() + PATIENCE_S
        while untold := [task for task in tasks if task not in self._ended]:
            if time.monotonic() > until_s:
                self.result.lost_acknowledged += len({job for job, _ in untold})
                note(f"not told: {untold}")
                for gang in jobs:
                    self.engine.stop(gang.job, gang.epoch, 0.0)
                return
            time.sleep(0.1)

    def count(self) -> None:
        """What tasks wrote down of others of the same name."""
        twice = self.folder / "evidence" / "twice"
        self.result.bodies_twice = len(twice.read_text().splitlines()) if twice.exists() else 0

    # --- faults that every cluster knows --------------------------------------------------------

    def topmast_anew(self) -> Mend:
        self.engine.close()
        time.sleep(self.random.uniform(0.0, 2.0))
        self.open()
        return nothing

    def runner_killed(self) -> Mend:
        for pid in self._some_runner():
            send(pid, signal.SIGKILL)
        return nothing

    def runner_stands_still(self) -> Mend:
        chosen = self._some_runner()
        for pid in chosen:
            send(pid, signal.SIGSTOP)

        def mend() -> None:
            for pid in chosen:
                send(pid, signal.SIGCONT)

        return mend

    def _some_runner(self) -> list[int]:
        """A process of a runner that works for us, its own supervisors among them."""
        ours = f"tm-{self.engine.__dict__['_identity'].fleet}-"
        found = [
            pid
            for pid, env in environments()
            if is_runner(pid) and any(ours.encode() in word for word in [*env, command(pid)])
        ]
        return self.random.sample(found, min(1, len(found)))


def nothing() -> None:
    """Nothing is to be mended."""


# --- processes ----------------------------------------------------------------------------------


def living(folder: str, job: str, rank: int) -> list[int]:
    """The processes of a task of the run in that folder, but for zombies."""
    words = (f"CHAOS={folder}/evidence", f"{MARK}={job}", f"RANK={rank}")
    marks = {word.encode() for word in words}
    return [pid for pid, env in environments() if marks <= set(env) and not is_runner(pid)]


def is_runner(pid: int) -> bool:
    """Whether it is a runner, and no task."""
    program, _, rest = command(pid).partition(b"\0")
    return b"python" in program and b"runner-" in rest  # srun has the same words


def environments() -> Iterator[tuple[int, list[bytes]]]:
    """The variables of every living process of this machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (text := read(entry / "environ")):
            yield int(entry.name), text.split(b"\0")


def command(pid: int) -> bytes:
    """The arguments of a process."""
    return read(Path(f"/proc/{pid}/cmdline"))


def read(file: Path) -> bytes:
    """A file of /proc; empty when its process is gone."""
    with suppress(OSError):
        return file.read_bytes()
    return b""


def send(pid: int, what: signal.Signals) -> None:
    """A signal to a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, what)


# --- the command --------------------------------------------------------------------------------


def note(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def run(
    arguments: list[str], about: str | None, missing: Callable[[], str],
    lab: Callable[[Path], AbstractContextManager[Lab]],
    chaos: Callable[[Lab, Path, random.Random], Chaos],
) -> int:  # fmt: skip
    """Play rounds; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", default="", metavar="FAULT,...", help="no faults but these")
    parser.add_argument(
        "--mutant",
        choices=PROTOCOLS,
        default="",
        help="with an engine that breaks a promise: that must be seen",
    )
    parser.add_argument(
        "--credulous", dest="mutant", action="store_const", const="credulous",
        help="the same as --mutant credulous: second bodies must be seen",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    if reason := missing():
        print(f"error: {reason}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended
    note(f"seed {given.seed}")
    folder = Path(tempfile.mkdtemp(prefix="topmast-chaos-"))
    (folder / "evidence").mkdir()
    with ExitStack() as stack:
        stack.enter_context(patch.object(engine, "Protocol", PROTOCOLS[given.mutant]))
        made = stack.enter_context(lab(folder / "lab"))
        player = chaos(made, folder, random.Random(given.seed))
        if given.mutant == "credulous":
            twice = careless(player.engine_type.launcher_type)
            stack.enter_context(patch.object(player.engine_type, "launcher_type", twice))
        player.choose(given.only)
        player.open()
        try:
            for number in range(given.rounds):
                player.play(number)
        finally:
            player.engine.close()
            player.count()
    note(f"faults: {dict(sorted(player.done.items()))}")
    print(json.dumps(asdict(player.result)))
    if not player.result.bad:
        shutil.rmtree(folder)
    return 1 if player.result.bad else 0
