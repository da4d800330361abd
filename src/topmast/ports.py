"""What Topmast wants from the outside world; `adapters` has the implementations.

A port is handed in at the composition root (`app`). Nothing below it knows which one it got.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Protocol

from msgspec import Struct

from topmast.model import messages as m
from topmast.model.engines import Capability as Capability
from topmast.model.engines import Deadlines as Deadlines
from topmast.model.fleet import ClusterSpec, HostSpec

Post = Callable[[m.Message], None]
"""Hands a message to the runtime from any thread; returns at once."""


class Clock(Protocol):
    """Seconds since the UTC epoch when live, since 0 when virtual."""

    def now(self) -> float:
        """The time, in seconds."""
        ...


class Decision(Struct, frozen=True, gc=False):
    """What a machine made of one event: facts to journal, messages to send, an answer if asked."""

    facts: Sequence[Struct] = ()
    sends: Sequence[m.Send] = ()
    reply: Any = None


class Machine(Protocol):
    """A deterministic state machine without I/O (docs/internals: five kinds of them).

    ``handle`` decides: it changes the state only through facts, which it returns. ``apply`` replays
    recorded facts and decides nothing, so that an old journal means the same to a new version.
    """

    def handle(self, event: m.Message, now: float) -> Decision:
        """Take one event; returns the facts it led to and the messages it causes."""
        ...

    def apply(self, event: m.Message, fact: Struct, at_s: float) -> None:
        """Change the state by one fact recorded for ``event`` at ``at_s``."""
        ...

    def next_wakeup_s(self) -> float | None:
        """When the machine wants a ``Wake``; None when only an event can change anything."""
        ...

    def snapshot(self) -> bytes:
        """The whole durable state."""
        ...

    def restore(self, blob: bytes) -> None:
        """Take up the state that ``snapshot`` wrote."""
        ...


class Record(Struct, frozen=True):
    """One journal entry: an event of one machine and the facts decided. Both JSON."""

    seq: int
    at_s: float
    machine: str
    event: bytes
    facts: bytes


class HistoryRow(Struct, frozen=True):
    """A line of the audit log, shown to people."""

    at_s: float
    job: str
    kind: str
    text: str
    detail: str = "{}"
    """A JSON object."""


class AttemptRow(Struct, frozen=True):
    """One finished attempt, for accounting. GPUs in thousandths, times in seconds."""

    job: str
    epoch: int
    tenant: str
    user: str
    region: str
    cluster: str
    model: str
    gpus_milli: int
    start_s: float
    end_s: float
    kept_s: float
    outcome: str
    labels: str = ""
    """Of the job, as JSON; empty: it has none."""


class UsageDay(Struct, frozen=True):
    """What the attempts of forgotten jobs used on one day."""

    day_s: float
    """When it began, in UTC."""
    tenant: str
    user: str
    region: str
    cluster: str
    model: str
    attempts: int
    """Those that ended on it."""
    held_gpu_s: float
    kept_gpu_s: float


class JobRow(Struct, frozen=True):
    """A finished job, as long as it is not forgotten."""

    job: str
    number: int
    finish_s: float
    view: str
    """The JSON shown to people."""


class ActRow(Struct, frozen=True):
    """A line of the audit log: what a principal did, or was refused."""

    actor: str
    """The subject of the principal; empty for a request without proof of one."""
    via: str
    """The kind of proof."""
    address: str
    request: str
    verb: str
    object: str = ""
    tenant: str = ""
    """That of the object; empty for what no tenant owns."""
    before: str = ""
    """The state of the object, as JSON; empty where it has none to tell."""
    after: str = ""
    outcome: str = "done"
    """``done``, ``unchanged``, or ``refused`` with the reason behind it."""
    at_s: float = 0.0
    id: int = 0
    """Given by the database."""


class Act(Struct, frozen=True):
    """An act before it is done: the row as far as it is known, and how to learn the rest of it."""

    row: ActRow
    look: Callable[[], str] | None = None
    """Tells the state of the object; asked before and after, between two commits."""
    named: Callable[[Any], tuple[str, str]] | None = None
    """The object that an answer is about, and the tenant of it."""


class ActFilter(Struct, frozen=True):
    """Which lines of the audit log are wanted; an empty field means all."""

    actor: str = ""
    verb: str = ""
    object: str = ""
    outcome: str = ""
    """How it begins."""
    tenants: Sequence[str] | None = None
    """Only acts about these tenants."""
    since_s: float | None = None
    until_s: float | None = None
    before_id: int | None = None
    limit: int = 100


class Audit(Struct, frozen=True):
    """Rows for the audit tables, committed with the records that caused them."""

    history: Sequence[HistoryRow] = ()
    attempts: Sequence[AttemptRow] = ()
    jobs: Sequence[JobRow] = ()
    acts: Sequence[ActRow] = ()


class Snapshot(Struct, frozen=True):
    """The state of every machine at one point of the journal."""

    seq: int
    """The last record that is included."""
    at_s: float
    machines: Mapping[str, bytes]


class Journal(Protocol):
    """Durable, ordered storage. A method that returns has reached the disk; or else it raises."""

    @property
    def epoch(self) -> int:
        """Higher than in every process that wrote before; 0 where nothing is written."""
        ...

    def append(self, records: Sequence[Record], audit: Audit) -> None:
        """Commit records (``seq`` increasing) and audit rows in one transaction, then fsync."""
        ...

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Store a snapshot; drop old and surplus snapshots, and records that none of the rest
        needs.
        """
        ...

    def latest_snapshot(self, until_s: float | None = None) -> Snapshot | None:
        """The newest snapshot (taken at or before ``until_s``)."""
        ...

    def records(self, after: int = 0, until_s: float | None = None) -> Iterator[Record]:
        """Records with ``seq`` > ``after``, in order (up to time ``until_s``)."""
        ...

    def history(self, job: str, limit: int = 1000) -> list[HistoryRow]:
        """The audit log of one job, oldest first."""
        ...

    def history_count(self) -> int:
        """A number that grows with every line of the audit log, by one at least."""
        ...

    def attempts(self, since_s: float, until_s: float) -> list[AttemptRow]:
        """Finished attempts that overlap a period, ordered by start, job, epoch."""
        ...

    def usage_days(self, since_s: float, until_s: float) -> list[UsageDay]:
        """What forgotten jobs used, by the days that overlap a period."""
        ...

    def attempts_of(self, job: str) -> list[AttemptRow]:
        """Finished attempts of one job by epoch."""
        ...

    def acts(self, wanted: ActFilter) -> list[ActRow]:
        """Lines of the audit log, the newest first."""
        ...

    def finished_job(self, job: str) -> JobRow | None:
        """One finished job."""
        ...

    def finished_jobs(self, before_number: int | None = None, limit: int = 100) -> list[JobRow]:
        """Finished jobs, newest number first, for listing with a cursor."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


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
    posted only when no process of the task is alive; tasks survive the end of this process.

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
    def read_stored_log(
        cls, folder: Path, job: str, epoch: int, rank: int, offset: int, limit: int
    ) -> LogPage | None:
        """The same from the folder of a cluster that left the fleet, as far as it is there."""
        return None

    @classmethod
    def stored_epochs(cls, folder: Path) -> dict[str, int]:
        """The newest epoch of each job of which a cluster's folder has a trace."""
        return {}

    def host_process(self, host: str) -> tuple[int, bool] | None:
        """The process on this machine that stands for a host, and whether it is halted, if any."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Stop watching; tasks go on."""


