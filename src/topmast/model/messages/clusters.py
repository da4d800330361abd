"""What the placers and the clusters say to each other, and the queue hears from attempts."""

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from topmast.model.fleet import ClusterSpec
from topmast.model.job import JobSpec
from topmast.model.messages.base import Message
from topmast.model.plan import Seat
from topmast.model.states import Outcome


class ConfigureCluster(Message, frozen=True):
    """The part of the fleet file that a cluster manager owns."""

    region: str
    cluster: ClusterSpec


class LaunchGang(Message, frozen=True):
    """Start all tasks of an attempt, or none. ``beside``: the job that has the same GPUs at the same time."""

    job: str
    epoch: int
    spec: JobSpec
    region: str
    cluster: str
    seats: tuple[Seat, ...]
    time_left_s: float | None = None
    beside: str | UnsetType = UNSET


class StopGang(Message, frozen=True):
    """SIGTERM, the job's grace, SIGKILL; the attempt then ends with outcome ``why``."""

    job: str
    epoch: int
    why: Outcome
    cause: str = ""


class AttemptStarting(Message, frozen=True):
    """The gang is being launched."""

    job: str
    epoch: int


class AttemptRunning(Message, frozen=True):
    """Every task of the gang is up."""

    job: str
    epoch: int


class AttemptStopping(Message, frozen=True):
    """The gang was told to stop. ``moves``: a place is kept where it can go on."""

    job: str
    epoch: int
    why: Outcome
    cause: str = ""
    moves: bool = False


class AttemptSuspended(Message, frozen=True):
    """The gang stands still, so that others have its GPUs for a while."""

    job: str
    epoch: int


class AttemptContinued(Message, frozen=True):
    """It is the gang's turn (again): it has its GPUs from now on."""

    job: str
    epoch: int


class AttemptPacked(Message, frozen=True):
    """The gang has its GPUs at the same time as the job ``beside`` (empty: no more); ``why`` in words.

    ``gain``: what both were measured to do together, each over what it does alone, summed; only with a verdict.
    """

    job: str
    epoch: int
    beside: str
    why: str
    gain: float | UnsetType = UNSET


class AttemptPaced(Message, frozen=True):
    """The gang does so many steps a second while it has its GPUs for itself."""

    job: str
    epoch: int
    rate: float


class AttemptCheckpointed(Message, frozen=True):
    """The job can resume from ``step``; work up to ``at_s`` is kept whatever happens."""

    job: str
    epoch: int
    step: int
    at_s: float


class AttemptResumed(Message, frozen=True):
    """The job said from which step it went on."""

    job: str
    epoch: int
    step: int


class AttemptEnded(Message, frozen=True):
    """Nothing of the attempt runs any more; its slots are free.

    ``kept_s`` is the part of the time since the start whose work survives; ``metrics`` are the
    last the job reported; ``suspects`` are hosts that a new attempt should avoid. ``suspended_s``: how long it did
    not have its GPUs, others had them in their turns; absent if it always had them.
    """

    job: str
    epoch: int
    outcome: Outcome
    start_s: float
    end_s: float
    kept_s: float
    cause: str = ""
    exit_code: int | None = None
    step: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    suspects: tuple[str, ...] = ()
    suspended_s: float | UnsetType = UNSET

    @property
    def held_s(self) -> float:
        """How long the attempt had its GPUs."""
        still_s = 0.0 if isinstance(self.suspended_s, UnsetType) else self.suspended_s
        return self.end_s - self.start_s - still_s


class HostChanged(Message, frozen=True):
    """A cluster's engine lost a host, or has it again."""

    host: str
    up: bool
