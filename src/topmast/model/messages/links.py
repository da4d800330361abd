"""What processes say to each other: messages in envelopes, and receipts."""

from __future__ import annotations

from msgspec import Struct

from topmast.model.ids import Address
from topmast.model.messages.base import Message
from topmast.model.messages.clusters import (
    AttemptCheckpointed,
    AttemptContinued,
    AttemptEnded,
    AttemptPacked,
    AttemptResumed,
    AttemptRunning,
    AttemptStarting,
    AttemptStopping,
    AttemptSuspended,
)
from topmast.model.messages.engines import Progress
from topmast.model.messages.placers import (
    AskPlans,
    AssignHosts,
    CapacityChanged,
    CommitPlan,
    ConfigureRegion,
    DropHolds,
    EnlargeAttempt,
    HostsMoved,
    OutOfService,
    PlanCommitted,
    PlanRefused,
    PlansOffered,
    SetHost,
    StopAttempt,
)


class Forward(Message, frozen=True):
    """A relay hands a message to its link; ``seq`` 0 if it may be lost, else it must arrive."""

    seq: int
    message: Message


class OpenStream(Message, frozen=True):
    """The name of what a relay sends, given once in the life of its journal."""

    stream: str


class Pair(Message, frozen=True):
    """Who answers at the other end, and up to which of our messages it has applied them."""

    stream: str
    applied: int


class Heard(Message, frozen=True):
    """Every message of the other end up to ``seq`` is applied with this commit."""

    seq: int


class Acked(Message, frozen=True):
    """The other end has every message up to ``seq`` on its disk."""

    seq: int


ToPlacer = (
    ConfigureRegion | AskPlans | CommitPlan | StopAttempt | EnlargeAttempt | SetHost | DropHolds
    | AssignHosts
)  # fmt: skip
"""What a queue may say to a placer in another process."""

ToQueue = (
    PlansOffered | PlanCommitted | PlanRefused | CapacityChanged | AttemptStarting | AttemptRunning
    | AttemptStopping | AttemptCheckpointed | AttemptResumed | AttemptEnded | Progress | HostsMoved
    | AttemptSuspended | AttemptContinued | AttemptPacked | OutOfService
)  # fmt: skip
"""What a placer in another process may say to its queue."""


class Parcel(Struct, frozen=True):
    """A message on a link. ``seq`` counts from 1 those that must arrive; 0 is one that may be lost."""

    seq: int
    message: ToPlacer | ToQueue


class Deliver(Message, frozen=True):
    """Parcels of the stream ``stream`` came in for the machine at ``to``.

    ``peer``: whom the sender takes this end for, empty while it does not know; ``applied``: up to
    which message of this end it had applied them when it sent this.
    """

    to: Address
    stream: str
    peer: str
    applied: int
    parcels: tuple[Parcel, ...]


class Receipt(Struct, frozen=True):
    """What became of parcels: all up to ``applied`` are on the disk of the stream ``stream``'s owner.

    ``refused``: why nothing was taken; empty when it was.
    """

    stream: str
    applied: int
    refused: str = ""
