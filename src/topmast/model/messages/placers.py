"""What the queue and the placers say to each other."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType, field

from topmast.model.columns import PlanColumns
from topmast.model.fleet import RegionSpec
from topmast.model.job import Band, JobSpec
from topmast.model.messages.base import Message
from topmast.model.plan import PlacementRequest, Plan, RegionTerms, Reservation
from topmast.model.reason import PendingReason
from topmast.model.states import HostState, Outcome


class ConfigureRegion(Message, frozen=True):
    """The part of the fleet file that a placer owns."""

    region: RegionSpec


class RequestRegionBids(Message, frozen=True, tag="AskPlans"):
    """Where would these jobs run best? Answered by ``RegionBids`` with the same batch number.

    If offers are held, later questions of the batch take them into account. A job that already has
    an offer is not searched again.
    """

    batch: int
    asks: tuple[PlacementRequest, ...]
    hold_s: float = 0.0
    """Hold what is offered for so long; 0: hold nothing."""
    wanted: tuple[int, ...] = ()
    """How many places are wanted for jobs like each of these; empty: one each."""
    due: bool = True
    """Whether the first is the next job in order: what is only offered to others makes way."""


class OfferLease(Struct, frozen=True):
    """A hold of what was offered."""

    id: str
    expires_s: float
    """By the region's clock."""


class Behind(Struct, frozen=True, gc=False):
    """Jobs behind the one that is asked about: where would each run, once those before it do?"""

    kinds: tuple[PlacementRequest, ...]
    """Requests, each of one of the jobs alike."""
    jobs: tuple[str, ...]
    """In their order."""
    kind: tuple[int, ...]
    """By job, the number of its request."""
    held_milli: dict[str, int]
    """By region, thousandths of GPUs that are held; with the jobs' own they give the balance."""
    gpus: dict[str, int]
    """By region, GPUs present, over which the balance is taken."""


class RequestFleetBids(Message, frozen=True, tag="AskFleet"):
    """Where would this job run best, in these regions? Answered by ``FleetBids``.

    Regions of other processes answer with ``RegionBids``, and hold what they offer for
    ``hold_s``.
    """

    batch: int
    ask: PlacementRequest
    terms: dict[str, RegionTerms]
    placement_class: int = field(name="kin", default=0)
    """The number of the job's placement class. A refusal is remembered for the whole class."""
    hold_s: float = 0.0
    behind: Behind | UnsetType = UNSET
    """What is asked besides; absent: nothing."""


class Bid(Struct, frozen=True, gc=False):
    """A region's answer for one job: its best plan, or why there is none."""

    job: str
    plan: Plan | None
    reason: PendingReason | None = None
    retry_at_s: float | None = None
    """When time alone would change the answer (a victim grows old enough)."""
    reservation: Reservation | None = None
    """Where and when the job would start first, if that was asked."""
    hold: OfferLease | None = None
    kept: bool | UnsetType = UNSET
    """The plan is a place that was kept for the job."""


class FleetBids(Message, frozen=True, tag="FleetOffered"):
    """The answer of several regions."""

    batch: int
    regions: tuple[str, ...]
    offers: dict[str, Bid]
    """By region: the best region's plan alone; without a plan, the answer of each region."""
    plans: PlanColumns | UnsetType = UNSET
    """For the job and the first of those behind, each as if those before it ran; absent: none."""


class RegionBids(Message, frozen=True, tag="PlansOffered"):
    """A region's answers to a batch."""

    batch: int
    region: str
    version: int
    """The state of the region that the answers rest on."""
    offers: tuple[Bid, ...]
    counts: tuple[int, ...] | UnsetType = UNSET
    """How many of the offers answer each question; absent: one each."""
    lost: tuple[str, ...] | UnsetType = UNSET
    """Leases of earlier offers that made way for the job that was due."""


class RequestRegionPlans(Message, frozen=True, tag="AskColumns"):
    """Where would so many jobs like these run best, each once those before it do?

    Answered by ``RegionPlans`` with the same batch number. Nothing is held: what is chosen is
    committed before the next such question, and is validated where the region has changed.
    """

    batch: int
    kinds: tuple[PlacementRequest, ...]
    """Requests of common gangs; each stands for many jobs."""
    order: tuple[int, ...]
    """For each place that is wanted, the number of its request."""


class RegionPlans(Message, frozen=True, tag="ColumnsOffered"):
    """A region's places for jobs of some kinds, in columns."""

    batch: int
    region: str
    kinds: tuple[int, ...] = ()
    """For each place, the number of the request."""
    plans: PlanColumns | UnsetType = UNSET
    """The places, for no jobs yet; absent: there are none."""
    able: bool = True
    """Whether the region can be asked so."""
    free: tuple[int, ...] = ()
    """For each host of the places, how many of its GPUs are wholly free before any is taken."""
    stranded: tuple[float, ...] = ()
    """What so many wholly free GPUs of a host cost in the score; empty from an older version."""


class CommitPlan(Message, frozen=True):
    """The auction was won: take the slots, stop the victims, launch when all slots are free."""

    plan: Plan
    epoch: int
    spec: JobSpec
    band: Band
    time_left_s: float | None = None
    """What remains of the job's time limit; None without one."""
    expected_s: float | None = None
    """How long the attempt is expected to run; None if there is no estimate."""
    hold: str = ""
    """The hold of the offer, if it had one."""


