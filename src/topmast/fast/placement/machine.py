"""The regional placer: answers where a gang would best run, and keeps who holds what (RMS).

It searches only when asked, and changes its books only by commits, releases and host states.
Victims are stopped first; the preemptor is launched when the last of them has let go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from topmast.fast.machine import EventMachine, Fact
from topmast.fast.placement.allocation import Allocation, Hold
from topmast.fast.placement.changes import region_changes
from topmast.fast.placement.changes.trials import Spot, Trials
from topmast.fast.placement.columns import Columns
from topmast.fast.placement.explain import Verdicts, pending_reason, victims_of
from topmast.fast.placement.facts import (
    HostReachable,
    HostSet,
    HostSuspected,
    Kept,
    Launched,
    PlaceBooked,
    PlaceGivenUp,
    RegionSet,
    SlotsFreed,
    SlotsTaken,
    Stopping,
    SuspicionOver,
    Up,
)
from topmast.fast.placement.fewest import fewest
from topmast.fast.placement.holds import Holds
from topmast.fast.placement.index import Pool
from topmast.fast.placement.migration import GOING, Departure, departures, room_for
from topmast.fast.placement.overlay import Overlay
from topmast.fast.placement.places import Place, suits
from topmast.fast.placement.reservation import expected_end_s, first_start, without
from topmast.fast.placement.search import Found, Search
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import NotFound
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import MILLI, Band
from topmast.model.plan import Ask, Plan, Reservation, Victim
from topmast.model.reason import Change, ClusterVerdict, PendingReason, Rejection, VictimVerdict
from topmast.model.states import HostState, Outcome
from topmast.policies.base import Preemption, Profile, Score

KEPT_S = 60.0
"""How long a place is kept for a moved attempt after its grace: for the queue to ask about it again."""


class _State(Struct):
    region: RegionSpec
    version: int = 0
    allocations: dict[str, Allocation] = {}
    wanted: dict[str, HostState] = {}
    """Hosts that an operator cordoned or drains."""
    leaving: dict[str, bool] = {}
    """Hosts that left the configuration and still run something."""
    down: dict[str, bool] = {}
    suspect: dict[str, float] = {}
    """Hosts that take no work until a time."""
    places: dict[str, Place] = {}
    """By job, seats kept for attempts that are being moved."""
    places_used: int = 0
    places_missed: int = 0


class RegionalPlacer(EventMachine):
    """The machine of one region."""

    def __init__(
        self, region: str, profile: Profile, score: Score, pool: Pool | None = None
    ) -> None:
        """``pool``: of the process, so that the desk can look at all its regions at once."""
        super().__init__()
        self.region = region
        self.profile = profile
        self.score = score
        self.pool = pool or Pool()
        self.state = _State(RegionSpec(region, ()))
        self.columns = self._columns_of(self.state.region)
        self.holds = Holds()
        self.pool.put(self.columns)
        self._freed = False
        self._claims: dict[str, Allocation] = {}
        """Attempts whose victims still hold some of their slots."""

    # --- views for explanation and listing: read only ---------------------------------------------

    def search(self, now: float, ask: Ask | None = None) -> Search:
        """A search over the region as it is now, at the prices for one question or the usual ones."""
        state, profile = self.state, self.profile
        weights = profile.score if ask is None else self.score.weights(ask)
        if weights != profile.score:
            profile = msgspec.structs.replace(profile, score=weights)
        columns = self.columns
        if ask is not None and ask.held is not None and ask.held.region == self.region:
            columns = without(columns, ask.held)
        allocations = state.allocations
        if spoken_for := self.holds.victims():
            allocations = {j: a for j, a in allocations.items() if j not in spoken_for}
        return Search(self.region, columns, allocations, profile, state.version, now)

    def verdicts(
        self, ask: Ask, now: float, *, preempt: bool = True
    ) -> list[tuple[ClusterVerdict, Plan | None]]:
        """What a search finds in every cluster, by name: on free GPUs, else with preemption."""
        search = self.search(now, ask)
        preempt = preempt and self._may_preempt(ask)
        verdicts = Verdicts(search, ask, preempt=preempt)
        answers = []
        for name in sorted(self.columns.clusters):
            found = search.best(ask, name).plan
            if found is None and preempt:
                found = search.best(msgspec.structs.replace(ask, preempt=True), name).plan
            answers.append((verdicts.of(name, found), found))
        return answers

    def barred(self, ask: Ask, now: float, why: Rejection, detail: str) -> list[ClusterVerdict]:
        """What there is to say of every cluster, by name, when the region is ruled out."""
        verdicts = Verdicts(self.search(now, ask), ask, preempt=False)
        return [verdicts.barred(name, why, detail) for name in sorted(self.columns.clusters)]

    def victims(self, plan: Plan, now: float) -> tuple[VictimVerdict, ...]:
        """Those that a plan stops and that have not let go yet, and what that costs."""
        return victims_of(self.search(now), plan)

    def place(
        self, ask: Ask, now: float, *, preempt: bool = True, gone: tuple[str, ...] = ()
    ) -> Spot | None:
        """Where the gang has a place, once the jobs ``gone`` are. As `Trials.place`."""
        search = self.search(now, ask)
        if gone:
            held = search.allocations
            search.columns = search.columns.trial()
            for job in gone:
                if job in held:
                    search.columns.give_back(held[job].plan.seats, held[job].needs())
            search.allocations = {job: held[job] for job in held if job not in gone}
        return Trials(search, ask, preempt=preempt and self._may_preempt(ask)).place(ask)

    def changes(self, ask: Ask, now: float, *, preempt: bool = True) -> list[Change]:
        """What would have to change here for a gang that has no place. As `region_changes`."""
        held_here = ask.held is not None and ask.held.region == self.region
        trials = Trials(
            self.search(now, ask),
            ask,
            preempt=preempt and self._may_preempt(ask),
            unheld=self.columns if held_here else None,
        )
        return list(region_changes(trials))

    def expected_ends(self, now: float) -> dict[str, float]:
        """When each attempt is expected to let go of its seats, by job."""
        held, default_s = self.state.allocations, self.profile.default_duration_s
        return {job: expected_end_s(held[job], default_s, now) for job in held}

    def _may_preempt(self, ask: Ask) -> bool:
        return self.profile.preemption is Preemption.BAND and ask.band > Band.OPPORTUNISTIC

    # --- questions --------------------------------------------------------------------------------

    def _ask(self, event: m.AskPlans) -> None:
        answer = self.offer if not event.hold_s else partial(self._offer_held, event)
        offers = tuple(answer(ask) for ask in event.asks)
        self.send(ids.QUEUE, m.PlansOffered(event.batch, self.region, self.state.version, offers))
        self._announce()

    def _offer_held(self, event: m.AskPlans, ask: Ask) -> m.Offer:
        """An offer that is kept for a while; not if data must come first, for that takes longer."""
        self._let_go(ask.job)
        offer = self.offer(ask)
        if offer.plan is None:
            self.holds.denied = self.holds.denied or len(self.holds) > 0
        elif not ask.data_bytes and not ask.data_s:
            ticket = m.HoldTicket(f"{event.batch}.{ask.job}", self.now + event.hold_s)
            self.holds.take(self.columns, ticket.id, ask, offer.plan, ticket.expires_s)
            offer = msgspec.structs.replace(offer, hold=ticket)
        return offer

    def _drop_holds(self, event: m.DropHolds) -> None:
        for job in event.jobs:
            self._let_go(job)
        self._announce()

    def _let_go(self, job: str) -> str:
        """Hold nothing for a job any more; those who found no place meanwhile may find one now."""
        hold_id = self.holds.drop(self.columns, job)
        if hold_id:
            self._note_room()
        return hold_id

    def _note_room(self) -> None:
        """Something held came free: the books are as they were, but not what others were told."""
        self._freed = self._freed or self.holds.denied
        self.holds.denied = False

    def offer(self, ask: Ask) -> m.Offer:
        """The best plan for a job, or why there is none. A place that is kept for it goes first."""
        kept = self.kept_offer(ask)
        if kept is not None:
            return kept
        search = self.search(self.now, ask)
        if ask.room_gpu_s is not None:
            plan = room_for(search, ask)
            return self.refusal(ask, None) if plan is None else m.Offer(ask.job, plan)
        found = search.best(ask) if ask.outranked is None else self._outranking(search, ask)
        if found.plan is not None:
            return m.Offer(ask.job, found.plan)
        return self.refusal(ask, found.too_young_until_s)

    def kept_offer(self, ask: Ask) -> m.Offer | None:
        """The place kept for a job that is being moved, if it can still have it. O(1) for all others."""
        place = self.state.places.get(ask.job)
        if place is None or not suits(place, ask, self.columns):
            return None
        return m.Offer(
            ask.job, msgspec.structs.replace(place.plan, region_version=self.state.version)
        )

    def departures(self, hosts: tuple[str, ...], now: float) -> tuple[Departure, ...]:
        """What becomes of each attempt on hosts of this region that are drained."""
        search = self.search(now)
        search.allocations = self.state.allocations
        return departures(search, hosts)

    def refusal(self, ask: Ask, too_young_until_s: float | None) -> m.Offer:
        """Why there is no plan for a job; and when there will be one, if that is asked."""
        reason = pending_reason(self.columns, ask)
        first = None
        if ask.reserve and reason is PendingReason.INSUFFICIENT_CAPACITY:
            first = self.first_start(ask)
        return m.Offer(ask.job, None, reason, too_young_until_s, first)

    def _outranking(self, search: Search, ask: Ask) -> Found:
        """The best plan that stops some of the outranked, and as few from the last on as will do."""
        held = self.state.allocations
        lowest = msgspec.structs.replace(ask, band=Band.CRITICAL)
        victims = {
            job: msgspec.structs.replace(held[job], band=Band.OPPORTUNISTIC)
            for job in ask.outranked or ()
            if job in held
        }

        def stopping(count: int) -> Plan | None:
            search.allocations = dict(list(victims.items())[:count])
            return search.best(lowest).plan

        found = fewest(len(victims), stopping)
        if found is not None:
            return Found(found[1])
        search.allocations = victims
        return search.best(lowest)

    def first_start(self, ask: Ask, not_before_s: float = -math.inf) -> Reservation | None:
        """Where and when the gang is expected to start first; it is known that not before a time."""
        search, free = self.search(self.now, ask), msgspec.structs.replace(ask, preempt=False)

        def find(columns: Columns) -> Plan | None:
            search.columns = columns
            return search.best(free).plan

        held, default_s = self.state.allocations, self.profile.default_duration_s
        return first_start(
            ask, self.region, search.columns, held, find, default_s, self.now, not_before_s
        )

    # --- commits ----------------------------------------------------------------------------------

    def _commit(self, event: m.CommitPlan) -> None:
        plan = event.plan
        kept = self.holds.drop(self.columns, plan.job)
        why = self._no_longer_fits(plan, event)
        if why and event.hold not in ("", kept):
            why = f"{why}, and its hold had expired"
        if why:
            if kept:
                self._note_room()
                self._announce()
            self.send(ids.QUEUE, m.PlanRefused(plan.job, event.epoch, why))
            return
        held = self.state.allocations
        victims = [v for v in plan.victims if v.job in held]
        place = self.state.places.get(plan.job)
        if place is not None:
            self.decide(PlaceGivenUp(plan.job, used=place.plan.seats == plan.seats))
        self.decide(SlotsTaken(tuple(v.job for v in victims)))
        self.send(ids.QUEUE, m.PlanCommitted(plan.job, event.epoch, waiting=bool(victims)))
        for victim in victims:
            cause = f"migrated for {plan.job}" if victim.to else f"preempted by {plan.job}"
            self._stop(held[victim.job], Outcome.PREEMPTED, cause, victim.to)
        if not victims:
            self._launch(held[plan.job])
        if place is not None:
            self._announce()

    def _no_longer_fits(self, plan: Plan, event: m.CommitPlan) -> str:
        """Re-validate a plan against the books as they are; empty when it fits."""
        if plan.job in self.state.allocations:
            return "the job holds slots already"
        unchanged = plan.region_version == self.state.version and not len(self.holds)
        if unchanged and not plan.victims:
            return ""  # nothing has happened here since it was made
        trial = Overlay(self.columns)
        place = self.state.places.get(plan.job)
        if place is not None:
            trial.give_back(place.plan.seats, place.needs)
        for victim in plan.victims:
            held = self.state.allocations.get(victim.job)
            if held is None:
                continue  # gone by itself: its slots are free
            if held.epoch != victim.epoch or held.hold is Hold.STOPPING:
                return f"victim {victim.job} is another attempt or being stopped"
            trial.give_back(held.plan.seats, held.needs())
        for host in plan.hosts:
            row = self.columns.index.get(host)
            if row is None or not self.columns.available[row]:
                return f"host {host} takes no work"
        needs = {g.name: g.resources for g in event.spec.groups}
        trial.take(plan.seats, needs)
        for seat in plan.seats:
            if trial.overdrawn(seat, needs[seat.group]):
                return f"host {seat.host} has not enough free"
        return self._no_place_is_left(plan.victims, trial)

    def _no_place_is_left(self, victims: Iterable[Victim], trial: Overlay) -> str:
        """Whose place is not there any more, of those who are to move; empty if all are."""
        for victim in victims:
            held = self.state.allocations.get(victim.job)
            if held is None or victim.to is None:
                continue
            needs = held.needs()
            trial.take(victim.to.seats, needs)
            rows = [self.columns.index.get(host) for host in victim.to.hosts]
            there = all(row is not None and self.columns.available[row] for row in rows)
            if not there or any(trial.overdrawn(s, needs[s.group]) for s in victim.to.seats):
                return f"the place for {victim.job} is not free"
        return ""

    def _launch(self, allocation: Allocation) -> None:
        self.decide(Launched(allocation.job))
        plan = allocation.plan
        self.send(ids.QUEUE, m.AttemptStarting(plan.job, allocation.epoch))
        self.send(
            ids.cluster(plan.cluster),
            m.LaunchGang(
                plan.job,
                allocation.epoch,
                allocation.spec,
                self.region,
                plan.cluster,
                plan.seats,
                allocation.time_left_s,
            ),
        )

    def _stop(
        self, allocation: Allocation, why: Outcome, cause: str, to: Plan | None = None
    ) -> None:
        """Tell a launched attempt to stop, and the queue that it was told; keep the place it goes ``to``."""
        job, epoch = allocation.job, allocation.epoch
        if to is not None:
            grace_s = allocation.spec.checkpoint.grace_s
            self.decide(PlaceBooked(job, to, self.now + grace_s + KEPT_S))
        self.decide(Stopping(job, why))
        self.send(ids.cluster(allocation.plan.cluster), m.StopGang(job, epoch, why, cause))
        self.send(ids.QUEUE, m.AttemptStopping(job, epoch, why, cause, moves=to is not None))

    # --- the end of attempts -------------------------------------------------------------------------

    def _stop_attempt(self, event: m.StopAttempt) -> None:
        allocation = self._held(event.job, event.epoch)
        if allocation is None or allocation.hold is Hold.STOPPING:
            return
        if allocation.hold is Hold.CLAIMED:
            self._free(allocation, event.why, event.cause)
        else:
            self._stop(allocation, event.why, event.cause)
        self._announce()

    def _free(self, allocation: Allocation, why: Outcome, cause: str) -> None:
        """Give back what was claimed but never used."""
        job, epoch, start_s = allocation.job, allocation.epoch, allocation.start_s
        self.decide(SlotsFreed(job))
        ended = m.AttemptEnded(job, epoch, why, start_s, self.now, 0.0, cause)
        self.send(ids.QUEUE, ended)

    def _ended(self, event: m.AttemptEnded) -> None:
        allocation = self._held(event.job, event.epoch)
        if allocation is None:
            return
        self.decide(SlotsFreed(event.job))
        if event.outcome is not Outcome.PREEMPTED and event.job in self.state.places:
            self.decide(PlaceGivenUp(event.job, used=False))
        if event.outcome in (Outcome.HOST_LOST, Outcome.LAUNCH_FAILED):
            for host in event.suspects:
                self._suspect(host)
        self.send(ids.QUEUE, msgspec.structs.replace(event, start_s=allocation.start_s))
        for waiting in list(self._claims.values()):
            if not waiting.waiting_for:
                self._launch_or_refuse(waiting)
                self.columns.grown[waiting.plan.cluster] = None  # it may be stopped now
        self._announce()

    def _launch_or_refuse(self, allocation: Allocation) -> None:
        """A preemptor's turn: launch it, unless a host of its plan went away meanwhile."""
        rows = [self.columns.index.get(host) for host in allocation.plan.hosts]
        if all(row is not None and self.columns.available[row] for row in rows):
            self._launch(allocation)
        else:
            self._free(allocation, Outcome.PREEMPTED, "a host of the plan takes no more work")

    def _announce(self) -> None:
        """Tell the queue, once an event, that something came free; hosts that are drained go first."""
        if self._freed:
            self._freed = False
            self._drain(tuple(h for h, s in self.state.wanted.items() if s is HostState.DRAINING))
            clusters = tuple(c for c in self.columns.grown if c in self.columns.clusters)
            self.columns.grown.clear()
            self.send(ids.QUEUE, m.CapacityChanged(self.region, self.state.version, clusters))

    # --- news of running attempts ----------------------------------------------------------------

    def _running(self, event: m.AttemptRunning) -> None:
        if self._held(event.job, event.epoch):
            self.decide(Up(event.job))
            self.send(ids.QUEUE, event)

    def _checkpointed(self, event: m.AttemptCheckpointed) -> None:
        if self._held(event.job, event.epoch):
            self.decide(Kept(event.job, event.at_s))
            self.send(ids.QUEUE, event)

    def _resumed(self, event: m.AttemptResumed) -> None:
        if self._held(event.job, event.epoch):
            self.send(ids.QUEUE, event)

    def _stopping(self, event: m.AttemptStopping) -> None:
        if self._held(event.job, event.epoch):
            self.decide(Stopping(event.job, event.why))
            self.send(ids.QUEUE, event)

    # --- hosts ---------------------------------------------------------------------------------------

    def _configure(self, event: m.ConfigureRegion) -> None:
        if event.region != self.state.region or self.state.leaving:
            self.decide(RegionSet())
        for cluster in self.state.region.clusters:
            self.send(ids.cluster(cluster.name), m.ConfigureCluster(self.region, cluster))
        self._freed = False
        self.send(ids.QUEUE, m.CapacityChanged(self.region, self.state.version))

    def _set_host(self, event: m.SetHost) -> Any:
        if event.host not in self.columns.index:
            return NotFound(f"no host '{event.host}' in region '{self.region}'")
        trusted = event.host not in self.state.suspect
        known = self.state.wanted.get(event.host, HostState.HEALTHY) is event.state
        if not known or (event.state is HostState.HEALTHY and not trusted):
            self.decide(HostSet(event.host, event.state))
        if event.state is HostState.DRAINING:
            self._drain((event.host,), event.at_once)
        self._announce()
        return None

    def _drain(self, hosts: tuple[str, ...], at_once: bool = False) -> None:
        """Move away what has a place elsewhere; ``at_once``, stop also what has none."""
        held = self.state.allocations
        host_of = {
            a.job: next(host for host in a.plan.hosts if host in hosts)
            for a in held.values()
            if hosts and a.spec.preemptible and any(host in hosts for host in a.plan.hosts)
        }
        for job, host in host_of.items():
            if held[job].hold is Hold.CLAIMED:
                self._free(held[job], Outcome.PREEMPTED, f"host {host} is drained")
        if not any(held[job].hold in GOING for job in host_of if job in held):
            return
        for leaving in self.departures(hosts, self.now):
            if leaving.to is not None or (at_once and leaving.may_stop):
                host = host_of[leaving.job]
                moved, stopped = f"migrated off host {host} (drain)", f"host {host} is drained"
                cause = moved if leaving.to is not None else stopped
                self._stop(held[leaving.job], Outcome.PREEMPTED, cause, leaving.to)

    def _host_changed(self, event: m.HostChanged) -> None:
        if event.host in self.columns.index and self.state.down.get(event.host, False) is event.up:
            self.decide(HostReachable(event.host, event.up))
        if event.up and event.host in self.state.suspect:
            self.decide(SuspicionOver(event.host))
        self._announce()

    def _suspect(self, host: str) -> None:
        if host in self.columns.index:
            self.decide(HostSuspected(host, self.now + self.profile.suspect_s))

    def host_state(self, host: str) -> HostState:
        """What a host is to the search: unreachable beats an operator's wish beats suspicion."""
        if self.state.down.get(host):
            return HostState.DOWN
        if host in self.state.wanted:
            return self.state.wanted[host]
        if host in self.state.leaving:
            return HostState.DRAINING
        return HostState.SUSPECT if host in self.state.suspect else HostState.HEALTHY

    # --- recovery and time -----------------------------------------------------------------------------

    def _recovered(self, event: m.Recovered) -> None:
        """Nothing to say again: clusters repeat their orders, and the queue asks anew."""

    def next_wakeup_s(self) -> float | None:
        """When the first suspect host is trusted again, or the first place or hold expires."""
        times = [*self.state.suspect.values()]
        times += [place.until_s for place in self.state.places.values()]
        held_s = self.holds.next_expiry_s()
        return min(times if held_s is None else [*times, held_s], default=None)

    def _wake(self, event: m.Wake) -> None:
        for host, until_s in list(self.state.suspect.items()):
            if until_s <= self.now:
                self.decide(SuspicionOver(host))
        for job, place in list(self.state.places.items()):
            if place.until_s <= self.now:
                self.decide(PlaceGivenUp(job, used=False))
        if self.holds.drop_due(self.columns, self.now):
            self._note_room()
        self._announce()

    def _held(self, job: str, epoch: int) -> Allocation | None:
        allocation = self.state.allocations.get(job)
        return allocation if allocation is not None and allocation.epoch == epoch else None

    # --- facts ---------------------------------------------------------------------------------------

    def _apply_region(self, fact: RegionSet, event: m.ConfigureRegion) -> None:
        self._configure_columns(_with_hosts_in_use(event.region, self))
        self._more()

    def _apply_taken(self, fact: SlotsTaken, event: m.CommitPlan) -> None:
        allocation = Allocation(
            plan=event.plan,
            epoch=event.epoch,
            spec=event.spec,
            band=event.band,
            start_s=self.now,
            time_left_s=event.time_left_s,
            expected_s=event.expected_s,
            hold=Hold.CLAIMED,
            waiting_for=list(fact.waiting_for),
        )
        self.state.allocations[event.plan.job] = self._claims[event.plan.job] = allocation
        self.columns.hold(allocation)
        self.state.version += 1

    def _apply_launched(self, fact: Launched, event: m.Message) -> None:
        allocation = self.state.allocations[fact.job]
        self._claims.pop(fact.job, None)
        allocation.hold = Hold.STARTING
        allocation.start_s = self.now
        self.columns.note(allocation)

    def _apply_up(self, fact: Up, event: m.Message) -> None:
        allocation = self.state.allocations[fact.job]
        allocation.running_s = self.now
        if allocation.hold is Hold.STARTING:
            allocation.hold = Hold.RUNNING
        self.columns.note(allocation)

    def _apply_kept(self, fact: Kept, event: m.Message) -> None:
        allocation = self.state.allocations[fact.job]
        allocation.kept_until_s = fact.at_s
        self.columns.note(allocation)

    def _apply_stopping(self, fact: Stopping, event: m.Message) -> None:
        allocation = self.state.allocations[fact.job]
        allocation.hold = Hold.STOPPING
        allocation.why = fact.why
        self.columns.note(allocation)

    def _apply_freed(self, fact: SlotsFreed, event: m.Message) -> None:
        allocation = self.state.allocations.pop(fact.job)
        self._claims.pop(fact.job, None)
        self.columns.let_go(allocation)
        for other in self._claims.values():
            if fact.job in other.waiting_for:
                other.waiting_for.remove(fact.job)
        self._more()

    def _apply_booked(self, fact: PlaceBooked, event: m.Message) -> None:
        needs = self.state.allocations[fact.job].needs()
        self.state.places[fact.job] = Place(fact.plan, needs, fact.until_s)
        self.columns.take(fact.plan.seats, needs)
        self.state.version += 1

    def _apply_given_up(self, fact: PlaceGivenUp, event: m.Message) -> None:
        place = self.state.places.pop(fact.job)
        self.columns.give_back(place.plan.seats, place.needs)
        self.columns.grown[place.plan.cluster] = None
        self.state.places_used += fact.used
        self.state.places_missed += not fact.used
        self._more()

    def _apply_host(self, fact: HostSet, event: m.Message) -> None:
        if fact.state is HostState.HEALTHY:
            self.state.wanted.pop(fact.host, None)
            self.state.suspect.pop(fact.host, None)
        else:
            self.state.wanted[fact.host] = fact.state
        self._refresh(fact.host)

    def _apply_reachable(self, fact: HostReachable, event: m.Message) -> None:
        if fact.up:
            self.state.down.pop(fact.host, None)
        else:
            self.state.down[fact.host] = True
        self._refresh(fact.host)

    def _apply_suspected(self, fact: HostSuspected, event: m.Message) -> None:
        self.state.suspect[fact.host] = fact.until_s
        self._refresh(fact.host)

    def _apply_trusted(self, fact: SuspicionOver, event: m.Message) -> None:
        self.state.suspect.pop(fact.host, None)
        self._refresh(fact.host)

    def _refresh(self, host: str) -> None:
        if host in self.columns.index:
            self.columns.set_state(host, self.host_state(host))
        self._more()

    def _more(self) -> None:
        """Capacity may have grown: plans made before are void, refused jobs worth another look."""
        self.state.version += 1
        self._freed = True

    def _columns_of(self, region: RegionSpec) -> Columns:
        columns = Columns(region)
        columns.allocations = self.state.allocations
        stops = self.profile.preemption is not Preemption.NONE
        columns.watched = stops or self.profile.defragment
        return columns

    def _configure_columns(self, region: RegionSpec) -> None:
        self.state.region = region
        self.columns = self._columns_of(region)
        self.holds.forget()
        for allocation in self.state.allocations.values():
            self.columns.take(allocation.plan.seats, allocation.needs())
        for place in self.state.places.values():
            self.columns.take(place.plan.seats, place.needs)
        for host in self.columns.index:
            self.columns.set_state(host, self.host_state(host))
        self.pool.put(self.columns)

    # --- snapshots -------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The whole state as JSON; columns are rebuilt from it. O(hosts + attempts)."""
        return msgspec.json.encode(self.state)

    def restore(self, blob: bytes) -> None:
        """Take up a state written by ``snapshot``."""
        self.state = msgspec.json.decode(blob, type=_State)
        held = self.state.allocations
        self._claims = {job: a for job, a in held.items() if a.hold is Hold.CLAIMED}
        self._configure_columns(self.state.region)

    def held_gpus(self) -> float:
        """GPUs in attempts' hands, each counted once."""
        return sum(a.plan.gpus_milli for a in self.state.allocations.values()) / MILLI

    handlers: ClassVar[dict[type[m.Message], Callable[..., Any]]] = {
        m.ConfigureRegion: _configure,
        m.Recovered: _recovered,
        m.Wake: _wake,
        m.AskPlans: _ask,
        m.CommitPlan: _commit,
        m.StopAttempt: _stop_attempt,
        m.DropHolds: _drop_holds,
        m.SetHost: _set_host,
        m.HostChanged: _host_changed,
        m.AttemptRunning: _running,
        m.AttemptCheckpointed: _checkpointed,
        m.AttemptResumed: _resumed,
        m.AttemptStopping: _stopping,
        m.AttemptEnded: _ended,
    }
    appliers: ClassVar[dict[type[Fact], Callable[..., None]]] = {
        RegionSet: _apply_region,
        SlotsTaken: _apply_taken,
        Launched: _apply_launched,
        Up: _apply_up,
        Kept: _apply_kept,
        Stopping: _apply_stopping,
        SlotsFreed: _apply_freed,
        PlaceBooked: _apply_booked,
        PlaceGivenUp: _apply_given_up,
        HostSet: _apply_host,
        HostReachable: _apply_reachable,
        HostSuspected: _apply_suspected,
        SuspicionOver: _apply_trusted,
    }


def _with_hosts_in_use(region: RegionSpec, placer: RegionalPlacer) -> RegionSpec:
    """The new configuration, plus hosts that left it while attempts still run there: draining."""
    listed = {h.name for c in region.clusters for h in c.hosts}
    leaving: dict[str, list[HostSpec]] = {}
    placer.state.leaving = {}
    for allocation in placer.state.allocations.values():
        for name in allocation.plan.hosts:
            if name not in listed and name in placer.columns.index:
                listed.add(name)
                spec = placer.columns.hosts[placer.columns.index[name]]
                leaving.setdefault(allocation.plan.cluster, []).append(spec)
                placer.state.leaving[name] = True
    if not leaving:
        return region
    known = {c.name for c in region.clusters}
    clusters = [
        ClusterSpec(c.name, c.hosts + tuple(leaving.get(c.name, ())), c.engine, c.options)
        for c in region.clusters
    ]
    clusters += [ClusterSpec(n, tuple(h)) for n, h in sorted(leaving.items()) if n not in known]
    return RegionSpec(region.name, tuple(clusters), region.storage_bytes, region.store)
