"""What the clusters and their engines say to each other."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from topmast.model.fleet import HostSpec
from topmast.model.job import JobSpec
from topmast.model.messages.base import Message
from topmast.model.plan import Seat


class SetHosts(Message, frozen=True, tag="EquipCluster"):
    """From now on the cluster has these hosts and no others; the others run nothing any more."""

    hosts: tuple[HostSpec, ...]


class StartGang(Message, frozen=True):
    """Start the tasks of an attempt. Named after job and epoch: a repetition finds the first."""

    job: str
    epoch: int
    spec: JobSpec
    region: str
    cluster: str
    seats: tuple[Seat, ...]


class StartGangs(Message, frozen=True):
    """Start these gangs, each as by an order of its own, in this order."""

    gangs: tuple[StartGang, ...]


class StopTasks(Message, frozen=True):
    """End every process of the attempt. Harmless if it has ended."""

    job: str
    epoch: int
    grace_s: float
    """The time between SIGTERM and SIGKILL."""


class SuspendGang(Message, frozen=True):
    """Halt every process of the attempt where it stands. Harmless if it is halted."""

    job: str
    epoch: int


class ResumeGang(Message, frozen=True):
    """Let a suspended attempt continue. Harmless if it runs."""

    job: str
    epoch: int


class ReadProgress(Message, frozen=True, tag="AskPace"):
    """How far has the attempt come? Answered by ``ProgressReport``, if it has reported a step."""

    job: str
    epoch: int


class ListTasks(Message, frozen=True, tag="AskTruth"):
    """What do you run? Answered by ``TaskList``."""


class TaskReport(Struct, frozen=True):
    """The last of what a task reported with ``topmast.progress``."""

    step: int | None = None
    metrics: dict[str, float] = {}


class TaskStarted(Message, frozen=True):
    """The task's supervisor holds its lock for good: setup, if any, and then the script run now."""

    job: str
    epoch: int
    rank: int
    at_s: float


class TaskExited(Message, frozen=True):
    """The task ended with an exit status."""

    job: str
    epoch: int
    rank: int
    code: int
    """A signal N is 128 + N."""
    at_s: float
    report: TaskReport = TaskReport()
    error: str = ""
    stopped: bool | UnsetType = UNSET
    """It had been told to stop before: whatever its status, its work may not be done."""


UNPREPARED = "the host cannot be prepared: "
"""So begins the reason of a task that was lost while its host was made ready for it."""


class TaskLost(Message, frozen=True):
    """The task is gone without an exit status; nothing of it runs any more."""

    job: str
    epoch: int
    rank: int
    error: str
    blameless: bool | UnsetType = UNSET
    """Its host did not cause that: the next attempt may use it."""

    @property
    def unprepared(self) -> bool:
        """Whether nothing of it began, though its engine had told that it starts."""
        return self.error.startswith(UNPREPARED)


class TaskEvicted(Message, frozen=True):
    """The task was ended by the cluster's own people or scheduler; nothing of it runs any more.

    Preempted, evicted, timed out or cancelled there: neither the job nor the host is at fault.
    """

    job: str
    epoch: int
    rank: int
    why: str


class TaskPreparing(Message, frozen=True):
    """The task does not compute yet, for a reason. Shown to people, never journalled."""

    job: str
    epoch: int
    rank: int
    why: str
    """In the words of the cluster: "pulling image", "ReqNodeNotAvail"; the last one counts.
    Empty: it waits for nothing any more.
    """
    begun: bool = False
    """It was told as started: its host is its own, and is being prepared."""


class Checkpointed(Message, frozen=True):
    """A task reported a checkpoint."""

    job: str
    epoch: int
    step: int
    at_s: float


class Resumed(Message, frozen=True):
    """A task reported that it went on from a checkpoint."""

    job: str
    epoch: int
    step: int


class ProgressReport(Message, frozen=True, tag="Paced"):
    """The attempt was at a step (mini-batch) at a time."""

    job: str
    epoch: int
    step: int
    at_s: float


class HostDown(Message, frozen=True):
    """The host is gone, and every task on it has ended."""

    host: str
    error: str = ""


class HostUp(Message, frozen=True):
    """The host answers (again)."""

    host: str


class HostClosed(Message, frozen=True):
    """The cluster gives the host no new work (drained, cordoned, used by others); work goes on.

    A cluster that cannot be trusted for now closes all its hosts.
    """

    host: str
    why: str


class HostOpened(Message, frozen=True):
    """The cluster gives the host work again."""

    host: str


class TruthTask(Struct, frozen=True):
    """One task as an engine knows it."""

    job: str
    epoch: int
    rank: int
    running: bool
    code: int | None = None
    """Of a task that has ended; None: it left no exit status."""
    at_s: float = 0.0
    report: TaskReport = TaskReport()
    evicted: str | UnsetType = UNSET
    """Why the cluster's own people or scheduler ended it, if they did."""
    stopped: bool | UnsetType = UNSET
    """As `TaskExited.stopped`."""


class TaskList(Message, frozen=True, tag="EngineTruth"):
    """Everything an engine runs, or ran and has not forgotten, and its hosts that take no work."""

    tasks: tuple[TruthTask, ...]
    down_hosts: tuple[str, ...] = ()
    closed_hosts: dict[str, str] | UnsetType = UNSET
    """Why, by host; absent: none is closed."""


class Progress(Message, frozen=True):
    """A step of a running task. Shown to people, never journalled."""

    job: str
    epoch: int
    rank: int
    step: int | None
    metrics: dict[str, float]
    at_s: float
