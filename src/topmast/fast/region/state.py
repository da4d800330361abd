"""What a placer knows of its region: the books, and the columns that are made of them."""

from __future__ import annotations

from collections import ChainMap

import msgspec
from msgspec import UNSET, Struct, UnsetType

from topmast.fast.machine import EventMachine
from topmast.fast.region.hooks import SharingHooks
from topmast.fast.region.inventory.allocation import Allocation, AllocationPhase
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.inventory.index import Pool
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.fast.region.reservation.bookings import Booking
from topmast.fast.region.reservation.first_starts import Ends, without
from topmast.fast.region.reservation.leases import OfferLeases
from topmast.model.absent import given
from topmast.model.fleet import RegionSpec
from topmast.model.job import MILLI
from topmast.model.messages.placers import Closure, HostOrder
from topmast.model.plan import PlacementRequest, Reservation
from topmast.model.states import HostState
from topmast.policies.base import RebalancePolicy, ScorePolicy
from topmast.policies.options import Preemption, Profile


class Books(Struct):
    """What a snapshot holds; columns are rebuilt from it."""

    region: RegionSpec
    version: int = 0
    allocations: dict[str, Allocation] = {}
    wanted: dict[str, HostState] = {}
    """Hosts that an operator cordoned or drains."""
    until: dict[str, float] | UnsetType = UNSET
    """When some of these take work again by themselves."""
    orders: dict[str, HostOrder] | UnsetType = UNSET
    """By which order, and why, some of these are put aside."""
    leaving: dict[str, bool] = {}
    """Hosts that left the configuration and still run something."""
    assigned: dict[str, str] = {}
    """Hosts that go to another cluster as soon as they are empty."""
    down: dict[str, bool] = {}
    closed: dict[str, str] = {}
    """Hosts that their cluster gives no new work, and why."""
    closures: dict[str, Closure] | UnsetType = UNSET
    """By name, what operators closed to new work."""
    suspect: dict[str, float] = {}
    """Hosts that take no work until a time."""
    places: dict[str, Booking] = {}
    """By job, seats kept for attempts that are being moved."""
    places_used: int = 0
    places_missed: int = 0


