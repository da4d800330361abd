"""What the placers and the clusters say to each other, and the queue hears from attempts."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, UnsetType, field

from topmast.model.absent import given
from topmast.model.columns import SeatColumns
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
    """Start all tasks of an attempt, or none."""

    job: str
    epoch: int
    spec: JobSpec
    region: str
    cluster: str
    seats: tuple[Seat, ...]
    time_left_s: float | None = None
    colocated_with: str | UnsetType = field(name="beside", default=UNSET)
    """The job that runs on the same GPUs at the same time."""


class LaunchGangs(Message, frozen=True):
    """Start these gangs of one cluster, each as by an order of its own.

    What `LaunchGang` says of one gang is a row here.
    """

    region: str
    cluster: str
    seats: SeatColumns
    epochs: tuple[int, ...]
    specs: tuple[JobSpec, ...]
    time_left_s: tuple[float | None, ...]

    def one_by_one(self) -> Iterator[LaunchGang]:
        """The same as messages of their own."""
        for job, epoch, spec, seats, time_left_s in zip(
            self.seats.jobs, self.epochs, self.specs, self.seats.seats, self.time_left_s,
            strict=True,
        ):  # fmt: skip
            yield LaunchGang(job, epoch, spec, self.region, self.cluster, seats, time_left_s)


class StopGang(Message, frozen=True):
    """SIGTERM, the job's grace, SIGKILL."""

    job: str
    epoch: int
    why: Outcome
    """The outcome of the attempt."""
    cause: str = ""


class AttemptStarting(Message, frozen=True):
    """The gang is being launched."""

    job: str
    epoch: int


class AttemptsStarting(Message, frozen=True):
    """These gangs are being launched, in this order."""

    jobs: tuple[str, ...]
    epochs: tuple[int, ...]


class AttemptRunning(Message, frozen=True):
    """Every task of the gang is up."""

    job: str
    epoch: int


class AttemptStopping(Message, frozen=True):
    """The gang was told to stop."""

    job: str
    epoch: int
    why: Outcome
    cause: str = ""
    moves: bool = False
    """A place is kept for it, where it continues."""


class AttemptSuspended(Message, frozen=True):
    """The gang is suspended, so that others have its GPUs for a while."""

    job: str
    epoch: int


class AttemptContinued(Message, frozen=True):
    """It is the gang's turn (again): it has its GPUs from now on."""

    job: str
    epoch: int


class AttemptPacked(Message, frozen=True):
    """The gang begins or ends to share its GPUs with another job at the same time."""

    job: str
    epoch: int
    colocated_with: str = field(name="beside")
    """That job; empty: it shares no longer."""
    why: str
    """The reason, in words."""
    gain: float | UnsetType = UNSET
    """The measured throughputs of both jobs, each relative to running alone, added up.

    Absent while nothing was measured.
    """


class AttemptPaced(Message, frozen=True):
    """The throughput of the gang was measured while it has its GPUs for itself."""

    job: str
    epoch: int
    rate: float
    """Steps a second."""


class AttemptCheckpointed(Message, frozen=True):
    """A checkpoint exists."""

    job: str
    epoch: int
    step: int
    """Where the job can resume."""
    at_s: float
    """Work up to this time is kept in any case."""


class AttemptResumed(Message, frozen=True):
    """The job said from which step it went on."""

    job: str
    epoch: int
    step: int


class AttemptEnded(Message, frozen=True):
    """Nothing of the attempt runs any more; its slots are free."""

    job: str
    epoch: int
    outcome: Outcome
    start_s: float
    end_s: float
    kept_s: float
    """The part of the time since the start with work that survives."""
    cause: str = ""
    exit_code: int | None = None
    step: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    """The last that the job reported."""
    suspects: tuple[str, ...] = ()
    """Hosts that a new attempt should avoid."""
    suspended_s: float | UnsetType = UNSET
    """How long others had its GPUs in their turns; absent if it always had them."""
    evicted: bool | UnsetType = UNSET
    """The cluster ended it, by itself or by its own people."""

    @property
    def held_s(self) -> float:
        """How long the attempt had its GPUs."""
        return self.end_s - self.start_s - given(self.suspended_s, 0.0)


class ClosedHosts(Message, frozen=True):
    """The hosts of a cluster that its engine gives no new work, and no others."""

    cluster: str
    hosts: dict[str, str]
    """Why, by host."""


class HostChanged(Message, frozen=True):
    """A cluster's engine lost a host, or has it again."""

    host: str
    up: bool
