"""Questions to the queue that change nothing: for its own cycle, and to explain it to people."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from topmast.fast.queue.backlog.backlog import effective_band
from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.backlog.placement_class import JobClass, QuotaGate, Verdict
from topmast.fast.queue.data.catalogue import DataCost
from topmast.fast.queue.record import JobRecord
from topmast.fast.queue.state import QueueState
from topmast.model.fleet import Fleet
from topmast.model.job import MILLI, JobSpec
from topmast.model.plan import FREE, Mode, More, PlacementRequest, RegionTerms, Reservation
from topmast.model.reason import PendingReason, Rejection
from topmast.model.states import HOLDING, WAITING


class QueueViews(QueueState):
    """Questions to the state; none of them writes it."""

    _without_data: tuple[Fleet | None, dict[str, DataCost]] = (None, {})
    """What `data_costs` says of jobs without datasets, in a fleet."""

    # --- what a tenant may start ------------------------------------------------------------------

    def choices(self, spec: JobSpec, over_quota: bool) -> tuple[int, ...]:
        """Which of a job's accelerators its tenant may use now, within quota or beyond it."""
        return self.entitlements.choices(spec, over_quota)

    def choices_of(self, one: JobClass, over_quota: bool) -> tuple[int, ...]:
        """`choices` of the jobs of a class. As `choices_by_mode`."""
        return self.choices_by_mode(one)[over_quota]

    def choices_by_mode(self, one: JobClass) -> dict[bool, tuple[int, ...]]:
        """By mode, the `choices` of the jobs of a class, or of these the one that it is granted."""
        allowed, grant = self.allowed_by_mode(one.gate), one.grant
        if grant is None:
            return allowed
        return {mode: tuple(c for c in of if c == grant.choice) for mode, of in allowed.items()}

    def allowed_by_mode(self, gate: QuotaGate) -> dict[bool, tuple[int, ...]]:
        """By mode, what a gate lets use; looked up while nothing was booked in its branch."""
        as_of = self.ledger.as_of(gate.spec.tenant)
        if gate.as_of != as_of:
            gate.as_of = as_of
            if gate.fleet is not self.fleet:
                gate.fleet, gate.wanted = self.fleet, self.entitlements.wanted(gate.spec)
            gate.choices = self.entitlements.choices_of(gate.spec, gate.wanted)
        return gate.choices

    def allowed(
        self, spec: JobSpec, record: JobRecord | None, choices: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The choices of a job that are not kept for others; a job without a record is new."""
        if not self.model_reservation.is_anything:
            return choices
        waited_s = 0.0 if record is None else self.now - record.submit_s
        listed = self.entitlements.accelerators(spec)
        wasted = self.model_reservation.wasted(listed, spec.gpus_milli() / MILLI, waited_s)
        return tuple(c for c in choices if c not in wasted) if wasted else choices

    def reserved_until_s(self, record: JobRecord) -> float | None:
        """When a job may use what is kept for others now; None if nothing is, or for good."""
        if not self.model_reservation.is_anything:
            return None
        listed, gpus = self.entitlements.accelerators(record.spec), record.spec.gpus_milli() / MILLI
        return self.model_reservation.until_s(listed, gpus, record.submit_s, self.now)

    def quota_reason(self, spec: JobSpec) -> tuple[PendingReason, str]:
        """Why the quota keeps a job from starting: it never could, or not now."""
        return self.entitlements.quota_reason(spec)

    def rank_key(self, record: JobRecord) -> tuple[float, ...]:
        """Where a waiting job ranks, lower first: as its quota allows, in the profile's order."""
        return self.backlog.key(record, not self.choices(record.spec, over_quota=False))

    def quota_may_help(self) -> bool:
        """Whether quota changed since job classes were blocked that it might let use more."""
        return self.backlog.blocked.wants_quota and self.ledger.is_touched

    def request(
        self,
        spec: JobSpec,
        over_quota: bool,
        choices: tuple[int, ...],
        *,
        record: JobRecord | None = None,
        mode: Mode = FREE,
        held: Reservation | None = None,
        reserve: bool = False,
        cluster: str | None = None,
    ) -> PlacementRequest:
        """A job's request for a place, the same for all regions; without a record: a new job's."""
        return PlacementRequest(
            job="" if record is None else record.id,
            groups=self.entitlements.asked_for(spec.groups),
            topology=self.topology_policy.topology_of(spec),
            band=effective_band(spec.band, over_quota),
            mode=mode,
            models=choices,
            avoid_hosts=() if record is None else record.avoid_hosts,
            held=held,
            reserve=reserve,
            mix=self.mix.current,
            cluster=cluster,
        )

    def terms(self, region: str, cost: DataCost) -> RegionTerms:
        """What a region adds to the request."""
        return RegionTerms(cost.bytes, cost.seconds, self.demand_supply(region))

    def outranked(self, candidate: Candidate) -> tuple[str, ...]:
        """Running jobs that rank behind a waiting one, the last first. O(running log running)."""
        running = [record for record in self.placed.values() if record.state in HOLDING]
        keys = self.backlog.keys_of_running(running, self.now)
        mine = candidate.key[:-1]
        behind = [(key, r.id) for key, r in zip(keys, running, strict=True) if key > mine]
        return tuple(job for _, job in sorted(behind, reverse=True))

    def held_from(
        self, spec: JobSpec, record: JobRecord | None, over_quota: bool
    ) -> Reservation | None:
        """The seats reserved for another job that this one may not take now."""
        if self.backfill.reservation is None:
            return None
        if record is None:
            job, remaining_s = "", self.durations.expected_s(spec)
        else:
            job, remaining_s = record.id, self.backlog.remaining_s(record)
        band = effective_band(spec.band, over_quota)
        return self.backfill.binds(job, band, spec.gpus_milli(), remaining_s, self.now)

    def more_tasks(
        self, record: JobRecord, over_quota: bool, choices: tuple[int, ...]
    ) -> More | None:
        """How many tasks an elastic job may have now: as many as it was given, if it has a booking.

        Where gangs share GPUs, elsewhere no more than it asked for: it would lie over other gangs.
        """
        elastic = record.spec.elastic
        if elastic is None:
            return None
        limit = elastic.most if record.moves else elastic.count
        more = self.entitlements.more_of(record.spec, over_quota, choices, limit)
        if more is None or not self.takes_turns or limit <= elastic.count:
            return more
        return msgspec.structs.replace(more, anywhere=elastic.count)

    def data_costs(self, spec: JobSpec) -> dict[str, DataCost]:
        """For every region, by name: what it takes to have the job's data there. Not to be changed.

        O(regions x datasets x regions), or O(1) without datasets while all regions can be reached.
        """
        nothing = not spec.datasets and not self.reach.absent
        if nothing and self._without_data[0] is self.fleet:
            return self._without_data[1]
        costs = {}
        for region in self.regions:
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
        if nothing:
            self._without_data = (self.fleet, costs)
        return costs

    def costs_of(self, record: JobRecord) -> dict[str, DataCost]:
        """What it takes to have a job's data in each region where it may run."""
        costs = self.data_costs(record.spec)
        if record.bound is not None and record.bound.region in costs:
            return {record.bound.region: costs[record.bound.region]}
        return costs

    def demand_supply(self, region: str) -> float:
        """GPUs held or promised in a region over the GPUs present."""
        supply = self.gpus_by_region.get(region, 0)
        return self.ledger.by_region.get(region, 0) / MILLI / supply if supply else 0.0

    def verdict_on(self, record: JobRecord) -> Verdict | None:
        """Why a job waits; None for one that does not wait."""
        if record.state not in WAITING:
            return None
        evaluation, plan = PendingReason.PENDING_EVALUATION, record.plan
        if plan is not None and not plan.victims:
            return Verdict(evaluation, f"{plan.region} was told to start it")
        if plan is not None:
            return Verdict(PendingReason.PREEMPTION_IN_PROGRESS, f"{len(plan.victims)} victims")
        job_class = self.backlog.class_of(record.id)
        if job_class is None:
            return Verdict(evaluation, f"waits out a delay: {record.cause or 'a failure'}")
        verdict = self.verdict_of(job_class)
        detail = "; ".join(part for part in (verdict.detail, self.grants.news(record.id)) if part)
        return self.as_reached(replace(verdict, detail=detail))

    def verdict_of(self, one: JobClass) -> Verdict:
        """Why the jobs of a class wait.

        Their own verdict, or, if none of them was tried, that of their placement class.
        """
        within = bool(self.choices(one.spec, over_quota=False))
        known = list(one.placement[not within].verdicts.values())
        if one.verdict.reason is not PendingReason.PENDING_EVALUATION or not known:
            return one.verdict
        if not within and known[-1].reason is PendingReason.INSUFFICIENT_CAPACITY:
            return Verdict(*self.quota_reason(one.spec))
        return known[-1]

    def as_reached(self, verdict: Verdict) -> Verdict:
        """What a verdict is worth: a region that is out of reach may have what the others lack."""
        never = (PendingReason.NO_MATCHING_HARDWARE, PendingReason.TOPOLOGY_DOES_NOT_FIT)
        if self.reach.absent and verdict.reason in never:
            return Verdict(PendingReason.INSUFFICIENT_CAPACITY, self.out_of_reach())
        return verdict

    def out_of_reach(self) -> str:
        """The regions that cannot be asked now, in words; empty when all can be."""
        names = sorted(self.reach.absent)
        return f"out of reach: {', '.join(names)}" if names else ""
