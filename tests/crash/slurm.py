"""Gangs on a real Slurm cluster that goes wrong in every way, and what was promised of them.

    python -m tests.crash.slurm --rounds 200 --seed 7

In each round a few gangs start while one or two faults happen: the controller is killed, hangs, or
comes back with an old state; daemons of hosts are killed or stand still; root cancels, requeues,
drains and sets down; runners are killed or stand still; Topmast is started anew. Then all is
mended, and every gang has to end. Each task writes down that it began, and has a mark in its
environment: a second one of a task, and one that lives when it was told dead, are seen at once.
Progress goes to stderr; the last line on stdout is the result, as JSON.
"""

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
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.contract.engines import WallClock
from tests.support.slurmlab import SlurmCluster, environments, missing, slurm_cluster
from topmast.adapters.engines.far.slurm import SlurmEngine, SlurmOptions
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.job import Checkpoint, JobSpec, Resources, TaskGroup
from topmast.model.messages import Message, StartGang, TaskEvicted, TaskExited, TaskLost
from topmast.model.plan import Seat
from topmast.ports import Site

GANGS = 3
"""In each round."""
HOSTS = 4
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


@dataclass
class Result:
    """What is asked of a run; all but the first two must be 0."""

    rounds: int = 0
    attempts: int = 0
    bodies_twice: int = 0
    lost_acknowledged: int = 0
    told_dead_while_alive: int = 0


@dataclass
class Chaos:
    """A cluster, an engine over it, and what was seen."""

    lab: SlurmCluster
    folder: Path
    random: random.Random
    result: Result = field(default_factory=Result)
    faults: Counter[str] = field(default_factory=Counter)
    _ended: dict[tuple[str, int], str] = field(default_factory=dict)
    _stopped: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self) -> None:
        hosts = tuple(HostSpec(name, self.lab.gpu_type, 8) for name in self.lab.hosts)
        options = SlurmOptions(
            conf=str(self.lab.conf), poll_s=0.3, lease_s=LEASE_S, command_s=4.0
        )  # fmt: skip
        site = Site(WallClock(), lambda *_: None, lambda _: None, self.folder / "checkpoints")
        spec = ClusterSpec("lab", hosts, "slurm")
        self.engine = SlurmEngine(spec, self.folder / "engine", site, options)
        self.engine.open(self.heard)

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
        jobs = [self.gang(f"r{number}x{index}") for index in range(GANGS)]
        old = self.lab.saved_state() if self.random.random() < 0.5 else None
        kinds = self.random.sample(sorted(FAULTS), self.random.choice((1, 1, 2)))
        chosen = [self.random.choice(FAULTS[kind]) for kind in kinds]
        began_s, menders = time.monotonic(), []
        for gang in jobs:
            self.engine.start_gang(gang)
            time.sleep(self.random.uniform(0.0, 0.3))
        for fault in chosen:
            time.sleep(self.random.uniform(0.0, 1.5))
            self.faults[fault.__name__] += 1
            menders.append(fault(self, old))
        for gang in jobs:
            if self.random.random() < 0.3:
                self.engine.stop(gang.job, gang.epoch, self.random.choice((0.0, 1.0, 5.0)))
        time.sleep(self.random.uniform(0.5, 4.0))
        for mend in menders:
            mend()
        self.mend()
        self.end(jobs)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
        self.result.rounds += 1
        ends = Counter(self._ended.get((g.job, s.rank), "none") for g in jobs for s in g.seats)
        names, took_s = [fault.__name__ for fault in chosen], time.monotonic() - began_s
        note(f"round {number}: {', '.join(names)}; {took_s:.0f} s; {dict(ends)}")

    def gang(self, job: str) -> StartGang:
        """A gang of two to four tasks on some hosts."""
        hosts = self.random.sample(self.lab.hosts, self.random.randint(1, 2))
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

    def mend(self) -> None:
        """Whatever was done to the cluster is undone."""
        for host in self.lab.hosts:
            self.lab.run("scontrol", "update", f"NodeName={host}", "State=RESUME", check=False)
        self.lab.until(
            lambda: all(
                state.rstrip("*-") in ("idle", "mixed", "allocated", "completing")
                for state in self.lab.states().values()
            )
            and self.lab.states(),
            "hosts do not return", PATIENCE_S,
        )  # fmt: skip

    def end(self, jobs: list[StartGang]) -> None:
        """Every task is told to have ended."""
        tasks = [(gang.job, seat.rank) for gang in jobs for seat in gang.seats]
        until_s = time.monotonic() + PATIENCE_S
        while missing_ := [task for task in tasks if task not in self._ended]:
            if time.monotonic() > until_s:
                self.result.lost_acknowledged += len({job for job, _ in missing_})
                note(f"not told: {missing_}; {self.lab.jobs()}")
                for gang in jobs:
                    self.engine.stop(gang.job, gang.epoch, 0.0)
                return
            time.sleep(0.1)

    def count(self) -> None:
        """What tasks wrote down of others of the same name."""
        twice = self.folder / "evidence" / "twice"
        self.result.bodies_twice = len(twice.read_text().splitlines()) if twice.exists() else 0

    # --- faults: each returns what mends it -----------------------------------------------------

    def ours(self) -> list[str]:
        return [job for job, name, state, _ in self.lab.jobs() if state in ("PENDING", "RUNNING")]

    def runners(self) -> list[int]:
        """Processes of runners, their own supervisors among them."""
        return [
            pid
            for pid, _ in environments()
            if b"/runner-" in read(Path(f"/proc/{pid}/cmdline")) and self.is_of_lab(pid)
        ]

    def is_of_lab(self, pid: int) -> bool:
        return str(self.lab.folder).encode() in read(Path(f"/proc/{pid}/environ"))