class CommitPlans(Message, frozen=True):
    """Several plans without victims for one region, in the order in which they were chosen.

    What `CommitPlan` says of one job is a row here.
    """

    plans: PlanColumns
    epochs: tuple[int, ...]
    specs: tuple[JobSpec, ...]
    bands: tuple[Band, ...]
    time_left_s: tuple[float | None, ...]
    expected_s: tuple[float | None, ...]

    def one_by_one(self) -> list[CommitPlan]:
        """The same as messages of their own."""
        rows = (self.epochs, self.specs, self.bands, self.time_left_s, self.expected_s)
        return [CommitPlan(plan, *row) for plan, *row in zip(self.plans.plans, *rows, strict=True)]


class PlanCommitted(Message, frozen=True):
    """The slots are taken."""

    job: str
    epoch: int
    waiting: bool
    """Victims still hold some of them. A plan without victims starts at once."""


class PlanRefused(Message, frozen=True):
    """The plan no longer fits; the job is asked about again."""

    job: str
    epoch: int
    why: str


class StopAttempt(Message, frozen=True):
    """End an attempt."""

    job: str
    epoch: int
    why: Outcome
    """Its outcome."""
    cause: str = ""


class ScaleUpAttempt(Message, frozen=True, tag="EnlargeAttempt"):
    """Offer idle GPUs to an elastic job: restart its attempt with more tasks, if that pays.

    This is a hint: where there is no room, or if it is lost, nothing happens. The attempt ends as
    preempted, and its new place is kept.
    """

    job: str
    epoch: int
    tasks: int
    """The most tasks."""


class HostOrder(Struct, frozen=True):
    """The order that put a host aside: by which operator, and why."""

    by: str = ""
    reason: str = ""
    """In the words of the one that asked for it."""

    def said(self, state: HostState) -> str:
        """In words, of a host that is to be in ``state``."""
        done = "drains" if state is HostState.DRAINING else "cordoned"
        more = f": {self.reason}" if self.reason else ""
        return f"{self.by or 'an unknown user'} {done} it{more}"


class SetHost(Message, frozen=True):
    """An operator cordons, drains or returns hosts of a region, all at once.

    A drain stops a job only if it has another place outside these hosts.
    """

    host: str
    state: HostState
    by: str = ""
    at_once: bool = False
    """A drain stops also the jobs without another place."""
    also: tuple[str, ...] | UnsetType = UNSET
    """More hosts than ``host``."""
    reason: str | UnsetType = UNSET
    """Why, in the words of the one that asks for it."""
    until_s: float | UnsetType = UNSET
    """When they take work again by themselves; absent: when they are told to."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """All the hosts, each once."""
        return tuple(dict.fromkeys((self.host, *(self.also or ()))))

    def order(self, before: HostOrder | UnsetType = UNSET) -> HostOrder | UnsetType:
        """What is known of the order; absent if nothing is said of it, or they return.

        ``before`` is the order before it: its reason stands until an order gives another.
        """
        reason = self.reason or (before.reason if before else "")
        if self.state is HostState.HEALTHY or not (self.by or reason):
            return UNSET
        return HostOrder(self.by, reason)


class Closure(Struct, frozen=True):
    """A cluster or hosts that get no new work for a while; what runs there runs on."""

    why: str
    """In words: by order of which operator, and for what."""
    cluster: str = ""
    """All hosts of this cluster, also those that come to it later."""
    hosts: tuple[str, ...] = ()
    until_s: float | UnsetType = UNSET
    """When it is over by itself; absent: when an operator says so."""


class SetClosure(Message, frozen=True):
    """An operator closes a cluster or hosts of a region to new work, or opens them again."""

    name: str
    """Of the closure: a host may be in several."""
    closure: Closure | None = None
    """None: it is over."""
    by: str = ""
    reason: str | UnsetType = UNSET
    """Why, in the words of the one that asks for it."""


class AssignHosts(Message, frozen=True):
    """The clusters that hosts of the region shall belong to; replaces what was wanted before.

    An idle host moves at once. A busy host is drained first: it takes no new work, and moves when
    it is empty.
    """

    owners: dict[str, str]
    """The cluster by host."""
    by: str = ""


class HostsMoved(Message, frozen=True):
    """Hosts of a region belong to other clusters now."""

    region: str
    owners: dict[str, str]
    """The cluster by host."""


class CapacityChanged(Message, frozen=True):
    """Something in the region changed: a job that was refused before might fit now."""

    region: str
    version: int
    clusters: tuple[str, ...] | None = None
    """Where there is more room than before; None if that may be anywhere."""


class OutOfService(Message, frozen=True):
    """GPUs of a region on hosts that take no work now: lost, suspect, cordoned or drained."""

    region: str
    gpus: dict[str, int]
    """By model."""


class CheckBlocked(Message, frozen=True, tag="WhoFits"):
    """There is more room: which refused jobs might fit now? Answered by ``Unblocked``, if there are
    any.
    """

    region: str
    clusters: tuple[str, ...] | None
    freed: bool = False
    """The room is that of a reservation that has ended."""


class Unblocked(Message, frozen=True, tag="MayFit"):
    """Jobs of these placement classes are searched again."""

    classes: tuple[int, ...] | None = field(name="kin")
    """Numbers of placement classes; None for all."""


class DropLeases(Message, frozen=True, tag="DropHolds"):
    """What was offered is not wanted, and what was kept for jobs while they moved is free again."""

    jobs: tuple[str, ...] = ()
    places: bool = False
    """Give up the places that were kept for these jobs."""
    leases: tuple[str, ...] | UnsetType = UNSET
    """Hold nothing under these any more."""


class LinkUp(Message, frozen=True):
    """The process of a region's placer can be reached (again)."""

    region: str
    columns: bool = False
    """Whether it takes and makes plans in columns."""


class LinkDown(Message, frozen=True):
    """The process of a region's placer cannot be reached."""

    region: str
    why: str
    """The reason, in words."""
