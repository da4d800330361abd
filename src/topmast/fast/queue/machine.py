"""The global queue: who is next, where may it run, which region's plan wins (architecture: GMS).

The cycle, in order: take the best-ranked job of an open line; see whether its tenant may start it; ask
every eligible region for a plan on free GPUs; if there is none, ask again with preemption; take the
best plan over all regions and commit it there, or order the copy of data that the best plan wants; if
nothing was found, close the line until something changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from topmast.fast.machine import EventMachine, Fact
from topmast.fast.queue import facts as f
from topmast.fast.queue.auction import Asking, earliest, most_hopeful, no_region, winner
from topmast.fast.queue.backfill import Backfill
from topmast.fast.queue.binding import Binding
from topmast.fast.queue.catalogue import Catalogue, DataCost, DatasetRecord
from topmast.fast.queue.defragmentation import Defragmentation
from topmast.fast.queue.durations import Durations, History
from topmast.fast.queue.ledger import Ledger
from topmast.fast.queue.mix import Mix
from topmast.fast.queue.pending import Candidate, Pending, effective_band
from topmast.fast.queue.reach import Reach
from topmast.fast.queue.record import JobRecord
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.dataset import Copy, ReplicaState
from topmast.model.errors import Conflict, NotFound, TopmastError
from topmast.model.fleet import Fleet, RegionSpec
from topmast.model.job import MILLI, Accelerator, Band, JobSpec, Resources
from topmast.model.plan import Ask, GroupAsk, Plan, Reservation
from topmast.model.reason import PendingReason, Rejection
from topmast.model.states import HOLDING, WAITING, JobState, Outcome, may_move
from topmast.policies.base import Bind, Order, Preemption, Profile, WhenBlocked

ASKS_PER_WAKE = 200
"""Plans sought before other events get their turn."""
ASK_TIMEOUT_S = 5.0
REFUSAL_DELAY_S = 1.0
"""How long a job waits after a region refused its plan, so that nobody argues in circles."""
FETCH_AGAIN_S = 60.0
"""How often a job whose data is being copied is looked at: room may come up where its data is already."""
FINISHED_KEPT = 10_000
"""Finished jobs kept in memory; older ones are in the audit tables."""
KEYS_KEPT = 200_000
NO_COST = DataCost()
"""Of a job that reads no data."""


class _Key(Struct):
    digest: str
    first_number: int
    count: int


class _State(Struct):
    """What a snapshot holds; lines, counters and the order are rebuilt from it."""

    fleet: Fleet = Fleet(())
    jobs: dict[str, JobRecord] = {}
    finished: list[str] = []
    next_job: int = 1
    next_copy: int = 1
    keys: dict[str, _Key] = {}
    datasets: dict[str, DatasetRecord] = {}
    copies: dict[str, Copy] = {}
    failed_copies: dict[str, float] = {}
    used_at_s: float = 0.0
    used_gpu_s: dict[str, float] = {}
    histories: dict[str, History] = {}
    sizes: dict[int, float] = {}


class GlobalQueue(EventMachine):
    """The machine of the world. There is one."""

    def __init__(self, profile: Profile, order: Order, bind: Bind | None = None) -> None:
        super().__init__()
        self.profile = profile
        self.order = order
        self.binding = Binding(profile.bind, bind)
        self.fleet = Fleet(())
        self.jobs: dict[str, JobRecord] = {}
        self.catalogue = Catalogue()
        self.ledger = Ledger(())
        self.durations = Durations(profile.default_duration_s)
        self.mix = Mix()
        self.pending = self._nobody_waits()
        self._finished: list[str] = []
        self._next_job = 1
        self._next_copy = 1
        self._keys: dict[str, _Key] = {}
        self._gpus_by_region: dict[str, int] = {}
        self._models: tuple[str, ...] = ()
        self._regions: list[str] = []
        """By name."""
        self._model_of: dict[str, str] = {}
        # Working memory of the cycle: never journalled, rebuilt or simply forgotten.
        self.backfill = Backfill(profile.reserve_after_s)
        self.defragmentation = Defragmentation(profile)
        self.reach = Reach()
        self._placed: dict[str, JobRecord] = {}
        self._asking: Asking | None = None
        self._batch = 0
        self._budget = 0
        self._quota_seen = 0
        """As of which change of the ledger lines are open or closed."""

    def _nobody_waits(self) -> Pending:
        return Pending(self.order, lambda tenant: self.ledger.fairness(tenant), self.durations)

    # --- configuration, recovery, time ------------------------------------------------------------

    def _configure(self, event: m.ConfigureFleet) -> None:
        names = {region.name for region in event.fleet.regions}
        gone = [region.name for region in self.fleet.regions if region.name not in names]
        if event.fleet != self.fleet:
            self.decide(f.FleetSet())
            for record in [r for r in self.jobs.values() if self.binding.is_astray(r)]:
                self._bind_again(record)
        for name in gone:
            self.send(ids.placer(name), m.ConfigureRegion(RegionSpec(name, ())))
        for region in event.fleet.regions:
            self.send(ids.placer(region.name), m.ConfigureRegion(region))

    def _recovered(self, event: m.Recovered) -> None:
        """Order again the copies that were under way."""
        for copy in self.catalogue.copies.values():
            self._order(copy)
        self.pending.reopen()

    def next_wakeup_s(self) -> float | None:
        """At once while candidates wait; else when a back-off ends or time reopens a line."""
        if self._asking is not None:
            return self._asking.deadline_s
        if self.pending.stirred or self._quota_may_help():
            return 0.0
        return earliest(
            (
                self.pending.next_release_s(),
                self.pending.next_retry_s(),
                self.backfill.due_s,
                self.reach.next_retry_s(),
                self.binding.next_s(),
            )
        )

    def _wake(self, event: m.Wake) -> None:
        for record in self.pending.release(self.now):
            self._enqueue(record)
        for job in self.binding.due(self.now):
            self._bind_again(self.jobs[job])
        self.pending.reopen_due(self.now)
        if self.reach.retry(self.now) or self.backfill.is_due(self.now):
            self.pending.reopen()
        if self._quota_may_help():
            self._quota_seen = self.ledger.changes
            self.pending.reopen_for_quota(self.choices)
        if self.now - self.pending.ranked_at_s >= self.profile.rerank_interval_s:
            self.pending.rerank(self.now)
            self.mix.settle()
        self._budget = ASKS_PER_WAKE
        if self._asking is not None:
            if self._asking.deadline_s > self.now:
                return
            self._give_up_on_silent()
        else:
            self._advance()

    def _quota_may_help(self) -> bool:
        """Whether quota changed since lines were refused that it might let use more."""
        return self.pending.wants_quota and self._quota_seen != self.ledger.changes

    # --- ranking ------------------------------------------------------------------------------------

    def rank_key(self, record: JobRecord) -> tuple[float, ...]:
        """Where a waiting job ranks, lower first: as its quota allows, in the order of the profile."""
        return self.pending.key(record, not self.choices(record.spec, over_quota=False))

    @property
    def has_forgotten(self) -> bool:
        """Whether finished jobs have left memory."""
        return len(self.jobs) < self._next_job - 1

    # --- the cycle --------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Ask about the next candidates until one question is out or the budget is spent."""
        while self._asking is None and self._budget > 0:
            candidate = self.pending.next()
            if candidate is None:
                return
            self._budget -= 1
            self._consider(candidate)

    def _consider(self, candidate: Candidate) -> None:
        """May this job start in this mode? Then ask the regions; else close its line."""
        record, over_quota = self.jobs[candidate.job], candidate.over_quota
        unknown = self.catalogue.unknown(record.spec.datasets)
        if unknown:
            self._close(candidate, PendingReason.UNKNOWN_DATASET, ", ".join(unknown))
            return
        choices = self.choices(record.spec, over_quota)
        if not choices:
            if over_quota and not self.choices(record.spec, over_quota=False):
                self._close(candidate, *self.quota_reason(record.spec))
            else:
                self._pass_over(candidate)
            return
        costs = self.data_costs(record.spec)
        if record.bound is not None and record.bound.region in costs:
            costs = {record.bound.region: costs[record.bound.region]}
        regions = [r for r, cost in costs.items() if cost.barred is None]
        if not regions:
            detail = "; ".join(f"{r}: {c.barred} ({c.detail})" for r, c in costs.items())
            retry_at_s = earliest(c.retry_at_s for c in costs.values())
            self._close(candidate, no_region(costs.values()), detail, retry_at_s)
            return
        self._ask(candidate, choices, costs, regions, preempt=False)

    def _ask(
        self,
        candidate: Candidate,
        choices: tuple[int, ...],
        costs: dict[str, DataCost],
        regions: list[str],
        *,
        preempt: bool,
        free_best: Plan | None = None,
        room_gpu_s: float | None = None,
    ) -> None:
        record = self.jobs[candidate.job]
        self._batch += 1
        held = self.held_from(record.spec, record, candidate.over_quota)
        self._asking = asking = Asking(
            self._batch, candidate, choices, preempt, list(regions), self.now + ASK_TIMEOUT_S,
            costs, self.pending.changes, held, free_best=free_best, offers={},
            moves=room_gpu_s is not None,
        )  # fmt: skip
        outranked = None
        if preempt and self.profile.preemption is Preemption.RANK:
            outranked = self._outranked(candidate)
        reserve = self.backfill.may_reserve(record, self.now)
        reserve = reserve and not self._may_preempt(record, asking)
        ask = self.question(
            record.spec, candidate.over_quota, choices, preempt=preempt, job=record.id,
            avoid_hosts=record.avoid_hosts, held=held, reserve=reserve, outranked=outranked,
            room_gpu_s=room_gpu_s,
            cluster=None if record.bound is None else record.bound.cluster,
        )  # fmt: skip
        terms = {region: self.terms(region, costs[region]) for region in regions}
        line, hold_s = self.pending.line(record.id).number, self.reach.hold_s()
        question = m.AskFleet(self._batch, ask, terms, line, candidate.over_quota, hold_s)
        self.send(ids.DESK, question)

    def question(
        self,
        spec: JobSpec,
        over_quota: bool,
        choices: tuple[int, ...],
        *,
        preempt: bool,
        job: str = "",
        avoid_hosts: tuple[str, ...] = (),
        held: Reservation | None = None,
        reserve: bool = False,
        outranked: tuple[str, ...] | None = None,
        room_gpu_s: float | None = None,
        cluster: str | None = None,
    ) -> Ask:
        """The question about a job, as far as it is the same for all regions."""
        return Ask(
            job=job,
            groups=tuple(GroupAsk(g.name, g.count, self._named(g.resources)) for g in spec.groups),
            topology=spec.topology,
            band=effective_band(spec.band, over_quota),
            preempt=preempt,
            models=choices,
            avoid_hosts=avoid_hosts,
            held=held,
            reserve=reserve,
            outranked=outranked,
            room_gpu_s=room_gpu_s,
            mix=self.mix.current,
            cluster=cluster,
        )

    def ask_for(
        self,
        spec: JobSpec,
        region: str,
        over_quota: bool,
        choices: tuple[int, ...],
        cost: DataCost,
        *,
        preempt: bool,
        job: str = "",
        avoid_hosts: tuple[str, ...] = (),
        held: Reservation | None = None,
    ) -> Ask:
        """The question put to one region."""
        terms = self.terms(region, cost)
        return msgspec.structs.replace(
            self.question(
                spec,
                over_quota,
                choices,
                preempt=preempt,
                job=job,
                avoid_hosts=avoid_hosts,
                held=held,
            ),
            data_bytes=terms.data_bytes,
            data_s=terms.data_s,
            balance=terms.balance,
        )

    def terms(self, region: str, cost: DataCost) -> m.RegionTerms:
        """What a region adds to the question."""
        return m.RegionTerms(cost.bytes, cost.seconds, self.demand_supply(region))

    def _outranked(self, candidate: Candidate) -> tuple[str, ...]:
        """The running jobs that rank behind a waiting one now, the last first. O(running log running)."""
        running = [record for record in self._placed.values() if record.state in HOLDING]
        keys = self.pending.keys_of_running(running, self.now)
        mine = candidate.key[:-1]
        behind = [(key, r.id) for key, r in zip(keys, running, strict=True) if key > mine]
        return tuple(job for _, job in sorted(behind, reverse=True))

    def held_from(
        self, spec: JobSpec, record: JobRecord | None, over_quota: bool
    ) -> Reservation | None:
        """The seats reserved for another job that this one may not take now."""
        if record is None:
            job, remaining_s = "", self.durations.expected_s(spec)
        else:
            job, remaining_s = record.id, self.pending.remaining_s(record)
        band = effective_band(spec.band, over_quota)
        return self.backfill.binds(job, band, spec.gpus_milli(), remaining_s, self.now)

    def _link_up(self, event: m.LinkUp) -> None:
        """A region is back: it may have room for those that were refused everywhere else."""
        self.reach.find(event.region)
        self.pending.reopen()

    def _link_down(self, event: m.LinkDown) -> None:
        """A region is gone: decide without it what it was asked about, and ask it no more."""
        self.reach.lose(event.region, event.why, self.now)
        asking = self._asking
        if asking is None:
            return
        asking.offers.pop(event.region, None)
        if asking.free_best is not None and asking.free_best.region == event.region:
            asking.free_best = None
        if event.region in asking.awaited:
            asking.awaited.remove(event.region)
            asking.silent += (event.region,)
            if not asking.awaited:
                self._auction(asking)
                self._advance()

    def _offered(self, event: m.PlansOffered) -> None:
        if self.reach.hear(event.region):
            self.pending.reopen()
        asking = self._asking
        if asking is None or event.batch != asking.batch or event.region not in asking.awaited:
            return
        asking.awaited.remove(event.region)
        asking.offers[event.region] = event.offers[0]
        if not asking.awaited:
            self._auction(asking)
            self._advance()

    def _fleet_offered(self, event: m.FleetOffered) -> None:
        asking = self._asking
        if asking is None or event.batch != asking.batch:
            return
        heard = frozenset(event.regions)
        asking.awaited = [r for r in asking.awaited if r not in heard]
        asking.offers.update(event.offers)
        if not asking.awaited:
            self._auction(asking)
            self._advance()

    def _give_up_on_silent(self) -> None:
        """Regions that did not answer in time are passed over this once."""
        asking = self._asking
        if asking is not None:
            asking.silent += tuple(asking.awaited)
            for region in asking.awaited:
                self.reach.miss(region, ASK_TIMEOUT_S, self.now)
            self._auction(asking)
            self._advance()

    def _auction(self, asking: Asking) -> None:
        """All offers are in: commit the best plan, order its data, ask for more, or close.

        More is: with moves, if it waited long, and with preemption. The better of the two wins.
        """
        self._asking = None
        candidate = asking.candidate
        record = self.jobs.get(candidate.job)
        best = winner([asking.free_best, *(o.plan for o in asking.offers.values())])
        gone = record is None or self.pending.line_of(record.id) is None
        self._release_holds(asking, None if gone else best)
        if record is None or gone:
            return  # it was cancelled while the regions thought about it
        may_preempt = self._may_preempt(record, asking)
        may_win = best is not None and not asking.costs[best.region].missing
        near = self._with_data(asking)
        if best is not None and may_win and not (best.victims and may_preempt):
            self._commit(record, asking, best)
        elif near and self._may_move(record, asking):
            band = effective_band(record.spec.band, candidate.over_quota)
            worth_gpu_s = self.defragmentation.worth_gpu_s(record, band, self.now)
            self.defragmentation.asked(record.id, self.now)
            self._ask(
                candidate, asking.choices, asking.costs, near, preempt=False, free_best=best,
                room_gpu_s=worth_gpu_s,
            )  # fmt: skip
        elif may_preempt:
            self._ask(candidate, asking.choices, asking.costs, near, preempt=True, free_best=best)
        elif best is not None:
            self._fetch(record, asking, best)
        elif record.avoid_hosts:
            self.decide(f.Forgiven(record.id))
        elif asking.changes == self.pending.changes:  # else it is asked about once more
            reason = most_hopeful(o.reason for o in asking.offers.values())
            retry_at_s = earliest(o.retry_at_s for o in asking.offers.values())
            copies_at_s = earliest(c.retry_at_s for c in asking.costs.values())
            retry_at_s = earliest((retry_at_s, copies_at_s))
            if asking.silent:
                retry_at_s = earliest((retry_at_s, self.now + ASK_TIMEOUT_S))
            freed = False
            if reason is PendingReason.INSUFFICIENT_CAPACITY:
                band = effective_band(record.spec.band, candidate.over_quota)
                offered = [o.reservation for o in asking.offers.values()]
                freed = self.backfill.found_no_room(record, band, offered, self.now)
                moves_at_s = self.defragmentation.found_no_room(record.id, self.now)
                retry_at_s = earliest((retry_at_s, moves_at_s))
            detail = (
                f"room in {asking.held.region} is kept for {asking.held.job}" if asking.held else ""
            )
            self._close(candidate, reason, detail, retry_at_s, asking.held)
            if freed:
                self.pending.reopen()

    def _release_holds(self, asking: Asking, best: Plan | None) -> None:
        """Tell the regions apart that lost the auction to keep their offers no longer."""
        for region, offer in asking.offers.items():
            if offer.hold is not None and offer.plan is not best:
                self.send(ids.placer(region), m.DropHolds((offer.job,)))

    def _with_data(self, asking: Asking) -> list[str]:
        """Regions that can be asked and have the job's data already."""
        near = [r for r, c in asking.costs.items() if c.barred is None and not c.missing]
        return [region for region in near if region not in self.reach.absent]

    def _may_move(self, record: JobRecord, asking: Asking) -> bool:
        if asking.preempt or asking.moves or not record.spec.gpus_milli():
            return False
        reasons = [offer.reason for offer in asking.offers.values()]
        busy = PendingReason.INSUFFICIENT_CAPACITY in reasons
        return busy and self.defragmentation.may_ask(record.id, self.now)

    def _may_preempt(self, record: JobRecord, asking: Asking) -> bool:
        if asking.preempt or self.profile.preemption is Preemption.NONE:
            return False
        if not self._with_data(asking):
            return False
        band = effective_band(record.spec.band, asking.candidate.over_quota)
        return self.profile.preemption is Preemption.RANK or band > Band.OPPORTUNISTIC

    def _commit(self, record: JobRecord, asking: Asking, plan: Plan) -> None:
        """Write the attempt and its class down, and let the region carry it out."""
        over_quota = asking.candidate.over_quota
        offer = asking.offers.get(plan.region)
        hold = offer.hold.id if offer is not None and offer.hold is not None else ""
        plan = self._counted(record.spec, plan)
        may = self._may_borrow if over_quota else self._is_within
        if plan.gpus_milli and not may(record.spec, plan.held()):
            # The quota changed while the regions thought about it.
            reason, detail = self.quota_reason(record.spec)
            self._close(asking.candidate, reason, detail, self.now + REFUSAL_DELAY_S)
            return
        epoch = record.epoch + 1
        expected_s = self.pending.remaining_s(record)
        self.decide(f.Planned(record.id, epoch, plan, over_quota))
        self.send(
            ids.placer(plan.region),
            m.CommitPlan(
                plan,
                epoch,
                record.spec,
                effective_band(record.spec.band, over_quota),
                record.time_left_s(),
                expected_s,
                hold,
            ),
        )

    def _fetch(self, record: JobRecord, asking: Asking, plan: Plan) -> None:
        """The best plan wants data that its region has not: have it copied, and ask again then."""
        for dataset, source in asking.costs[plan.region].missing:
            if self.catalogue.copy_to(dataset, plan.region) is None:
                self._begin_copy(dataset, source, plan.region, cause=record.id)
        names = ", ".join(dataset for dataset, _ in asking.costs[plan.region].missing)
        detail = f"{names} is being copied to {plan.region}"
        again_s = self.now + FETCH_AGAIN_S
        self._close(asking.candidate, PendingReason.WAITING_FOR_DATA, detail, again_s)

    def _close(
        self,
        candidate: Candidate,
        reason: PendingReason,
        detail: str,
        retry_at_s: float | None = None,
        held: Reservation | None = None,
    ) -> None:
        """No place now: remember why. The reason found within the quota outlives the other's."""
        line, spec = self.pending.line(candidate.job), self.jobs[candidate.job].spec
        within = self.choices(spec, over_quota=False)
        full = PendingReason.INSUFFICIENT_CAPACITY
        busy = reason is full
        if not candidate.over_quota or not within:
            if candidate.over_quota and busy:
                reason, detail = self.quota_reason(spec)
            line.reason, line.detail = reason, detail
        from_s = self.backfill.closes_from_s(held, self.now)
        choices = self.choices(spec, candidate.over_quota)
        limited = self.ledger.is_limited(spec.tenant)
        self.pending.close(line, candidate.over_quota, retry_at_s, from_s, choices, limited)
        last = candidate.over_quota or not self.choices(spec, over_quota=True)
        if last and self.profile.when_blocked is WhenBlocked.STOP and (busy or line.reason is full):
            self.pending.stop_at(candidate)

    def _pass_over(self, candidate: Candidate) -> None:
        """A job has nothing to ask for in one mode; the other one decides."""
        line = self.pending.line(candidate.job)
        limited = self.ledger.is_limited(line.spec.tenant)
        self.pending.close(line, candidate.over_quota, None, limited=limited)

    # --- what a tenant may start ------------------------------------------------------------------------

    def choices(self, spec: JobSpec, over_quota: bool) -> tuple[int, ...]:
        """Which of a job's accelerators its tenant may use now, within quota or beyond it.

        O(accelerators x groups x depth of the tenant); *any model* counts as all models of the fleet.
        """
        count = len(self._accelerators(spec))
        if not count:
            return () if over_quota else (0,)
        return tuple(i for i in range(count) if self._may_use(spec, i, over_quota))

    def _may_use(self, spec: JobSpec, choice: int, over_quota: bool) -> bool:
        milli = self._wanted(spec, choice)
        if self._is_within(spec, milli):
            return not over_quota
        return over_quota and self._may_borrow(spec, milli)

    def _is_within(self, spec: JobSpec, milli: Mapping[str, int]) -> bool:
        """Whether so much of each model fits within the quota; opportunistic work does not use it."""
        has_room = self.ledger.has_room
        opportunistic = spec.band is Band.OPPORTUNISTIC
        return not opportunistic and all(has_room(spec.tenant, m, n) for m, n in milli.items())

    def _may_borrow(self, spec: JobSpec, milli: Mapping[str, int]) -> bool:
        """Whether so much of each model may run over quota: only what may be preempted borrows."""
        may_borrow = self.ledger.may_borrow
        gentle = spec.preemptible or spec.band is Band.OPPORTUNISTIC
        return gentle and all(may_borrow(spec.tenant, m, n) for m, n in milli.items())

    def _could_ever(self, spec: JobSpec, milli: Mapping[str, int]) -> bool:
        """Whether so much of each model might be held if nobody held anything."""
        ledger, tenant = self.ledger, spec.tenant
        opportunistic = spec.band is Band.OPPORTUNISTIC
        if not opportunistic and all(ledger.could_ever_fit(tenant, m, n) for m, n in milli.items()):
            return True
        gentle = spec.preemptible or opportunistic
        return gentle and all(ledger.could_ever_borrow(tenant, m, n) for m, n in milli.items())

    def _wanted(self, spec: JobSpec, choice: int) -> dict[str, int]:
        """Thousandths of GPUs by model that the gang takes when each group takes its ``choice``-th."""
        milli: dict[str, int] = {}
        for group in spec.groups:
            listed = self._named(group.resources).accelerators
            if listed:
                taken = listed[min(choice, len(listed) - 1)]
                model = taken.model or ""
                milli[model] = milli.get(model, 0) + group.count * taken.gpus_milli
        return milli

    def _counted(self, spec: JobSpec, plan: Plan) -> Plan:
        """The plan with its GPUs by model: groups may want others than the first task does."""
        if len(spec.groups) == 1:
            return plan
        by_model: dict[str, int] = {}
        for seat in plan.seats:
            if seat.slots:
                model = self._model_of.get(seat.host, plan.model)
                by_model[model] = by_model.get(model, 0) + len(seat.slots) * seat.slot_milli
        first = next(iter(by_model), "")
        several = by_model if len(by_model) > 1 else {}
        return msgspec.structs.replace(plan, model=first, by_model=several)

    def _accelerators(self, spec: JobSpec) -> tuple[Accelerator, ...]:
        """A job's choices: the longest list of its groups, every model named."""
        lists = (self._named(group.resources).accelerators for group in spec.groups)
        return max(lists, key=len, default=())

    def _named(self, resources: Resources) -> Resources:
        """Any model means each model of the fleet: every one has a quota of its own."""
        listed = resources.accelerators
        if len(listed) != 1 or listed[0].model is not None or not self._models:
            return resources
        named = tuple(msgspec.structs.replace(listed[0], model=model) for model in self._models)
        return msgspec.structs.replace(resources, accelerators=named)

    def quota_reason(self, spec: JobSpec) -> tuple[PendingReason, str]:
        """Why the quota keeps a job from starting: it never could, or not now."""
        tenant = spec.tenant
        wanted = [self._wanted(spec, choice) for choice in range(len(self._accelerators(spec)))]
        if wanted and not any(self._could_ever(spec, milli) for milli in wanted):
            return PendingReason.EXCEEDS_MAX_QUOTA, f"tenant {tenant}"
        full = {self.ledger.full_at(tenant, m, n) for milli in wanted for m, n in milli.items()}
        above = ", ".join(sorted(name for name in full if name not in (None, tenant)))
        of = f"the quota of {above}" if above else "its quota"
        return PendingReason.WAITING_FOR_QUOTA, f"tenant {tenant} is at {of}"

    def data_costs(self, spec: JobSpec) -> dict[str, DataCost]:
        """For every region, by name: what it takes to have the job's data there."""
        if not spec.datasets and not self.reach.absent:
            return dict.fromkeys(self._regions, NO_COST)
        costs = {}
        for region in self._regions:
            absence = self.reach.absent.get(region)
            if absence is not None:
                costs[region] = DataCost(barred=Rejection.UNREACHABLE, detail=absence.why)
                continue
            cost = self.catalogue.cost(spec.datasets, region, self.now)
            if cost.missing and not self.profile.on_demand_copies and not cost.copying:
                cost = DataCost(barred=Rejection.DATA_ELSEWHERE, detail=cost.missing[0][0])
            elif cost.seconds > self.profile.copy_limit_s:
                cost = DataCost(
                    barred=Rejection.DATA_ELSEWHERE, detail=f"{cost.seconds:.0f} s to copy"
                )
            costs[region] = cost
        return costs

    def demand_supply(self, region: str) -> float:
        """GPUs held or promised in a region over the GPUs present."""
        supply = self._gpus_by_region.get(region, 0)
        return self.ledger.by_region.get(region, 0) / MILLI / supply if supply else 0.0

    def reason_of(self, record: JobRecord) -> tuple[PendingReason | None, str]:
        """The dominant reason of a waiting job, None for one that does not wait."""
        if record.state not in WAITING:
            return None, ""
        if record.plan is not None and not record.plan.victims:
            return PendingReason.PENDING_EVALUATION, f"{record.plan.region} was told to start it"
        if record.plan is not None:
            return PendingReason.PREEMPTION_IN_PROGRESS, f"{len(record.plan.victims)} victims"
        line = self.pending.line_of(record.id)
        if line is None:
            return (
                PendingReason.PENDING_EVALUATION,
                f"waits out a delay: {record.cause or 'a failure'}",
            )
        never = (PendingReason.NO_MATCHING_HARDWARE, PendingReason.TOPOLOGY_DOES_NOT_FIT)
        if self.reach.absent and line.reason in never:
            # Only those that could be asked have said never.
            return PendingReason.INSUFFICIENT_CAPACITY, self.out_of_reach()
        return line.reason, line.detail

    def out_of_reach(self) -> str:
        """The regions that cannot be asked now, in words; empty when all can be."""
        names = sorted(self.reach.absent)
        return f"out of reach: {', '.join(names)}" if names else ""

    # --- jobs ---------------------------------------------------------------------------------------------

    def _submit(self, event: m.SubmitJobs) -> tuple[str, ...] | TopmastError:
        known = self._keys.get(event.key) if event.key else None
        if known is not None:
            if known.digest != event.digest:
                return Conflict("this Idempotency-Key was used for another submission")
            return _ids(known.first_number, known.count)
        first = self._next_job
        places = self.binding.places(event.jobs, first, self.catalogue, self.now)
        self.decide(f.Admitted(first, places))
        return _ids(first, len(event.jobs))

    def _cancel(self, event: m.CancelJobs) -> tuple[str, ...] | TopmastError:
        missing = [job for job in event.jobs if job not in self.jobs]
        if missing:
            return NotFound(f"no job '{missing[0]}'")
        for job in event.jobs:
            self._cancel_one(self.jobs[job], f"cancelled by {event.by or 'its user'}")
        return event.jobs

    def _cancel_one(self, record: JobRecord, cause: str) -> None:
        if record.finished or record.cancelling:
            return
        if record.plan is None:
            self.decide(f.Moved(record.id, JobState.CANCELLED, cause))
            return
        if record.state in HOLDING:
            self.decide(f.Moved(record.id, JobState.CANCELLING, cause))
        self.decide(f.CancelWanted(record.id, cause))
        stop = m.StopAttempt(record.id, record.epoch, Outcome.CANCELLED, cause)
        self.send(ids.placer(record.plan.region), stop)

    def _committed(self, event: m.PlanCommitted) -> None:
        """Nothing to do: the plan was written down before it was sent."""

    def _refused(self, event: m.PlanRefused) -> None:
        record = self._current(event.job, event.epoch)
        if record is None:
            return
        self.decide(f.Unplanned(record.id, event.why))
        if record.cancelling:  # the order to stop it crossed the refusal on its way
            self.decide(f.Moved(record.id, JobState.CANCELLED, record.cause))

    def _starting(self, event: m.AttemptStarting) -> None:
        record = self._current(event.job, event.epoch)
        if record is not None and may_move(record.state, JobState.STARTING):
            self.decide(f.Moved(record.id, JobState.STARTING))
            if record.cancelling:  # the order to stop it crosses this news on its way
                self.decide(f.Moved(record.id, JobState.CANCELLING, record.cause))

    def _running(self, event: m.AttemptRunning) -> None:
        record = self._current(event.job, event.epoch)
        if record is not None and record.state is JobState.STARTING:
            self.decide(f.Moved(record.id, JobState.RUNNING))

    def _stopping(self, event: m.AttemptStopping) -> None:
        record = self._current(event.job, event.epoch)
        if record is None or event.why is not Outcome.PREEMPTED:
            return
        if may_move(record.state, JobState.PREEMPTING):
            self.decide(f.Moved(record.id, JobState.PREEMPTING, event.cause))
            if event.moves:
                self.decide(f.Migrates(record.id))

    def _checkpointed(self, event: m.AttemptCheckpointed) -> None:
        if self._current(event.job, event.epoch):
            self.decide(f.Checkpointed(event.job, event.step))

    def _resumed(self, event: m.AttemptResumed) -> None:
        if self._current(event.job, event.epoch):
            self.decide(f.ResumedFrom(event.job, event.step))

    def _ended(self, event: m.AttemptEnded) -> None:
        record = self._current(event.job, event.epoch)
        if record is not None:
            self.decide(self._what_becomes(record, event))

    def _what_becomes(self, record: JobRecord, event: m.AttemptEnded) -> f.Ended:
        """Finished, back in the queue at once, or after a delay that grows with each failure."""
        job, outcome, cause = record.id, event.outcome, event.cause
        if outcome is Outcome.SUCCEEDED:
            return f.Ended(job, JobState.SUCCEEDED, "")
        if record.cancelling or outcome is Outcome.CANCELLED:
            return f.Ended(job, JobState.CANCELLED, record.cause)
        if outcome is Outcome.TIME_LIMIT:
            return f.Ended(job, JobState.FAILED, cause)
        if outcome is Outcome.PREEMPTED:
            return f.Ended(job, JobState.PENDING, cause, avoid_hosts=record.avoid_hosts)
        own_fault = outcome is Outcome.FAILED
        tried = record.restarts if own_fault else record.host_losses
        allowed = record.spec.max_restarts if own_fault else self.profile.host_losses_allowed
        if tried >= allowed:
            return f.Ended(job, JobState.FAILED, f"{cause}; {tried} restarts used up")
        growth = 2.0 ** min(tried, 60)  # of 2.0**1024 no float knows
        delay_s = min(self.profile.backoff_s * growth, self.profile.backoff_cap_s)
        if outcome is Outcome.HOST_LOST:
            delay_s = 0.0
        avoid = tuple(sorted({*record.avoid_hosts, *event.suspects}))[-16:]
        return f.Ended(job, JobState.RECOVERING, cause, self.now + delay_s, avoid)

    def _capacity(self, event: m.CapacityChanged) -> None:
        if len(self.pending.ranking):
            self.send(ids.DESK, m.WhoFits(event.region, event.clusters))

    def _may_fit(self, event: m.MayFit) -> None:
        if event.lines is None:
            self.pending.reopen()
        else:
            self.pending.reopen_lines(event.lines)

    def _current(self, job: str, epoch: int) -> JobRecord | None:
        record = self.jobs.get(job)
        if record is None or record.epoch != epoch or record.plan is None:
            return None
        return record

    # --- datasets -------------------------------------------------------------------------------------------

    def _add_dataset(self, event: m.AddDataset) -> str | TopmastError:
        known = self.catalogue.datasets.get(event.dataset.name)
        if known is not None and known.replicas:
            return Conflict(f"dataset '{event.dataset.name}' exists already")
        self.decide(f.DatasetAdded())
        return event.dataset.name

    def _request_replica(self, event: m.RequestReplica) -> str | TopmastError:
        error = self._cannot_copy(event.dataset, event.region)
        if error is not None:
            return error
        record = self.catalogue.datasets[event.dataset]
        if event.region not in record.replicas:
            source = self.catalogue.source(event.dataset, event.region)
            if source is None:
                return Conflict(f"no link leads from a replica to region '{event.region}'")
            self._begin_copy(event.dataset, source, event.region, event.cause)
        return event.dataset

    def _cannot_copy(self, dataset: str, region: str) -> TopmastError | None:
        if dataset not in self.catalogue.datasets:
            return NotFound(f"no dataset '{dataset}'")
        if region not in self.catalogue.storage_bytes:
            return NotFound(f"no region '{region}'")
        record = self.catalogue.datasets[dataset]
        if record.spec.allowed is not None and region not in record.spec.allowed:
            return Conflict(f"residency forbids '{dataset}' in region '{region}'")
        if region in record.replicas:
            return None
        if not self.catalogue.has_space(region, record.spec.size_bytes):
            return Conflict(f"the store of region '{region}' has no room for '{dataset}'")
        return None

    def _drop_replica(self, event: m.DropReplica) -> str | TopmastError:
        record = self.catalogue.datasets.get(event.dataset)
        if record is None:
            return NotFound(f"no dataset '{event.dataset}'")
        if record.replicas.get(event.region) is not ReplicaState.COMPLETE:
            return NotFound(f"region '{event.region}' has no replica of '{event.dataset}'")
        complete = [r for r, s in record.replicas.items() if s is ReplicaState.COMPLETE]
        if len(complete) <= max(1, record.spec.min_replicas):
            return Conflict(f"'{event.dataset}' would have fewer replicas than it must")
        for job in self.jobs.values():
            if job.plan and event.dataset in job.spec.datasets and job.region == event.region:
                return Conflict(f"job {job.id} reads '{event.dataset}' in '{event.region}'")
        asked = self.jobs.get(self._asking.candidate.job) if self._asking is not None else None
        if asked is not None and event.dataset in asked.spec.datasets:
            return Conflict(f"job {asked.id}, which reads it, is being placed: try again")
        for copy in self.catalogue.copies.values():
            if (copy.dataset, copy.source) == (event.dataset, event.region):
                return Conflict(f"copy {copy.id} reads it now")
        self.decide(f.ReplicaDropped(event.dataset, event.region))
        self.send(ids.MOVER, m.DeleteReplica(event.dataset, event.region, record.spec.path))
        return event.dataset

    def _begin_copy(self, dataset: str, source: str, region: str, cause: str) -> None:
        size_bytes = self.catalogue.datasets[dataset].spec.size_bytes
        copy_id = ids.copy_id(self._next_copy)
        copy = Copy(copy_id, dataset, source, region, size_bytes, cause, self.now)
        self.decide(f.CopyBegun(copy))
        self._order(copy)

    def _order(self, copy: Copy) -> None:
        path = self.catalogue.datasets[copy.dataset].spec.path
        link = self.catalogue.links.get((copy.source, copy.target))
        rate = link.bytes_per_s if link else 1e9
        self.send(ids.MOVER, m.StartCopy(copy, path, rate))

    def _copy_done(self, event: m.CopyDone) -> None:
        copy = self.catalogue.copies.get(event.copy)
        if copy is not None:
            self.decide(f.CopyReady(copy))

    def _copy_failed(self, event: m.CopyFailed) -> None:
        copy = self.catalogue.copies.get(event.copy)
        if copy is not None:
            self.decide(f.CopyGone(copy, event.error))

    # --- facts: jobs ------------------------------------------------------------------------------------------

    def _apply_fleet(self, fact: f.FleetSet, event: m.ConfigureFleet) -> None:
        self._take_fleet(event.fleet)
        self.pending.reopen()

    def _take_fleet(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.catalogue.configure(fleet)
        self.binding.configure(fleet, self.jobs, self.now)
        self.ledger.set_tenants(fleet.tenants, fleet.gpus())
        self._models = fleet.models()
        self._regions = sorted(region.name for region in fleet.regions)
        self._gpus_by_region = {
            r.name: sum(h.gpus for c in r.clusters for h in c.hosts) for r in fleet.regions
        }
        self._model_of = {
            h.name: h.model for r in fleet.regions for c in r.clusters for h in c.hosts
        }

    def _apply_admitted(self, fact: f.Admitted, event: m.SubmitJobs) -> None:
        for offset, spec in enumerate(event.jobs):
            number = fact.first_number + offset
            record = JobRecord(ids.job_id(number), number, spec, self.now)
            self.jobs[record.id] = record
            if fact.places:
                record.bound, record.bindings = fact.places[offset], 1
                self.binding.note(record, self.now)
            self.mix.saw(spec)
            self._enqueue(record)
        self._next_job = fact.first_number + len(event.jobs)
        if event.key:
            self._keys[event.key] = _Key(event.digest, fact.first_number, len(event.jobs))
            if len(self._keys) > KEYS_KEPT:
                del self._keys[next(iter(self._keys))]

    def _enqueue(self, record: JobRecord) -> None:
        """Let a job wait. Where it may stop who ranks behind it, it may do more than its line could."""
        self.pending.add(record, self.now)
        self.binding.waits(record, self.now)
        if self.profile.preemption is Preemption.RANK or record.moves:
            self.pending.reopen_line(record.id)

    def _apply_planned(self, fact: f.Planned, event: m.Message) -> None:
        record = self.jobs[fact.job]
        plan = fact.plan
        self._waits_no_more(record)
        record.epoch, record.plan, record.over_quota = fact.epoch, plan, fact.over_quota
        record.region, record.cluster, record.model = plan.region, plan.cluster, plan.model
        record.hosts, record.gpus_milli = plan.hosts, plan.gpus_milli
        record.moves = False
        self._book(record, plan)

    def _bind_again(self, record: JobRecord) -> None:
        """Send a job that waits somewhere else, unless regions are just being asked about it."""
        if self._asking is not None and self._asking.candidate.job == record.id:
            self.binding.waits(record, self.now)
        elif record.plan is None and not record.finished:
            place = self.binding.again(record, self.catalogue, self.now)
            self.decide(f.Bound(record.id, place))

    def _apply_bound(self, fact: f.Bound, event: m.Message) -> None:
        record = self.jobs[fact.job]
        record.bindings += 1
        if fact.place == record.bound:
            self.binding.waits(record, self.now)
            return
        self._waits_no_more(record)
        record.bound = fact.place
        self.binding.note(record, self.now)
        self._enqueue(record)

    def _waits_no_more(self, record: JobRecord) -> None:
        self.pending.remove(record.id)
        self.defragmentation.let_go(record.id)
        self.binding.rests(record.id)
        if self.backfill.let_go(record.id):
            self.pending.reopen()  # what was kept for it is there for others

    def _book(self, record: JobRecord, plan: Plan) -> None:
        self._placed[record.id] = record
        tenant, over_quota = record.spec.tenant, record.over_quota
        for model, milli in plan.held().items():
            self.ledger.take(tenant, plan.region, model, milli, over_quota)

    def _unbook(self, record: JobRecord) -> None:
        plan = record.plan
        self._placed.pop(record.id, None)
        if plan is not None:
            tenant, over_quota = record.spec.tenant, record.over_quota
            for model, milli in plan.held().items():
                self.ledger.give_back(tenant, plan.region, model, milli, over_quota)
            record.plan = None

    def _apply_unplanned(self, fact: f.Unplanned, event: m.Message) -> None:
        record = self.jobs[fact.job]
        self._unbook(record)
        record.refusals += 1
        record.cause = f"the region refused the plan: {fact.why}"
        record.over_quota = False
        record.region = record.cluster = record.model = None
        record.hosts = ()
        record.not_before_s = self.now + REFUSAL_DELAY_S
        self._enqueue(record)
        self.pending.reopen()  # the quota that it had taken is there for others again

    def _apply_forgiven(self, fact: f.Forgiven, event: m.Message) -> None:
        record = self.jobs[fact.job]
        self.pending.remove(record.id)
        record.avoid_hosts = ()
        self._enqueue(record)

    def _apply_moved(self, fact: f.Moved, event: m.Message) -> None:
        record = self.jobs[fact.job]
        self._move(record, fact.to)
        record.cause = fact.cause
        if fact.to is JobState.STARTING:
            record.start_s = self.now
            if record.first_start_s is None:
                record.first_start_s = self.now
        if record.finished:
            self._retire(record)

    def _apply_migrates(self, fact: f.Migrates, event: m.Message) -> None:
        self.jobs[fact.job].moves = True

    def _move(self, record: JobRecord, to: JobState) -> None:
        if record.state is not to:
            if not may_move(record.state, to):
                raise AssertionError(f"{record.id}: {record.state} may not become {to}")
            record.state = to

    def _retire(self, record: JobRecord) -> None:
        """A job is over: out of its line, and after a while out of memory."""
        self._waits_no_more(record)
        self.binding.forget(record.id, self.now)
        record.finish_s = self.now
        self._finished.append(record.id)
        if len(self._finished) > FINISHED_KEPT:
            for job in self._finished[: FINISHED_KEPT // 10]:
                self.jobs.pop(job, None)
            del self._finished[: FINISHED_KEPT // 10]

    def _apply_cancel_wanted(self, fact: f.CancelWanted, event: m.Message) -> None:
        record = self.jobs[fact.job]
        record.cancelling = True
        record.cause = fact.by

    def _apply_ended(self, fact: f.Ended, event: m.AttemptEnded) -> None:
        record = self.jobs[fact.job]
        gpus = record.plan.gpus_milli / MILLI if record.plan else 0.0
        if record.start_s is not None:
            held_s = event.end_s - event.start_s
            record.held_s += held_s
            record.kept_s += event.kept_s
            self.ledger.charge(record.spec.tenant, held_s * gpus, self.now, self.profile.rank)
        self._unbook(record)
        record.start_s = None
        if event.step is not None:
            record.step = event.step
        if event.metrics:
            record.metrics = event.metrics
        record.moves = record.moves and event.outcome is Outcome.PREEMPTED
        if event.outcome is Outcome.PREEMPTED and record.state not in WAITING:
            record.preemptions += 1
            record.migrations += record.moves
        elif event.outcome is Outcome.FAILED:
            record.restarts += fact.to is JobState.RECOVERING
        elif event.outcome in (Outcome.HOST_LOST, Outcome.LAUNCH_FAILED):
            record.host_losses += 1
        record.cause = fact.cause
        record.not_before_s = fact.not_before_s
        record.avoid_hosts = fact.avoid_hosts
        self._move(record, fact.to)
        if event.outcome is Outcome.SUCCEEDED:
            self.durations.learn(record)
        if record.finished:
            self._retire(record)
        else:
            record.over_quota = False
            self._enqueue(record)

    def _apply_checkpointed(self, fact: f.Checkpointed, event: m.Message) -> None:
        self.jobs[fact.job].step = fact.step

    def _apply_resumed(self, fact: f.ResumedFrom, event: m.Message) -> None:
        self.jobs[fact.job].resumed_from_step = fact.step

    # --- facts: datasets ----------------------------------------------------------------------------------------

    def _apply_dataset(self, fact: f.DatasetAdded, event: m.AddDataset) -> None:
        self.catalogue.add(event.dataset)
        self.pending.reopen()

    def _apply_copy_begun(self, fact: f.CopyBegun, event: m.Message) -> None:
        self.catalogue.begin(fact.copy)
        self._next_copy += 1

    def _apply_copy_ready(self, fact: f.CopyReady, event: m.Message) -> None:
        self.catalogue.complete(fact.copy.id)
        self.pending.reopen_readers(fact.copy.dataset)

    def _apply_copy_gone(self, fact: f.CopyGone, event: m.Message) -> None:
        self.catalogue.abandon(fact.copy.id, self.now)
        self.pending.reopen()

    def _apply_dropped(self, fact: f.ReplicaDropped, event: m.Message) -> None:
        self.catalogue.drop(fact.dataset, fact.region)
        self.pending.reopen()

    # --- snapshots ------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Everything that cannot be rebuilt, as JSON. O(jobs)."""
        used_at_s, used = self.ledger.decayed()
        return msgspec.json.encode(
            _State(
                self.fleet,
                self.jobs,
                self._finished,
                self._next_job,
                self._next_copy,
                self._keys,
                self.catalogue.datasets,
                self.catalogue.copies,
                self.catalogue.failed,
                used_at_s,
                used,
                self.durations.histories,
                self.mix.weights,
            )
        )

    def restore(self, blob: bytes) -> None:
        """Take up a snapshot; lines and counters are counted anew. O(jobs log jobs)."""
        state = msgspec.json.decode(blob, type=_State)
        self.jobs, self._finished, self._keys = state.jobs, state.finished, state.keys
        self._next_job, self._next_copy = state.next_job, state.next_copy
        self.catalogue.restore(state.datasets, state.copies, state.failed_copies)
        self.ledger = Ledger(())
        self._take_fleet(state.fleet)
        self.ledger.set_decayed(state.used_at_s, state.used_gpu_s)
        self.durations.histories = state.histories
        self.mix = Mix(state.sizes)
        self._placed = {}
        self.pending = self._nobody_waits()
        for record in self.jobs.values():
            if record.plan is not None:
                self._book(record, record.plan)
            elif record.state in WAITING:
                self.pending.add(record, self.now)
                self.binding.waits(record, self.now)

    handlers: ClassVar[dict[type[m.Message], Callable[..., Any]]] = {
        m.ConfigureFleet: _configure,
        m.Recovered: _recovered,
        m.Wake: _wake,
        m.SubmitJobs: _submit,
        m.CancelJobs: _cancel,
        m.AddDataset: _add_dataset,
        m.RequestReplica: _request_replica,
        m.DropReplica: _drop_replica,
        m.CopyDone: _copy_done,
        m.CopyFailed: _copy_failed,
        m.FleetOffered: _fleet_offered,
        m.PlansOffered: _offered,
        m.PlanCommitted: _committed,
        m.PlanRefused: _refused,
        m.CapacityChanged: _capacity,
        m.LinkUp: _link_up,
        m.LinkDown: _link_down,
        m.MayFit: _may_fit,
        m.AttemptStarting: _starting,
        m.AttemptRunning: _running,
        m.AttemptStopping: _stopping,
        m.AttemptCheckpointed: _checkpointed,
        m.AttemptResumed: _resumed,
        m.AttemptEnded: _ended,
    }
    appliers: ClassVar[dict[type[Fact], Callable[..., None]]] = {
        f.FleetSet: _apply_fleet,
        f.Admitted: _apply_admitted,
        f.Bound: _apply_bound,
        f.Planned: _apply_planned,
        f.Unplanned: _apply_unplanned,
        f.Forgiven: _apply_forgiven,
        f.Moved: _apply_moved,
        f.Migrates: _apply_migrates,
        f.CancelWanted: _apply_cancel_wanted,
        f.Ended: _apply_ended,
        f.Checkpointed: _apply_checkpointed,
        f.ResumedFrom: _apply_resumed,
        f.DatasetAdded: _apply_dataset,
        f.CopyBegun: _apply_copy_begun,
        f.CopyReady: _apply_copy_ready,
        f.CopyGone: _apply_copy_gone,
        f.ReplicaDropped: _apply_dropped,
    }


def _ids(first_number: int, count: int) -> tuple[str, ...]:
    return tuple(ids.job_id(first_number + i) for i in range(count))
