"""The facts of a regional placer."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from topmast.fast.machine import Fact, JobFact
from topmast.model.messages.placers import Closure
from topmast.model.plan import Plan
from topmast.model.states import HostState, Outcome


class RegionSet(Fact, frozen=True):
    """The region's configuration was taken from the event."""


class SlotsTaken(Fact, frozen=True):
    """A plan was committed; the plan is in the event. ``waiting_for`` lists victims by job."""

    waiting_for: tuple[str, ...]


class AllTaken(Fact, frozen=True):
    """The plans in the event were committed, and their clusters were told to launch them."""


class Launched(JobFact, frozen=True):
    """All slots of an attempt are free for it, and its cluster was told to launch it."""


class Up(JobFact, frozen=True):
    """An attempt's gang runs."""


class Kept(JobFact, frozen=True):
    """Work of an attempt up to ``at_s`` is safe."""

    at_s: float


class Stopping(JobFact, frozen=True):
    """An attempt was told to stop."""

    why: Outcome


class SlotsFreed(JobFact, frozen=True):
    """An attempt is over and its slots are free."""


class PlaceBooked(JobFact, frozen=True):
    """Seats are kept until a time for an attempt that moves; no other attempt can take them."""

    plan: Plan
    until_s: float


class PlaceGivenUp(JobFact, frozen=True):
    """A place is kept no more: its job sits there now (``used``) or elsewhere, or came too late."""

    used: bool


class PairedWith(JobFact, frozen=True):
    """An attempt has its GPUs at the same time as another (empty: no more)."""

    other: str


class HostSet(Fact, frozen=True):
    """A host's state as an operator wants it."""

    host: str
    state: HostState
    until_s: float | UnsetType = UNSET
    """When it takes work again by itself; absent: when it is told to."""


class HostsAssigned(Fact, frozen=True):
    """Hosts that shall go to other clusters, by host; all others stay."""

    owners: dict[str, str]


class HostsHandedOver(Fact, frozen=True):
    """Empty hosts went to other clusters, by host."""

    owners: dict[str, str]


class HostsGone(Fact, frozen=True):
    """Hosts that left the configuration are empty, and forgotten."""

    hosts: tuple[str, ...]


class HostReachable(Fact, frozen=True):
    """Whether the host's engine reaches it."""

    host: str
    up: bool


class HostClosure(Fact, frozen=True):
    """Whether the host's cluster gives it new work."""

    host: str
    why: str
    """Why it does not; empty: it does."""


class ClosureSet(Fact, frozen=True):
    """An operator closed a cluster or hosts to new work, or opened them again."""

    name: str
    closure: Closure | None = None
    """None: it is over."""


class HostSuspected(Fact, frozen=True):
    """An attempt failed for want of this host; it takes no work until ``until_s``."""

    host: str
    until_s: float


class SuspicionOver(Fact, frozen=True):
    """A suspect host takes work again."""

    host: str