class RegionState(EventMachine):
    """The state of one region, and what more than one fact needs."""

    def __init__(
        self,
        region: str,
        profile: Profile,
        score: ScorePolicy,
        pool: Pool | None = None,
        rebalance: RebalancePolicy | None = None,
    ) -> None:
        """``pool``: of the process, so that the desk can look at all its regions at once."""
        super().__init__()
        self.region = region
        self.profile = profile
        self.score = score
        self.preemption = profile.preemption
        """What may be stopped for a job."""
        self.rebalance = rebalance
        self.shut: dict[str, str] = {}
        """Hosts that operators closed to new work, and why."""
        self.sharing = self._hooks()
        """Takes part where gangs may share GPUs."""
        self.pool = pool or Pool()
        self.state = Books(RegionSpec(region, ()))
        self.columns = self._columns_of(self.state.region)
        self.holds = OfferLeases()
        self.first_starts: dict[PlacementRequest, tuple[int, Ends, Reservation | None]] = {}
        """By question, what was found with these books and expected ends: the job that waits for
        room is asked about at each change, and one region of many has changed since."""
        self.pool.put(self.columns)
        self.freed = False
        self.health_changed = False
        """Whether some host takes work, or takes none, other than when the queue was told last."""
        self.out_of_service: dict[str, int] = {}
        """What the queue was told: GPUs by model on hosts that take no work."""
        self.claims: dict[str, Allocation] = {}
        """Attempts with slots that their victims still hold."""

    def _hooks(self) -> SharingHooks:
        """None takes part, unless a subclass knows better."""
        return SharingHooks()

    def search(self, now: float, ask: PlacementRequest | None = None) -> PreemptiveSearch:
        """A search over the region as it is, at the prices for one question or the usual ones."""
        state, profile = self.state, self.profile
        weights = profile.score if ask is None else self.score.weights(ask)
        if weights is not profile.score and weights != profile.score:
            profile = msgspec.structs.replace(profile, score=weights)
        columns = self.columns
        if ask is not None and ask.held is not None and ask.held.region == self.region:
            columns = without(columns, ask.held)
        held, version = self.stoppable(), state.version
        return PreemptiveSearch(self.region, columns, held, profile, version, now)

    def stoppable(self) -> dict[str, Allocation]:
        """The attempts that may be stopped: not those on which a held offer counts. O(attempts)."""
        held = self.state.allocations
        spoken_for = self.holds.victims() if len(self.holds) else ()
        return {j: a for j, a in held.items() if j not in spoken_for} if spoken_for else held

    def held(self, job: str, epoch: int) -> Allocation | None:
        """The attempt with this number, if it holds slots."""
        allocation = self.state.allocations.get(job)
        return allocation if allocation is not None and allocation.epoch == epoch else None

    def host_state(self, host: str) -> HostState:
        """What a host is to the search.

        Unreachable beats an operator's wish, that beats the cluster's, and that beats suspicion.
        """
        if self.state.down.get(host):
            return HostState.DOWN
        if host in self.state.wanted:
            return self.state.wanted[host]
        if host in self.state.leaving or host in self.state.assigned:
            return HostState.DRAINING
        if host in self.shut or host in self.state.closed:
            return HostState.CLOSED
        return HostState.SUSPECT if host in self.state.suspect else HostState.HEALTHY

    def drained_hosts(self) -> tuple[str, ...]:
        """Hosts that are to be empty.

        An operator wants it, they leave the fleet, or another cluster waits for them.
        """
        wanted = self.state.wanted
        drained = [host for host, state in wanted.items() if state is HostState.DRAINING]
        others = (*self.state.leaving, *self.state.assigned)
        return (*drained, *dict.fromkeys(host for host in others if host not in wanted))

    def held_gpus(self) -> float:
        """GPUs in attempts' hands, each counted once."""
        held = self.state.allocations.values()
        return sum(a.plan.gpus_milli for a in held if not a.plan.colocated_with) / MILLI

    def more(self) -> None:
        """Capacity may have grown: plans made before are void, refused jobs worth another look."""
        self.state.version += 1
        self.freed = True

    def _columns_of(self, region: RegionSpec) -> Columns:
        columns = Columns(region, self.profile.slices.layers)
        columns.allocations = self.state.allocations
        columns.closed = ChainMap(self.shut, self.state.closed)
        columns.affinity = self.sharing.affinity
        stops = self.profile.preemption is not Preemption.NONE
        columns.watched = stops or self.profile.defragment
        return columns

    def configure_columns(self, region: RegionSpec) -> None:
        """Make the columns anew from the books. O(hosts + attempts)."""
        self.state.region = region
        self.columns = self._columns_of(region)
        self.holds.forget()
        for allocation in self.state.allocations.values():
            plan = allocation.plan
            self.columns.take(plan.seats, allocation.needs(), plan.in_slice)
        for place in self.state.places.values():
            self.columns.take(place.plan.seats, place.needs, place.plan.in_slice)
        self.note_closures()
        for host in self.columns.index:
            self.columns.set_state(host, self.host_state(host))
        self.pool.put(self.columns)

    def note_closures(self) -> None:
        """Learn anew which hosts operators closed. O(hosts in closures)."""
        self.shut.clear()
        columns, closures = self.columns, given(self.state.closures, {})
        for name in sorted(closures):
            closure = closures[name]
            rows = columns.clusters.get(closure.cluster, ())
            for host in (*(columns.hosts[row].name for row in rows), *closure.hosts):
                self.shut.setdefault(host, closure.why)

    def snapshot(self) -> bytes:
        """The whole state as JSON; columns are rebuilt from it. O(hosts + attempts)."""
        return msgspec.json.encode(self.state)

    def restore(self, blob: bytes) -> None:
        """Take up a state written by ``snapshot``."""
        self.state = msgspec.json.decode(blob, type=Books)
        held = self.state.allocations
        self.claims = {job: a for job, a in held.items() if a.hold is AllocationPhase.CLAIMED}
        self.configure_columns(self.state.region)
