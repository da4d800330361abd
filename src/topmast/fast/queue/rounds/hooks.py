"""The part that rounds take in the queue: jobs without a grant for what they have stop.

When a round begins, the waiting jobs hear of their grants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from topmast.fast.queue.backlog.blocked import Anything
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.hooks import QueueHooks
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.rounds.candidates import Pairs, RoundCandidate, RoundCapacity
from topmast.fast.queue.rounds.kinds import Kind, Kinds
from topmast.fast.queue.rounds.pairs import pairs_of
from topmast.fast.queue.rounds.quota import RoundQuota
from topmast.fast.queue.rounds.rounds import Rounds
from topmast.fast.queue.tenancy.entitlements import Entitlements
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import Fleet
from topmast.model.job import MILLI
from topmast.model.states import JobState, Outcome
from topmast.policies.base import Ints, PairSpeeds

LEAST_LEFT_S = 60.0
"""A job that should be over is expected to need so much more work."""
CAUSE = "its turn is over"


class RoundHooks(QueueHooks):
    """Begins rounds; ``pair_speeds``: what is known of two jobs on the same GPUs, if anything."""

    def __init__(
        self,
        queue: QueueViews,
        rounds: Rounds,
        entitlements: Entitlements,
        pair_speeds: PairSpeeds | None,
    ) -> None:
        self._queue = queue
        self._rounds = rounds
        self._kinds = Kinds(Fleet(()), entitlements)
        self._pair_speeds = pair_speeds

    def on_fleet(self, fleet: Fleet, entitlements: Entitlements) -> None:
        """Nothing that is known of rounds holds any more."""
        self.on_owners(fleet, entitlements)
        self._rounds.reset()

    def on_owners(self, fleet: Fleet, entitlements: Entitlements) -> None:
        """Other clusters may hold other gangs; what a round granted holds on."""
        self._kinds = Kinds(fleet, entitlements)

    def on_enqueued(self, record: JobRecord) -> None:
        """Fractions are to be computed anew."""
        self._rounds.changed = True

    def on_expected(self, record: JobRecord) -> None:
        """Some policies divide the time by what is left."""
        self._rounds.changed = True

    def on_over(self, job: str) -> None:
        """It has no part of the time any more."""
        self._rounds.forget(job)

    def on_out_of_service(self, region: str, gpus: Mapping[str, int]) -> None:
        """What the next round can grant is something else."""
        self._rounds.serves(region, gpus)

    def on_wake(self) -> None:
        """The next round begins when it is due, and no answer is waited for."""
        now = self._queue.now
        if self._rounds.next_s(now) <= now and self._queue.cycle.decision is None:
            self._begin()

    def on_committed(self, record: JobRecord) -> None:
        """The other job of its pair can have its place now."""
        if secondary := self._rounds.guest_of(record.id):
            self._queue.backlog.let_try(secondary)

    def before_end(self, record: JobRecord) -> None:
        """Account for what it received, with the other of its pair."""
        partner = self._partner_of(record)
        self._account_for([record] if partner is None else [record, partner])

    def on_ended(self, record: JobRecord) -> None:
        """When all that had to stop have stopped, what is free is there for all."""
        if self._rounds.left(record.id):
            self._queue.backlog.unblock(Anything())

    def next_s(self) -> float | None:
        """When the next round begins, if there is any job to share time."""
        if not (self._queue.jobs.placed or len(self._queue.backlog.ranking)):
            return None
        return self._rounds.next_s(self._queue.now)

    # --- a round begins ---------------------------------------------------------------------------

    def _begin(self) -> None:
        """Account for the round that is over, grant the GPUs anew, and stop jobs that make room."""
        queue, rounds = self._queue, self._rounds
        self._account_for(list(queue.jobs.placed.values()))
        weights = self._tenant_weights()
        quota = self._quota()
        contenders, outside = self._contenders(list(weights), quota)
        gpus = self._gpus()
        free_milli, of_tenants = self._free(contenders, gpus), np.array(list(weights.values()))
        stage = RoundCapacity(
            self._kinds.models, gpus, free_milli, of_tenants,
            lambda: self._pairs(contenders), self._steps(), quota,
        )  # fmt: skip
        granted = rounds.begin(contenders, outside, stage, queue.now)
        for contender in contenders:
            job = contender.record.id
            if contender.at >= 0 and (granted.get(job) != contender.at or job in rounds.moving):
                self._stop(contender.record)
        waiting = [queue.jobs.records[job] for job in queue.backlog.in_order()]
        queue.backlog.take_turns(waiting, rounds.turns, queue.now)

    def _stop(self, record: JobRecord) -> None:
        assert record.plan is not None
        self._rounds.leaving[record.id] = None
        stop = m.StopAttempt(record.id, record.epoch, Outcome.PREEMPTED, CAUSE)
        self._queue.send(ids.placer(record.plan.region), stop)

    def _account_for(self, records: list[JobRecord]) -> None:
        """Note what jobs have received by now."""
        for record in records:
            model, partner = self._model_of(record), self._partner_of(record)
            self._rounds.ran(record, model, self._queue.now, partner)

    def _partner_of(self, record: JobRecord) -> JobRecord | None:
        """The job that has the same GPUs now."""
        placed, name = self._queue.jobs.placed, record.colocated_with
        other = placed.get(name) if name else None
        return other if other is not None and other.colocated_with == record.id else None

    def _pairs(self, contenders: list[RoundCandidate]) -> Pairs | None:
        """Jobs that may have the same GPUs at the same time; None if there are none, or unknown."""
        if not self._rounds.options.pairs or self._pair_speeds is None:
            return None
        every = self._rounds.share.every_pair
        return pairs_of(contenders, self._kinds.models, self._pair_speeds, every=every)

    def _steps(self) -> Callable[[JobRecord], float] | None:
        """Steps a second of a job at speed 1, that is on the model that it lists first.

        1: not known. None: they do not count, or there is no table of them.
        """
        table, kinds = self._pair_speeds, self._kinds
        if not self._rounds.options.raw or table is None:
            return None

        def steps_per_s(record: JobRecord) -> float:
            kind = kinds.of(record.spec)
            first = next(iter(np.flatnonzero(kind.choice == 0).tolist()), -1)
            model = kinds.models[first] if first >= 0 else ""
            work = (str(record.spec.work or ""), round(kind.width))
            return table.steps_per_s(work, model) or 1.0

        return steps_per_s

    def _model_of(self, record: JobRecord) -> int:
        """The number of the model on which a job runs, -1 if that is none or several."""
        plan, models = record.plan, self._kinds.models
        one = plan is not None and len(plan.held()) == 1 and plan.model in models
        return models.index(plan.model) if plan is not None and one else -1

    # --- the jobs that take part ------------------------------------------------------------------

    def _contenders(
        self, tenants: list[str], quota: RoundQuota | None
    ) -> tuple[list[RoundCandidate], list[JobRecord]]:
        """Jobs for this round's GPUs, and those outside: without GPUs, or of several models."""
        queue = self._queue
        number_of = {name: number for number, name in enumerate(tenants)}
        waiting = [queue.jobs.records[job] for job in queue.backlog.in_order()]
        contenders: list[RoundCandidate] = []
        outside: list[JobRecord] = []
        for record in sorted((*self._going(), *waiting), key=lambda record: record.number):
            if self._is_outside(record):
                outside.append(record)
                continue
            if record.plan is None and not self._has_data(record):
                continue
            at = self._model_of(record)
            kind = self._within_quota(record, self._near_data(record), at, quota)
            if record.plan is not None or kind.runs:
                partner = self._partner_of(record)
                contenders.append(
                    RoundCandidate(
                        record, kind, self._left_s(record, at), self._weight(record),
                        number_of[record.spec.tenant], at, at >= 0 and self._stays(record),
                        "" if partner is None else partner.id,
                    )
                )  # fmt: skip
        return contenders, outside

    def _going(self) -> list[JobRecord]:
        """The jobs that hold GPUs, and are not about to leave them for good."""
        placed = self._queue.jobs.placed.values()
        return [record for record in placed if record.state is not JobState.CANCELLING]

    def _is_outside(self, record: JobRecord) -> bool:
        """Whether the time of a job cannot be divided: it has no GPUs, or several models."""
        kind, at = self._kinds.of(record.spec), self._model_of(record)
        return not kind.runs or (record.plan is not None and (at < 0 or not kind.speeds[at]))

    def _weight(self, record: JobRecord) -> float:
        """What a job weighs, by its band."""
        weight: float = getattr(self._rounds.options.weights, record.spec.band.name.lower())
        return weight

    def _has_data(self, record: JobRecord) -> bool:
        """Whether no data without a replica keeps a waiting job from starting."""
        return not self._queue.data.catalogue.unknown(record.spec.datasets)

    def _near_data(self, record: JobRecord) -> Kind:
        """A job's kind in the regions that have its data, or may get it."""
        spec, plan = record.spec, record.plan
        if not spec.datasets:
            return self._kinds.of(spec)
        costs = self._queue.costs_of(record)
        regions = {region for region, cost in costs.items() if cost.barred is None}
        return self._kinds.of(spec, frozenset(regions | ({plan.region} if plan else set())))

    def _quota(self) -> RoundQuota | None:
        """What quota lets jobs have once all that may be stopped has; None: no tenant has one."""
        ledger = self._queue.tenancy.ledger
        if not (ledger.has_quotas or ledger.keeps_back):
            return None
        going = [record for record in self._going() if not self._is_outside(record)]
        stoppable = [record for record in going if not self._stays(record)]
        return RoundQuota(self._queue.tenancy, stoppable)

    @staticmethod
    def _within_quota(record: JobRecord, kind: Kind, at: int, quota: RoundQuota | None) -> Kind:
        """A job's kind on the models that its tenant may use, and that it runs on.

        A turn on any other would be of no use to it. O(choices x models x depth).
        """
        if quota is None:
            return kind
        choices = quota.choices(record.spec)
        return kind.among(choices if at < 0 else choices | {kind.choice.item(at)})

    def _stays(self, record: JobRecord) -> bool:
        """Whether a running job may not be stopped by the round that begins."""
        now, min_s = self._queue.now, self._queue.profile.min_runtime_s
        started = record.state in (JobState.STARTING, JobState.RUNNING)
        young = record.start_s is None or now - record.start_s < min_s
        return not (self._rounds.share.moves and record.spec.preemptible and started) or young

    def _left_s(self, record: JobRecord, at: int) -> float:
        """Work that is left of a job, in seconds at speed 1, as far as that is known."""
        left_s = self._queue.backlog.durations.remaining_s(record)
        if at >= 0 and record.start_s is not None:
            left_s -= (self._queue.now - record.start_s) * self._speed(record, at)
        return max(LEAST_LEFT_S, left_s)

    def _speed(self, record: JobRecord, at: int) -> float:
        """Work per second of a running job, as if its partner had been there from the start."""
        alone, other = self._kinds.of(record.spec).speeds.item(at), self._partner_of(record)
        if other is None or self._pair_speeds is None:
            return alone
        one, two = ((str(r.spec.work or ""), r.spec.gpus_milli() // MILLI) for r in (record, other))
        found = self._pair_speeds.beside(one, two, self._kinds.models[at])
        return alone if found is None else alone * found[0]

    # --- what there is to grant -------------------------------------------------------------------

    def _gpus(self) -> Ints:
        """GPUs by model on hosts that take work. O(hosts)."""
        found = self._queue.fleet.gpus()
        for region in self._queue.fleet.regions:
            for model, gpus in self._rounds.out_of_service.get(region.name, {}).items():
                found[model] = max(0, found.get(model, 0) - gpus)
        return np.array([found[model] for model in self._kinds.models], np.int64)

    def _free(self, contenders: list[RoundCandidate], gpus: Ints) -> Ints:
        """Thousandths of GPUs by model that contenders may have: all that others do not hold."""
        free, models = gpus * MILLI, self._kinds.models
        among = {contender.record.id for contender in contenders}
        for record in self._queue.jobs.placed.values():
            if record.id in among or record.plan is None:
                continue
            for model, milli in record.plan.held().items():
                if model in models:
                    free[models.index(model)] -= milli
        return np.maximum(free, 0)

    def _tenant_weights(self) -> dict[str, float]:
        """Every tenant that has jobs, and its weight; 1 for one that the fleet does not know."""
        queue = self._queue
        known = {tenant.name: tenant.weight for tenant in queue.fleet.tenants}
        names = sorted({r.spec.tenant for r in queue.jobs.records.values() if not r.finished})
        return {name: known.get(name, 1.0) for name in names}
