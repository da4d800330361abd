"""Clusters: what runs gangs on the hosts of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Protocol

from msgspec import Struct

from topmast.model import messages as m
from topmast.model.engines import Capability, Deadlines
from topmast.model.exec_views import ExecPage, ExecSpec
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.ports.machines import Clock, Post


class LogPage(Struct, frozen=True):
    """A piece of a task's output."""

    data: bytes
    next_offset: int
    """Of the byte after the last of ``data``."""
    complete: bool
    """More was not written so far; of a task that has ended, more will never come."""


class Replica(Struct, frozen=True):
    """Where a region has a dataset."""

    store: str
    """Of the region: a directory, or the URL of an object store."""
    path: str
    """The dataset's folder in it."""

    @property
    def folder(self) -> Path | None:
        """The folder of this machine with the files, when the store is a directory."""
        return None if "://" in self.store else Path(self.store) / self.path


class Site(Struct, frozen=True):
    """What an engine is given of the process that it belongs to."""

    clock: Clock
    replica: Callable[[str, str], Replica | None]
    """Where a region has a dataset; None when it has no replica there."""
    blob_path: Callable[[str], Path | None]
    """Where the archive of a work folder is, by its digest."""
    checkpoints: Path
    """One folder for all clusters: a job goes on from its checkpoint in whichever it runs next."""
    leads: Callable[[], bool] = lambda: True
    """Whether this process is sure to lead; while it is not, an engine changes nothing."""
    checkpoint_store: str = ""
    """The URL of a bucket in the place of that folder."""
    leader: int = 0
    """The epoch of the leader that orders come from; 0: it is not known before the first order."""


class Exec(Protocol):
    """A command beside a task; any thread may ask. Nothing here waits."""

    @property
    def id(self) -> str:
        """Tells it from all others, and cannot be guessed."""
        ...

    @property
    def look_s(self) -> float:
        """How often to look at one that rings no bell; 0: it does."""
        ...

    def page(self, stdout: int, stderr: int, most_bytes: int) -> ExecPage:
        """What it has written from these offsets on; what is before them is forgotten.

        That is also a sign of life: a command that is not asked about for long is ended.
        """
        ...

    def write(self, offset: int, data: bytes, *, last: bool) -> int:
        """Give it input from an offset on; returns from where on it wants more.

        ``last``: there is none after this.
        """
        ...

    def end(self) -> None:
        """SIGHUP to it, and SIGKILL soon after."""
        ...

    def on_news(self, bell: Callable[[], None]) -> None:
        """Call ``bell`` once, from any thread, when a page has more than now or input is wanted."""
        ...


class NoOptions(Struct, frozen=True):
    """The options of an engine that has none."""


Calls = Mapping[type[m.Message], Callable[[Any, Any], None]]


class Orders:
    """Carries out orders: for each type of message ``orders`` has the call that does it."""

    orders: ClassVar[Calls]

    def order(self, message: m.Message) -> None:
        """Carry out one order."""
        self.orders[type(message)](self, message)


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """It will work, and perhaps not as is wanted."""
    FAULT = "fault"
    """It cannot work."""


class Finding(Struct, frozen=True):
    """One thing that was looked at."""

    level: Level
    what: str
    """What was looked at, in a few words."""
    detail: str
    remedy: str = ""


class EngineOrders(Orders, ABC):
    """What a cluster manager orders. Every method returns soon."""

    orders: ClassVar[Calls] = {
        m.StartGang: lambda engine, order: engine.start_gang(order),
        m.StartGangs: lambda engine, order: engine.start_each(order),
        m.StopTasks: lambda engine, order: engine.stop(order.job, order.epoch, order.grace_s),
        m.SuspendGang: lambda engine, order: engine.suspend(order.job, order.epoch),
        m.ResumeGang: lambda engine, order: engine.resume(order.job, order.epoch),
        m.ReadProgress: lambda engine, order: engine.read_progress(order.job, order.epoch),
        m.ListTasks: lambda engine, order: engine.list_tasks(),
        m.SetHosts: lambda engine, order: engine.set_hosts(order.hosts),
    }

    @abstractmethod
    def start_gang(self, gang: m.StartGang) -> None:
        """Start every task; posts `TaskStarted` for each, or `TaskLost` for one that cannot."""

    def start_each(self, order: m.StartGangs) -> None:
        """Start several gangs, as one after the other."""
        for gang in order.gangs:
            self.start_gang(gang)

    @abstractmethod
    def stop(self, job: str, epoch: int, grace_s: float) -> None:
        """SIGTERM to all processes, SIGKILL after the grace; also ends suspended tasks."""

    def suspend(self, job: str, epoch: int) -> None:
        """Halt every process of the attempt where it stands: `Capability.SUSPEND`."""
        raise NotImplementedError(f"{type(self).__name__} cannot {Capability.SUSPEND}")

    def resume(self, job: str, epoch: int) -> None:
        """Let a suspended attempt go on: `Capability.SUSPEND`."""
        raise NotImplementedError(f"{type(self).__name__} cannot {Capability.SUSPEND}")

    def read_progress(self, job: str, epoch: int) -> None:
        """Post `ProgressReport` with the last step of the attempt, if it reported any."""
        return

    @abstractmethod
    def list_tasks(self) -> None:
        """Post a `TaskList`."""

    @abstractmethod
    def set_hosts(self, hosts: Sequence[HostSpec]) -> None:
        """Have these hosts from now on, and no others; posts `HostUp` for each new usable one."""


