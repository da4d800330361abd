"""What the contract of engines needs: a rig for each engine, and a place where its news arrive."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
from msgspec import UNSET

from tests.support.processlauncher import ProcessEngine, ProcessOptions
from topmast.adapters.engines.local.engine import LocalEngine
from topmast.adapters.engines.local.options import LocalOptions
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.job import Checkpoint, JobSpec, Resources, TaskGroup
from topmast.model.messages import (
    Message,
    StartGang,
    TaskEvicted,
    TaskExited,
    TaskList,
    TaskLost,
    TaskStarted,
)
from topmast.model.plan import Seat
from topmast.ports import Engine, Replica, Site

PATIENCE_S = 30.0
HOSTS = ("h0", "h1")
M = TypeVar("M", bound=Message)


class WallClock:
    """The time of day."""

    def now(self) -> float:
        return time.time()


@dataclass
class News:
    """Everything an engine posted, and waiting for what it will."""

    messages: list[Message] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def post(self, message: Message) -> None:
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    def all(self, kind: type[M], **wanted: object) -> list[M]:
        with self._changed:
            return [
                message
                for message in self.messages
                if isinstance(message, kind)
                and all(getattr(message, name) == value for name, value in wanted.items())
            ]

    def wait(self, kind: type[M], count: int = 1, **wanted: object) -> M:
        """The newest of at least `count` such messages."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            found = self.all(kind, **wanted)
            if len(found) >= count:
                return found[-1]
            with self._changed:
                self._changed.wait(0.2)
            assert time.monotonic() < until_s, f"no {kind.__name__} {wanted} in {self.messages}"

    def clear(self) -> None:
        with self._changed:
            self.messages.clear()


def eventually(what: Callable[[], object], story: str) -> None:
    """Wait until something is so."""
    until_s = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until_s, story
        time.sleep(0.01)


def order(job: str, run: str, tasks: int = 1, *, epoch: int = 1, **spec: object) -> StartGang:
    """A gang of one group; its ranks take turns on the hosts."""
    setup = str(spec.pop("setup", ""))
    groups = (TaskGroup("trainer", tasks, Resources(), run, setup),)
    defaults: dict[str, object] = {"checkpoint": Checkpoint(grace_s=20.0)}
    job_spec = JobSpec("a job", groups, **{**defaults, **spec})  # type: ignore[arg-type]
    seats = tuple(Seat("trainer", rank, HOSTS[rank % len(HOSTS)], (rank,)) for rank in range(tasks))
    return StartGang(job, epoch, job_spec, "east", "east-1", seats)


@dataclass
class Rig:
    """One engine under test, with its outside world below one folder."""

    folder: Path
    make: Callable[["Rig"], Engine]
    datasets: dict[str, Path | Replica] = field(default_factory=dict)
    blobs: dict[str, Path] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    """Where hosts have folders of this machine, where that is tried."""
    checkpoint_store: str = ""
    """The URL of a bucket for checkpoints, where that is tried."""
    leader: int = 0
    """The epoch of the leader that opens the engine, where that is tried."""
    broken: list[str] = field(default_factory=list)
    """News of ends that came while a process of the task was alive."""
    news: News = field(default_factory=News)
    engine: Engine = field(init=False)

    def open(self) -> None:
        self.news = News()
        self.engine = self.make(self)
        self.engine.open(self._hear)

    def _hear(self, message: Message) -> None:
        """Dead means dead: at each news of an end no process of the task may be alive."""
        if isinstance(message, TaskExited | TaskLost | TaskEvicted):
            task = (message.job, message.epoch, message.rank)
            with contextlib.suppress(OSError):  # a test took all file descriptors
                self.broken += [f"{message}: {pid} is alive" for pid in alive_of(self, *task)]
        self.news.post(message)

    def reopen(self) -> None:
        """As if Topmast were started anew."""
        self.engine.close()
        self.open()

    def end_of(self, job: str, rank: int = 0) -> TaskExited:
        return self.news.wait(TaskExited, job=job, rank=rank)

    def started(self, job: str, rank: int = 0) -> TaskStarted:
        return self.news.wait(TaskStarted, job=job, rank=rank)

    def lost(self, job: str, rank: int = 0) -> TaskLost:
        return self.news.wait(TaskLost, job=job, rank=rank)

    def truth(self) -> TaskList:
        before = len(self.news.all(TaskList))
        self.engine.list_tasks()
        return self.news.wait(TaskList, before + 1)

    def log(self, job: str, rank: int = 0, epoch: int = 1) -> str:
        page = self.engine.read_log(job, epoch, rank, 0, 1 << 20)
        return page.data.decode() if page else ""

    def says(self, job: str, word: str, rank: int = 0) -> None:
        """Wait until the task has written a word to its log."""
        eventually(lambda: word in self.log(job, rank), f"no {word!r} in the log of {job}")


