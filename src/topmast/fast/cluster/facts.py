"""The facts of a cluster manager."""

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from topmast.fast.machine import Fact
from topmast.model.states import Outcome


class ClusterSet(Fact, frozen=True):
    """The cluster's configuration was taken from the event."""


class Opened(Fact, frozen=True):
    """An attempt was accepted for launch; its gang is in the event."""

    deadline_s: float


class GangsOpened(Fact, frozen=True):
    """All gangs in the event were accepted for launch."""

    deadline_s: float


class TaskUp(Fact, frozen=True):
    """A task runs."""

    job: str
    epoch: int
    rank: int


class TaskDown(Fact, frozen=True):
    """A task ended."""

    job: str
    epoch: int
    rank: int
    code: int | None
    """Its exit status; None: without one."""
    step: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    at_s: float | UnsetType = UNSET
    """When it ended, if earlier than the record."""


class GangUp(Fact, frozen=True):
    """Every task of the gang runs."""

    job: str
    epoch: int


class GangStopping(Fact, frozen=True):
    """The gang is being stopped; the first reason stands, unless a loss explains a failure."""

    job: str
    epoch: int
    why: Outcome
    cause: str
    deadline_s: float
    exit_code: int | None = None
    suspects: tuple[str, ...] = ()
    evicted: bool | UnsetType = UNSET
    """The cluster ended it, by itself or by its own people."""


class StopRepeated(Fact, frozen=True, tag="Prodded"):
    """The engine was told again to stop the gang."""

    job: str
    epoch: int
    deadline_s: float


class CheckpointRecorded(Fact, frozen=True, tag="Marked"):
    """The job checkpointed at ``step``."""

    job: str
    epoch: int
    step: int
    at_s: float


class Closed(Fact, frozen=True):
    """Nothing of the attempt is left."""

    job: str
    epoch: int


class Refused(Fact, frozen=True):
    """A stop came before its launch: a launch of this epoch or an older one is refused."""

    job: str
    epoch: int


class Joined(Fact, frozen=True):
    """An attempt takes turns from now on, and waits for its first; it starts with ``service_s``."""

    job: str
    epoch: int
    service_s: float


class Suspended(Fact, frozen=True):
    """Others have the attempt's GPUs."""

    job: str
    epoch: int


class Continued(Fact, frozen=True):
    """The attempt has its GPUs (again)."""

    job: str
    epoch: int


class Measured(Fact, frozen=True):
    """An attempt's steps per second, alone on its GPUs or ``beside`` its partner."""

    job: str
    epoch: int
    rate: float
    beside: bool


class Packed(Fact, frozen=True):
    """Two attempts have the same GPUs at the same time, on trial until a time."""

    job: str
    other: str
    until_s: float


class PackKept(Fact, frozen=True):
    """Two attempts do more together than in turns: they stay together."""

    job: str
    other: str


class Unpacked(Fact, frozen=True):
    """Two attempts take turns again, and are not tried together before a time."""

    job: str
    other: str
    not_before_s: float


ClusterFact = (
    ClusterSet | Opened | GangsOpened | TaskUp | TaskDown | GangUp | GangStopping | StopRepeated
    | CheckpointRecorded | Closed | Refused | Joined | Suspended | Continued | Measured
    | Packed | PackKept | Unpacked
)  # fmt: skip