class Mover(Orders, ABC):
    """Copies datasets between region stores, and deletes them.

    Posts `CopyDone`, `CopyFailed`, `CopyProgress`; `ReplicaDeleted`, `DeletionFailed`.
    """

    orders: ClassVar[Calls] = {
        m.StartCopy: lambda mover, order: mover.start_copy(order),
        m.DeleteReplica: lambda mover, order: mover.delete_replica(
            order.dataset, order.region, order.path
        ),
    }

    @abstractmethod
    def open(self, post: Post) -> None:
        """Begin; called once."""

    @abstractmethod
    def start_copy(self, order: m.StartCopy) -> None:
        """Copy in the background; resumes what an earlier run of the same copy left."""

    @abstractmethod
    def delete_replica(self, dataset: str, region: str, path: str) -> None:
        """Delete a dropped replica's objects in the background; a repetition goes on with it."""

    @abstractmethod
    def measure(self, region: str, path: str) -> int:
        """Bytes of the objects under ``path`` in the region's store (0: nothing there)."""

    @abstractmethod
    def put_directory(self, region: str, path: str, source: Path) -> int:
        """Upload a local directory as a dataset; returns its bytes. Blocks."""

    @abstractmethod
    def replica(self, region: str, path: str) -> Replica:
        """Where the region's store has the dataset at ``path``, if it is there."""

    @abstractmethod
    def close(self) -> None:
        """Stop; unfinished copies resume at the next start."""