def local(rig: Rig) -> LocalEngine:
    """The local engine with two hosts."""
    options = LocalOptions(host_return_s=0.2, progress_s=0.05, linger_s=1.0)
    return local_with(rig, options, HOSTS)


def local_with(rig: Rig, options: LocalOptions, names: Sequence[str]) -> LocalEngine:
    """The local engine with these options and hosts."""
    hosts = tuple(HostSpec(name, "H100", 8) for name in names)
    cluster = ClusterSpec("east-1", hosts, paths=rig.paths or UNSET)
    return LocalEngine(cluster, rig.folder / "engine", site_of(rig), options)


def far(rig: Rig) -> ProcessEngine:
    """A far engine with two hosts, its runners processes of this machine."""
    return far_with(rig, lease_s=60.0)


def far_with(rig: Rig, **options: Any) -> ProcessEngine:
    """The same with these options."""
    hosts = tuple(HostSpec(name, "H100", 8) for name in HOSTS)
    scheduler = os.fspath(rig.folder / "scheduler" / "parts")
    cluster = ClusterSpec("east-1", hosts, "far", paths=rig.paths or UNSET)
    given = ProcessOptions(folder=scheduler, poll_s=0.2, **options)
    return ProcessEngine(cluster, rig.folder / "engine", site_of(rig), given)


def site_of(rig: Rig) -> Site:
    """What every engine is given of its process."""

    def replica(dataset: str, region: str) -> Replica | None:
        found = rig.datasets.get(dataset)
        if isinstance(found, Path):
            return Replica(str(found.parent), found.name)
        return found

    folder = rig.folder / "checkpoints"
    return Site(
        WallClock(), replica, rig.blobs.get, folder, checkpoint_store=rig.checkpoint_store,
        leader=rig.leader,
    )  # fmt: skip


ENGINES: dict[str, Callable[[Rig], Engine]] = {"local": local, "far": far}
"""What makes the engine of a rig, by name: a new engine is held to the contract by a row here.

One that needs a laboratory of its own (Slurm, hosts behind SSH) takes the tests of `test_engine`
into a module of its own, with a fixture ``rig`` that is `opened` with what makes its engine.
"""


@contextmanager
def opened(make: Callable[[Rig], Engine], folder: Path, kind: type[Rig] = Rig) -> Iterator[Rig]:
    """A rig that leaves no process behind."""
    rig = kind(folder, make)
    rig.open()
    try:
        yield rig
        assert not rig.broken
    finally:
        rig.engine.close()
        for process in of_folder(folder):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def alive_of(rig: Rig, job: str, epoch: int | None = None, rank: int | None = None) -> list[int]:
    """Living processes of the tasks of a job of this rig, of one attempt or task if that is given."""
    own = str(rig.folder / "checkpoints" / job)
    wanted = {"TOPMAST_EPOCH": epoch, "TOPMAST_RANK": rank}
    found = []
    for process in psutil.process_iter():
        try:
            about, dead = process.environ(), process.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        folder = about.get("TOPMAST_CHECKPOINT_DIR", "")
        mine = (folder == own or folder.startswith(f"{own}/")) and "TOPMAST_TASK" in about
        one = all(value is None or about.get(name) == str(value) for name, value in wanted.items())
        if mine and one and not dead:
            found.append(process.pid)
    return found


def of_folder(folder: Path) -> list[psutil.Process]:
    """Living processes whose arguments or environment name the folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            words = [*process.cmdline(), *process.environ().values()]
            if any(str(folder) in word for word in words):
                found.append(process)
    return found


def scripts_of(folder: Path) -> list[psutil.Process]:
    """Processes of tasks, without agents and supervisors."""
    return [
        process
        for process in of_folder(folder)
        if not any("agent" in word or "runner.py" in word for word in _cmdline(process))
    ]


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline() or ["agent"]  # one that is ending has none
    except psutil.Error:
        return ["agent"]


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def kill(pid: int) -> None:
    """SIGKILL."""
    os.kill(pid, signal.SIGKILL)
