"""What the queue and the placers say to each other."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from topmast.model.fleet import RegionSpec
from topmast.model.job import Band, JobSpec
from topmast.model.messages.base import Message
from topmast.model.plan import Ask, Plan, Reservation
from topmast.model.reason import PendingReason
from topmast.model.states import HostState, Outcome


class ConfigureRegion(Message, frozen=True):
    """The part of the fleet file that a placer owns."""

    region: RegionSpec


class AskPlans(Message, frozen=True):
    """Where would these jobs best run? Answered by ``PlansOffered`` with the same batch number.

    ``hold_s``: keep what is offered for so long, and answer the later questions with that in mind: the
    balance is that of ``held_milli`` thousandths of GPUs, and of what the batch holds, over ``gpus``
    present; and a job for which a plan is offered is not looked into again (no plan, and no reason).
    """

    batch: int
    asks: tuple[Ask, ...]
    hold_s: float = 0.0
    held_milli: int = 0
    gpus: int = 0


class HoldTicket(Struct, frozen=True):
    """What was offered is kept until ``expires_s``, by the region's clock."""

    id: str
    expires_s: float


class RegionTerms(Struct, frozen=True, gc=False):
    """What differs from region to region in a question about one job (see ``Ask``)."""

    data_bytes: int = 0
    data_s: float = 0.0
    balance: float = 0.0


class AskFleet(Message, frozen=True):
    """Where would this job best run, of these regions? Answered by ``FleetOffered``.

    Regions whose placers are in other processes answer with ``PlansOffered``, and keep what they offer
    for ``hold_s``. A refusal is remembered for the ``kin`` of the job: for all that fit as it does.
    """

    batch: int
    ask: Ask
    terms: dict[str, RegionTerms]
    kin: int = 0
    hold_s: float = 0.0


class Offer(Struct, frozen=True, gc=False):
    """A region's answer for one job: its best plan, or why there is none.

    ``retry_at_s``: time alone would change the answer then (a victim grows old enough).
    ``reservation``: where and when it would start first, if that was asked. ``kept``: the plan is a place that
    was kept for the job.
    """

    job: str
    plan: Plan | None
    reason: PendingReason | None = None
    retry_at_s: float | None = None
    reservation: Reservation | None = None
    hold: HoldTicket | None = None
    kept: bool | UnsetType = UNSET


class FleetOffered(Message, frozen=True):
    """The answer of ``regions``: the offer of the best of them, or, if none has a plan, that of each."""

    batch: int
    regions: tuple[str, ...]
    offers: dict[str, Offer]


class PlansOffered(Message, frozen=True):
    """A region's answers to a batch, computed from its ``version``."""

    batch: int
    region: str
    version: int
    offers: tuple[Offer, ...]


class CommitPlan(Message, frozen=True):
    """The auction was won: take the slots, stop the victims, launch when all slots are free.

    ``time_left_s`` is what remains of the job's time limit, None without one; ``expected_s`` how long
    the attempt is expected to run, None when nobody says. ``hold``: of the offer, if it had one.
    """

    plan: Plan
    epoch: int
    spec: JobSpec
    band: Band
    time_left_s: float | None = None
    expected_s: float | None = None
    hold: str = ""


class PlanCommitted(Message, frozen=True):
    """The slots are taken; ``waiting`` while victims still hold some. A plan without victims just starts."""

    job: str
    epoch: int
    waiting: bool


class PlanRefused(Message, frozen=True):
    """The plan no longer fits; the job is asked about again."""

    job: str
    epoch: int
    why: str


class StopAttempt(Message, frozen=True):
    """End an attempt; ``why`` says with which outcome."""

    job: str
    epoch: int
    why: Outcome
    cause: str = ""


class EnlargeAttempt(Message, frozen=True):
    """GPUs are idle: give a running attempt of an elastic job up to ``tasks`` tasks, if that is worth a restart.

    A hint: where there is no room, or it is lost, nothing happens. The attempt then ends as preempted, and its
    new place is kept.
    """

    job: str
    epoch: int
    tasks: int


class SetHost(Message, frozen=True):
    """An operator cordons, drains or returns a host, and ``also`` more hosts of the region, all at once.

    A drain stops what has a place elsewhere, which is on none of these hosts; with ``at_once`` also what has none.
    """

    host: str
    state: HostState
    by: str = ""
    at_once: bool = False
    also: tuple[str, ...] | UnsetType = UNSET

    @property
    def hosts(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys((self.host, *(self.also or ()))))


class AssignHosts(Message, frozen=True):
    """To which clusters hosts of the region shall go, by host; takes the place of what was wanted before.

    An idle host goes at once. One in use is drained first: it takes no new work, and goes when it is empty.
    """

    owners: dict[str, str]
    by: str = ""


class HostsMoved(Message, frozen=True):
    """Hosts of a region belong to other clusters now, by host."""

    region: str
    owners: dict[str, str]


class CapacityChanged(Message, frozen=True):
    """Something in the region changed so that a job refused before might fit now.

    ``clusters``: where there is more room than before; None if that may be anywhere.
    """

    region: str
    version: int
    clusters: tuple[str, ...] | None = None


class OutOfService(Message, frozen=True):
    """GPUs of a region, by model, on hosts that take no work now: lost, suspect, cordoned or drained."""

    region: str
    gpus: dict[str, int]


class WhoFits(Message, frozen=True):
    """Who of those refused might fit, now that there is more room? Answered by ``MayFit``, if there are any.

    ``freed``: the room is that of a reservation that has ended.
    """

    region: str
    clusters: tuple[str, ...] | None
    freed: bool = False


class MayFit(Message, frozen=True):
    """Whose kin deserve another look, by number; None for all of them."""

    kin: tuple[int, ...] | None


class DropHolds(Message, frozen=True):
    """These jobs were placed elsewhere, or not at all: what is held for them is free again.

    ``quiet``: whoever found no place on their account was not refused for that, and need not hear of it.
    ``places``: what was kept for them while they moved is free again, too.
    """

    jobs: tuple[str, ...]
    quiet: bool = False
    places: bool = False


class LinkUp(Message, frozen=True):
    """The process of a region's placer can be reached (again)."""

    region: str


class LinkDown(Message, frozen=True):
    """The process of a region's placer cannot be reached; ``why`` in words."""

    region: str
    why: str