Mend = Callable[[], None]
Fault = Callable[[Chaos, Path | None], Mend]


def nothing() -> None:
    """Nothing is to be mended."""


def controller_killed(chaos: Chaos, old: Path | None) -> Mend:
    chaos.lab.kill_controller()
    return chaos.lab.start_controller


def controller_killed_often(chaos: Chaos, old: Path | None) -> Mend:
    for _ in range(3):
        chaos.lab.kill_controller()
        chaos.lab.start_controller()
        time.sleep(chaos.random.uniform(0.0, 0.5))
    return nothing


def controller_hangs(chaos: Chaos, old: Path | None) -> Mend:
    chaos.lab.signal_controller(signal.SIGSTOP)
    return lambda: chaos.lab.signal_controller(signal.SIGCONT)


def controller_with_old_state(chaos: Chaos, old: Path | None) -> Mend:
    with suppress(AssertionError):
        chaos.lab.restart_with(old or chaos.lab.saved_state())
    return nothing


def daemon_killed(chaos: Chaos, old: Path | None) -> Mend:
    host = chaos.random.choice(chaos.lab.hosts)
    chaos.lab.kill_daemon(host)
    return lambda: chaos.lab.start_daemon(host)


def daemon_stands_still(chaos: Chaos, old: Path | None) -> Mend:
    host = chaos.random.choice(chaos.lab.hosts)
    chaos.lab.signal_daemon(host, signal.SIGSTOP)
    return lambda: chaos.lab.signal_daemon(host, signal.SIGCONT)


def cancelled_by_root(chaos: Chaos, old: Path | None) -> Mend:
    for job in chaos.ours():
        how = chaos.random.choice(((), ("--signal=KILL",), ("--full", "--signal=KILL")))
        chaos.lab.run("scancel", *how, job, check=False)
    return nothing


def requeued_by_root(chaos: Chaos, old: Path | None) -> Mend:
    for job in chaos.ours():
        chaos.lab.run("scontrol", "update", f"JobId={job}", "Requeue=1", check=False)
        chaos.lab.run("scontrol", "requeue", job, check=False)
    return nothing


def drained(chaos: Chaos, old: Path | None) -> Mend:
    host = chaos.random.choice(chaos.lab.hosts)
    chaos.lab.run("scontrol", "update", f"NodeName={host}", "State=DRAIN", "Reason=x", check=False)
    return nothing


def set_down(chaos: Chaos, old: Path | None) -> Mend:
    host = chaos.random.choice(chaos.lab.hosts)
    chaos.lab.run("scontrol", "update", f"NodeName={host}", "State=DOWN", "Reason=x", check=False)
    return nothing


def topmast_anew(chaos: Chaos, old: Path | None) -> Mend:
    chaos.engine.close()
    time.sleep(chaos.random.uniform(0.0, 2.0))
    chaos.open()
    return nothing


def runner_killed(chaos: Chaos, old: Path | None) -> Mend:
    for pid in chaos.random.sample(found := chaos.runners(), min(1, len(found))):
        send(pid, signal.SIGKILL)
    return nothing


def runner_stands_still(chaos: Chaos, old: Path | None) -> Mend:
    chosen = chaos.random.sample(found := chaos.runners(), min(1, len(found)))
    for pid in chosen:
        send(pid, signal.SIGSTOP)

    def mend() -> None:
        for pid in chosen:
            send(pid, signal.SIGCONT)

    return mend


FAULTS: dict[str, tuple[Fault, ...]] = {
    "controller": (
        controller_killed, controller_killed_often, controller_hangs, controller_with_old_state,
    ),
    "daemon": (daemon_killed, daemon_stands_still),
    "root": (cancelled_by_root, requeued_by_root, drained, set_down),
    "topmast": (topmast_anew,),
    "runner": (runner_killed, runner_stands_still),
}  # fmt: skip
"""By what they are done to: one of a kind at a time."""


# --- processes ----------------------------------------------------------------------------------


def living(folder: str, job: str, rank: int) -> list[int]:
    """The processes of a task of this run, but for zombies."""
    marks = {f"CHAOS={folder}/evidence".encode(), f"{MARK}={job}".encode(), f"RANK={rank}".encode()}
    return [
        pid
        for pid, env in environments()
        if marks <= set(env) and b"runner-" not in read(Path(f"/proc/{pid}/cmdline"))
    ]


def read(file: Path) -> bytes:
    """A file of /proc; empty when its process is gone."""
    with suppress(OSError):
        return file.read_bytes()
    return b""


def send(pid: int, what: signal.Signals) -> None:
    """A signal to a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, what)


def note(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Run; see above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--delay", default="1", help="batch_sched_delay; Slurm's default is 3")
    given = parser.parse_args(arguments)
    if reason := missing():
        print(f"error: {reason}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended
    note(f"seed {given.seed}")
    folder = Path(tempfile.mkdtemp(prefix="topmast-chaos-"))
    (folder / "evidence").mkdir()
    parameters = (f"SchedulerParameters=batch_sched_delay={given.delay}",)
    with slurm_cluster("lab", nodes=HOSTS, parameters=parameters) as lab:
        chaos = Chaos(lab, folder, random.Random(given.seed))
        chaos.open()
        try:
            for number in range(given.rounds):
                chaos.play(number)
        finally:
            chaos.engine.close()
            chaos.count()
    note(f"faults: {dict(sorted(chaos.faults.items()))}")
    print(json.dumps(asdict(chaos.result)))
    result = chaos.result
    bad = result.bodies_twice + result.lost_acknowledged + result.told_dead_while_alive
    if not bad:
        shutil.rmtree(folder)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
