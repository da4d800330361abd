"""The facts of a cluster manager."""

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from topmast.fast.machine import AttemptFact, Fact, JobFact
from topmast.model.states import Outcome


class ClusterSet(Fact, frozen=True):
    """The cluster's configuration was taken from the event."""


class Opened(Fact, frozen=True):
    """An attempt was accepted for launch; its gang is in the event."""

    deadline_s: float


class GangsOpened(Fact, frozen=True):
    """All gangs in the event were accepted for launch."""

    deadline_s: float


class TaskUp(AttemptFact, frozen=True):
    """A task runs."""

    rank: int


class TaskDown(AttemptFact, frozen=True):
    """A task ended."""

    rank: int
    code: int | None
    """Its exit status; None: without one."""
    step: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    at_s: float | UnsetType = UNSET
    """When it ended, if earlier than the record."""


class GangUp(AttemptFact, frozen=True):
    """Every task of the gang runs."""


class GangStopping(AttemptFact, frozen=True):
    """The gang is being stopped; the first reason stands, unless a loss explains a failure."""

    why: Outcome
    cause: str
    deadline_s: float
    exit_code: int | None = None
    suspects: tuple[str, ...] = ()
    evicted: bool | UnsetType = UNSET
    """The cluster ended it, by itself or by its own people."""


class OrderRepeated(AttemptFact, frozen=True, tag="Prodded"):
    """The engine was told again to start or to stop the gang."""

    deadline_s: float
    """When its present phase has lasted too long, counted from then."""


class CheckpointRecorded(AttemptFact, frozen=True, tag="Marked"):
    """The job checkpointed at ``step``."""

    step: int
    at_s: float


class Closed(AttemptFact, frozen=True):
    """Nothing of the attempt is left."""


class Refused(AttemptFact, frozen=True):
    """A stop came before its launch: a launch of this epoch or an older one is refused."""


class Joined(AttemptFact, frozen=True):
    """An attempt takes turns from now on, and waits for its first; it starts with ``service_s``."""

    service_s: float


class Suspended(AttemptFact, frozen=True):
    """Others have the attempt's GPUs."""


class Continued(AttemptFact, frozen=True):
    """The attempt has its GPUs (again)."""


class Measured(AttemptFact, frozen=True):
    """An attempt's steps per second, alone on its GPUs or ``beside`` its partner."""

    rate: float
    beside: bool


class Packed(JobFact, frozen=True):
    """Two attempts have the same GPUs at the same time, on trial until a time."""

    other: str
    until_s: float


class PackKept(JobFact, frozen=True):
    """Two attempts do more together than in turns: they stay together."""

    other: str


class Unpacked(JobFact, frozen=True):
    """Two attempts take turns again, and are not tried together before a time."""

    other: str
    not_before_s: float
