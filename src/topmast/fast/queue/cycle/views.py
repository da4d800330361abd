"""Questions that need several parts of the state: for the cycle, and to explain it to people."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from topmast.fast.queue.backlog.backlog import effective_band
from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.backlog.ordered_index import Key
from topmast.fast.queue.backlog.placement_class import NOT_TRIED, JobClass, Verdict
from topmast.fast.queue.backlog.running import RunningOrder
from topmast.fast.queue.backlog.task_mix import takes_any
from topmast.fast.queue.cycle.liveness import Absence
from topmast.fast.queue.cycle.state import QueueState
from topmast.fast.queue.data.catalogue import DataCost
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.dependency import awaited
from topmast.model.fleet import Fleet
from topmast.model.job import JobSpec, needs_of_engine
from topmast.model.plan import FREE, Mode, More, PlacementRequest, RegionTerms, Reservation
from topmast.model.reason import BACK_OFF, PendingReason, Rejection
from topmast.model.states import WAITING

NEVER = (PendingReason.NO_MATCHING_HARDWARE, PendingReason.TOPOLOGY_DOES_NOT_FIT)
"""A job with one of these would fit nowhere, even if all were empty."""


class QueueViews(QueueState):
    """Questions to the state; none of them writes it."""

    _without_data: tuple[Fleet | None, dict[str, DataCost], dict[str, Absence]] = (None, {}, {})
    """What `data_costs` says of jobs without datasets, in a fleet, while some regions are away."""

    # --- what a job may have ----------------------------------------------------------------------

    def choices_of(self, one: JobClass) -> dict[bool, tuple[int, ...]]:
        """By mode, the accelerators that the jobs of a class may use now.

        In a round, of these only the one that it grants.
        """
        allowed, grant = self.tenancy.choices_of(one.gate), one.grant
        if grant is None:
            return allowed
        return {mode: tuple(c for c in of if c == grant.choice) for mode, of in allowed.items()}

    def allowed(
        self, spec: JobSpec, record: JobRecord | None, choices: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The choices of a job that are not kept for others; a job without a record is new."""
        submit_s = self.now if record is None else record.submit_s
        kept = self.tenancy.kept(spec, submit_s, self.now)
        return tuple(c for c in choices if c not in kept) if kept else choices

    def kept_until_s(self, record: JobRecord) -> float | None:
        """When a job may use what is kept for others now; None if nothing is, or for good."""
        return self.tenancy.kept_until_s(record.spec, record.submit_s, self.now)

    def may_fit_on_kept(self, record: JobRecord, reason: PendingReason) -> bool:
        """Whether a job fits nowhere so far because what would hold it is kept for others now."""
        return reason in NEVER and self.kept_until_s(record) is not None

    def quota_may_help(self) -> bool:
        """Whether quota changed since job classes were blocked that it might let use more."""
        return self.backlog.blocked.wants_quota and self.tenancy.ledger.is_touched

    def may_try(self) -> bool:
        """Whether candidates may be tried now."""
        for hook in self.hooks.may_try:  # noqa: SIM110  (a generator costs more than the question)
            if not hook.may_try():
                return False
        return True

    # --- what regions are asked -------------------------------------------------------------------

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
        by_shapes, groups = self.profile.score.shapes, spec.groups
        return PlacementRequest(
            job="" if record is None else record.id,
            groups=self.tenancy.entitlements.asked_for(groups),
            topology=self.backlog.topology_policy.topology_of(spec),
            band=effective_band(spec.band, over_quota),
            mode=mode,
            models=choices,
            avoid_hosts=() if record is None else record.avoid_hosts,
            held=held,
            reserve=reserve,
            mix=self.backlog.mix.current,
            shapes=(by_shapes and self.backlog.mix.shapes) or UNSET,
            cluster=cluster,
            needs=needs_of_engine(spec),
            reserved=self._reserved_for(spec, record),
            scarcity=self.backlog.mix.scarcity if by_shapes and takes_any(groups) else UNSET,
        )

    def _reserved_for(self, spec: JobSpec, record: JobRecord | None) -> tuple[str, ...] | UnsetType:
        """The hosts where a job would not end before they are needed for something else."""
        if not self.windows.known:
            return UNSET
        job_class = None if record is None else self.backlog.class_of(record.id)
        stay = None if job_class is None else job_class.stay
        if stay is None:
            stay = self.stay_of(record or JobRecord("", 0, spec, self.now))
        return (self.windows.reserved(stay, self.now) if stay else ()) or UNSET

    def terms(self, region: str, cost: DataCost) -> RegionTerms:
        """What a region adds to the request."""
        return self.terms_of((region,), {region: cost})[region]

    def terms_of(
        self, regions: Sequence[str], costs: Mapping[str, DataCost]
    ) -> dict[str, RegionTerms]:
        """What each region adds to the request. Not to be changed."""
        if self.is_without_data(costs) and len(regions) == len(costs):
            return self.tenancy.plain_terms()
        loads = self.tenancy.loads(regions)
        return {r: RegionTerms(costs[r].bytes, costs[r].seconds, loads[r]) for r in regions}

    def is_without_data(self, costs: Mapping[str, DataCost]) -> bool:
        """Whether these are the costs of a job without datasets, in all regions. O(1)."""
        fleet, plain, _ = self._without_data
        return costs is plain and fleet is self.fleet

    def outranked(self, candidate: Candidate) -> tuple[str, ...]:
        """Running jobs that rank behind a waiting one, the last first. O(those)."""
        return self.running_order().behind(candidate.key[:-1])

    def running_order(self) -> RunningOrder:
        """All jobs with a plan as they rank now. O(jobs log jobs), or O(1) if nothing changed."""
        return self.backlog.running.order(self.jobs.placed, self.now)

    def held_from(
        self, spec: JobSpec, record: JobRecord | None, over_quota: bool
    ) -> Reservation | None:
        """The seats reserved for another job that this one may not take now."""
        if self.cycle.backfill.reservation is None:
            return None
        if record is None:
            job, remaining_s = "", self.backlog.durations.expected_s(spec)
        else:
            job, remaining_s = record.id, self.backlog.remaining_s(record)
        band = effective_band(spec.band, over_quota)
        return self.cycle.backfill.binds(job, band, spec.gpus_milli(), remaining_s, self.now)

    def more_tasks(
        self, record: JobRecord, over_quota: bool, choices: tuple[int, ...]
    ) -> More | None:
        """How many tasks an elastic job may have now; with a booking, as many as that has."""
        elastic = record.spec.elastic
        if elastic is None:
            return None
        limit = elastic.most if record.moves else elastic.count
        more = self.tenancy.entitlements.more_of(record.spec, over_quota, choices, limit)
        bounds = [hook.most_anywhere(elastic) for hook in self.hooks.most_anywhere]
        anywhere = min((bound for bound in bounds if bound is not None), default=limit)
        if more is None or limit <= anywhere:
            return more
        return replace(more, anywhere=anywhere)

    def data_costs(self, spec: JobSpec) -> dict[str, DataCost]:
        """For every region, by name: what it takes to have the job's data there. Not to be changed.

        O(regions x datasets x regions), or O(absent regions) without datasets.
        """
        nothing, absent = not spec.datasets, self.cycle.reach.absent
        known = self._without_data
        if nothing and known[0] is self.fleet and known[2] == absent:
            return known[1]
        costs = {}
        for region in self.regions:
            absence = absent.get(region)
            if absence is not None:
                costs[region] = DataCost(barred=Rejection.UNREACHABLE, detail=absence.why)
                continue
            cost = self.data.catalogue.cost(spec.datasets, region, self.now)
            if cost.missing and not self.profile.on_demand_copies and not cost.copying:
                cost = DataCost(barred=Rejection.DATA_ELSEWHERE, detail=cost.missing[0][0])
            elif cost.seconds > self.profile.copy_limit_s:
                cost = DataCost(
                    barred=Rejection.DATA_ELSEWHERE, detail=f"{cost.seconds:.0f} s to copy"
                )
            costs[region] = cost
        if nothing:
            self._without_data = (self.fleet, costs, dict(absent))
        return costs

    def costs_of(self, record: JobRecord) -> dict[str, DataCost]:
        """What it takes to have a job's data in each region where it may run."""
        costs = self.data_costs(record.spec)
        if record.bound is not None and record.bound.region in costs:
            return {record.bound.region: costs[record.bound.region]}
        return costs

    def verdict_on(self, record: JobRecord) -> Verdict | None:
        """Why a job waits; None for one that does not wait."""
        if record.state not in WAITING:
            return None
        evaluation, plan = PendingReason.PENDING_EVALUATION, record.plan
        if plan is not None and not plan.victims:
            return Verdict(evaluation, f"{plan.region} was told to start it")
        if plan is not None:
            return Verdict(PendingReason.PREEMPTION_IN_PROGRESS, f"{len(plan.victims)} victims")
        if aside := self.aside(record):
            return aside[0]
        job_class = self.backlog.class_of(record.id)
        if job_class is None:
            return Verdict(evaluation, f"waits out a delay: {record.cause or 'a failure'}")
        verdict = self.verdict_of(job_class)
        news = [hook.news() for hook in self.hooks.news] if verdict == NOT_TRIED else []
        parts = (verdict.detail, self.backlog.grants.news(record.id), *news)
        detail = "; ".join(part for part in parts if part)
        return self.as_reached(replace(verdict, detail=detail))

    def word_for(self, record: JobRecord, verdict: Verdict | None) -> str | None:
        """The reason of a verdict on a job, as people are told it."""
        if verdict is None:
            return None
        not_tried = verdict.reason is PendingReason.PENDING_EVALUATION
        is_delayed = not_tried and self.backlog.is_delayed(record.id)
        return BACK_OFF if is_delayed else verdict.reason.value

    def aside(self, record: JobRecord) -> list[Verdict]:
        """Why a job stands in no order: acts of people, then other jobs."""
        found = []
        if record.hold is not UNSET:
            found.append(Verdict(PendingReason.HELD, record.hold))
        if record.paused is not UNSET:
            found.append(Verdict(PendingReason.TENANT_PAUSED, record.paused))
        if record.awaits is not UNSET:
            found.append(Verdict(PendingReason.WAITING_FOR_JOBS, awaited(record.awaits)))
        return found

    def waiting(self) -> Iterator[tuple[JobSpec, PendingReason, int]]:
        """Jobs without a plan: one of them, why it waits, and how many there are like it.

        O(job classes + jobs in back-off + kinds of jobs aside), however many jobs wait.
        """
        for one in self.backlog.job_classes.values():
            yield one.spec, self.as_reached(self.verdict_of(one)).reason, one.size
        for record in self.backlog.delayed():
            yield record.spec, PendingReason.PENDING_EVALUATION, 1
        yield from self.backlog.aside.by_kind()

    def waiting_in_order(self, after: Key | None = None) -> Iterator[tuple[Key, JobRecord]]:
        """The jobs without a plan, in the order of the profile, as the quota of each allows.

        Not to be changed meanwhile, but to be gone on with ``after`` the last key. Amortised O(1)
        for each, and O(job classes).
        """
        lines: dict[bool, list[int]] = {False: [], True: []}
        for one in self.backlog.job_classes.values():
            lines[not self.tenancy.choices(one.spec, over_quota=False)].append(one.number)
        ranking, records = self.backlog.ranking, self.jobs.records
        found = (ranking.in_order(over, known, after) for over, known in lines.items() if known)
        for key, job in heapq.merge(*found):
            yield key, records[job]

    def waiting_in_none(self) -> Iterator[JobRecord]:
        """The other jobs without a plan. O(these)."""
        yield from self.backlog.delayed()
        yield from map(self.jobs.records.__getitem__, self.backlog.aside.jobs())

    def verdict_of(self, one: JobClass) -> Verdict:
        """Why the jobs of a class wait.

        Their own verdict, or, if none of them was tried, that of their placement class.
        """
        allowed = self.tenancy.choices_of(one.gate)
        within = bool(allowed[False])
        known = list(one.placement[not within].verdicts.values())
        if one.verdict.reason is not PendingReason.PENDING_EVALUATION or not known:
            return one.verdict
        if not within and not allowed[True]:
            return Verdict(*self.tenancy.entitlements.quota_reason(one.spec))
        return known[-1] if within else self.as_beyond_quota(one.spec, known[-1])

    def as_beyond_quota(self, spec: JobSpec, verdict: Verdict) -> Verdict:
        """What a verdict is worth that was found beyond the quota: where room lacks, quota does.

        With more of it the job might stop others. Opportunistic work never uses any. Where enough
        GPUs are idle, on hosts out of service or too far apart, quota is not what the job lacks.
        """
        is_full = verdict.reason is PendingReason.INSUFFICIENT_CAPACITY
        entitlements = self.tenancy.entitlements
        if is_full and entitlements.uses_quota(spec) and not entitlements.are_idle(spec):
            return Verdict(*entitlements.quota_reason(spec))
        return verdict

    def as_reached(self, verdict: Verdict) -> Verdict:
        """What a verdict is worth: a region that is out of reach may have what the others lack."""
        if self.cycle.reach.absent and verdict.reason in NEVER:
            return Verdict(PendingReason.INSUFFICIENT_CAPACITY, self.out_of_reach())
        return verdict

    def out_of_reach(self) -> str:
        """The regions that cannot be asked now, in words; empty when all can be."""
        names = sorted(self.cycle.reach.absent)
        return f"out of reach: {', '.join(names)}" if names else ""