class Engine(EngineOrders):
    """Runs gangs on the hosts of one cluster. Every method returns soon; news comes by ``post``.

    Contract (tests/contract): `start_gang` twice for one attempt starts it once, also across a
    restart of Topmast and after the attempt has ended; `TaskExited`, `TaskLost` and `HostDown` are
    posted only when no process of the task is alive; tasks survive the end of this process. A
    `TaskExited` says whether a stop had been ordered by then: a restored journal may not know.

    What not every engine can do has a default. A cluster is refused if its policies need more than
    the ``capabilities`` of its engine, and jobs that need more are not placed there. Without
    `Capability.EXACT_SLOTS` a seat says how many GPUs its task gets, and not which.

    Besides of tasks and hosts that go and come, an engine may tell `TaskEvicted` in the place of
    `TaskLost`, `TaskPreparing`, and `HostClosed` and `HostOpened`; its `TaskList` names each host
    that is closed.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    needs_machine: ClassVar[bool] = False
    """Its tasks are found on this machine alone, and not wherever its folder can be read."""
    outlives_folder: ClassVar[bool] = False
    """Its tasks run on elsewhere when its folder is lost: none may start beside them unasked."""
    keeps_in_buckets: ClassVar[bool] = False
    """Whether checkpoints can be in a bucket (``checkpoint_store``)."""
    deadlines: ClassVar[Deadlines] = Deadlines()
    """How long things take in a cluster that sets nothing else."""
    options_type: ClassVar[type[Struct]] = NoOptions
    """What a fleet file may say below ``options`` of a cluster; each field has a default."""

    def __init__(self, cluster: ClusterSpec, folder: Path, site: Site, options: Any) -> None:
        """``folder`` is this cluster's own; ``options`` is of the ``options_type``."""
        self._cluster = cluster
        self._folder = folder
        self._site = site
        self._options = options

    @abstractmethod
    def open(self, post: Post) -> None:
        """Adopt what runs already and begin to post news; called once, before anything else."""

    def order(self, message: m.Message, leader: int = 0) -> None:
        """Carry out one order of the leader of that epoch, unless a later one gave orders."""
        if self.admits(leader):
            super().order(message)

    @abstractmethod
    def admits(self, leader: int) -> bool:
        """Whether no leader of a higher epoch ever gave orders; remembered across restarts."""

    @abstractmethod
    def read_log(self, job: str, epoch: int, rank: int, offset: int, limit: int) -> LogPage | None:
        """At most ``limit`` bytes of the task's output from ``offset`` on; from any thread.

        None when there is no output (yet). Raises NotFound when it cannot be read.
        """

    @classmethod
    def examine(cls, cluster: ClusterSpec, options: Any) -> tuple[Finding, ...]:
        """Ask a cluster whether it is as the fleet file says; nothing is changed there.

        It needs no server. Never raises for what it finds.
        """
        return ()

    @classmethod
    def at_odds(cls, options: Any) -> Iterator[tuple[str, str, str]]:
        """Options that do not go together: one of them, why, and what to do."""
        return iter(())

    @classmethod
    def addresses(cls, cluster: ClusterSpec, options: Any) -> dict[str, str]:
        """Where hosts are reached, by host, as far as that tells one machine from another.

        A fleet file in which two hosts have the same is refused: option ``address.HOST`` says it.
        """
        return {}

    @classmethod
    def read_stored_log(
        cls, folder: Path, job: str, epoch: int, rank: int, offset: int, limit: int
    ) -> LogPage | None:
        """The same from the folder of a cluster that left the fleet, as far as it is there."""
        return None

    @classmethod
    def stored_epochs(cls, folder: Path) -> dict[str, int]:
        """The newest epoch of each job of which a cluster's folder has a trace."""
        return {}

    def execute(self, spec: ExecSpec) -> Exec:
        """Begin a command beside a task that runs: `Capability.EXEC`. From any thread.

        It ends with its task at the latest, and before the end of that is told; and with this
        process. Raises NotFound if no such task runs here, TooMany.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot {Capability.EXEC}")

    def host_process(self, host: str) -> tuple[int, bool] | None:
        """The process on this machine that stands for a host, and whether it is halted, if any."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Stop watching; tasks go on."""
