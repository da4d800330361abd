"""What processes say to each other: messages in envelopes, and receipts."""

from __future__ import annotations

from msgspec import Struct, field

from topmast.model.ids import Address
from topmast.model.messages.base import Message
from topmast.model.messages.clusters import (
    AttemptCheckpointed,
    AttemptContinued,
    AttemptEnded,
    AttemptPacked,
    AttemptResumed,
    AttemptRunning,
    AttemptsStarting,
    AttemptStarting,
    AttemptStopping,
    AttemptSuspended,
)
from topmast.model.messages.engines import Progress, TaskPreparing
from topmast.model.messages.placers import (
    AssignHosts,
    CapacityChanged,
    CommitPlan,
    CommitPlans,
    ConfigureRegion,
    DropLeases,
    HostsMoved,
    OutOfService,
    PlanCommitted,
    PlanRefused,
    RegionBids,
    RegionPlans,
    RequestRegionBids,
    RequestRegionPlans,
    ScaleUpAttempt,
    SetClosure,
    SetHost,
    StopAttempt,
)


class Forward(Message, frozen=True):
    """A relay hands a message to its link."""

    seq: int
    """Counts from 1 the messages that must arrive; 0: this one may be lost."""
    message: Message


class OpenStream(Message, frozen=True):
    """The name of the stream that a relay sends, given once in the life of its journal."""

    stream: str


class Pair(Message, frozen=True):
    """The stream of the other end, and how many of our messages it has applied."""

    stream: str
    applied: int
    """The ``seq`` of the last message of this end that the other end has applied."""


class Heard(Message, frozen=True):
    """Messages of the other end are applied with this commit."""

    seq: int
    """The last of them; all before it are applied, too."""


class Acked(Message, frozen=True):
    """The other end has our messages on its disk."""

    seq: int
    """The last of them; it has all before it, too."""


ToPlacer = (
    ConfigureRegion | RequestRegionBids | RequestRegionPlans | CommitPlan | CommitPlans
    | StopAttempt | ScaleUpAttempt | SetHost | SetClosure | AssignHosts | DropLeases
)  # fmt: skip
"""What a queue may say to a placer in another process."""

ToQueue = (
    RegionBids | RegionPlans | PlanCommitted | PlanRefused | CapacityChanged | AttemptStarting
    | AttemptsStarting | AttemptRunning
    | AttemptStopping | AttemptCheckpointed | AttemptResumed | AttemptEnded | Progress | HostsMoved
    | AttemptSuspended | AttemptContinued | AttemptPacked | OutOfService
    | TaskPreparing
)  # fmt: skip
"""What a placer in another process may say to its queue."""


class Envelope(Struct, frozen=True):
    """A message on a link."""

    seq: int
    """Counts from 1 the messages that must arrive; 0: this one may be lost."""
    message: ToPlacer | ToQueue


class Deliver(Message, frozen=True):
    """Messages of another process came in."""

    to: Address
    """The machine that gets them."""
    stream: str
    """The stream that they belong to."""
    peer: str
    """The stream that the sender expects here; empty while it does not know."""
    applied: int
    """The last message of this end that the sender had applied."""
    envelopes: tuple[Envelope, ...] = field(name="parcels")


class Receipt(Struct, frozen=True):
    """What became of the messages of a delivery."""

    stream: str
    """The stream of the receiver."""
    applied: int
    """All messages up to this one are on the receiver's disk."""
    refused: str = ""
    """Why nothing was accepted; empty if it was."""
    columns: bool = False
    """Whether the receiver takes and makes plans in columns; older versions do not."""
