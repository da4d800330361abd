"""The decision, with all bids of a phase in: commit a plan, ask in the next phase, or block."""

from __future__ import annotations

from topmast.fast.queue import facts as f
from topmast.fast.queue.backlog.backlog import effective_band
from topmast.fast.queue.backlog.placement_class import Verdict
from topmast.fast.queue.cycle.auction import (
    PendingDecision,
    Phase,
    decided_by,
    earliest,
    most_hopeful,
)
from topmast.fast.queue.cycle.outright import note_refusal
from topmast.fast.queue.cycle.pipeline import next_step, waits_near
from topmast.fast.queue.cycle.requests import ASK_TIMEOUT_S, put, release_place
from topmast.fast.queue.cycle.verdicts import block, refuse
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.data.orders import begin_copy
from topmast.fast.queue.jobs.record import REFUSAL_DELAY_S, JobRecord
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.plan import Plan
from topmast.model.reason import PendingReason

KEPT = "the GPU models on which it would fit are kept for other jobs"

FETCH_AGAIN_S = 60.0
"""How often to ask about a job while its data is being copied: its data may come to have room."""


def decide(queue: QueueViews, decision: PendingDecision) -> None:
    """All bids of a phase are in: commit the plan that it accepts, or go on to the next phase."""
    queue.cycle.decision = None
    record = queue.jobs.records.get(decision.candidate.job)
    if record is None or queue.backlog.class_of(record.id) is None:
        return  # it was cancelled while the regions searched
    step, plan = next_step(queue, record, decision)
    if plan is not None:
        _commit(queue, record, decision, plan)
    elif step.phase is Phase.COPY_OR_WAIT:
        _copy_or_wait(queue, record, decision)
    elif step.phase is Phase.RESERVE:
        _reserve(queue, record, decision)
    else:
        put(queue, record, decision, step)
        if step.phase is Phase.MOVE:
            queue.cycle.defragmentation.asked(record.id, queue.now)


def _reserve(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> None:
    """There is no place: reserve one if the job waited for long, and block its class."""
    if record.avoid_hosts:
        queue.decide(f.AvoidHostsCleared(record.id))
    elif decision.changes == queue.backlog.blocked.changes:  # else it is asked about once more
        found_no_place(queue, record, decision)


def found_no_place(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> None:
    """Block the class of a job for the best of the regions' reasons, until time may help.

    The verdict goes for its placement class.
    """
    candidate, held = decision.candidate, decision.held
    reason = most_hopeful(decision.reasons().values())
    retry_at_s = earliest(bid.retry_at_s for bid in decision.bids.values())
    copies_at_s = earliest(c.retry_at_s for c in decision.costs.values())
    retry_at_s = earliest((retry_at_s, copies_at_s))
    if decision.silent:
        retry_at_s = earliest((retry_at_s, queue.now + ASK_TIMEOUT_S))
    detail = f"room in {held.region} is kept for {held.job}" if held else ""
    if queue.may_fit_on_kept(record, reason):
        reason, detail = PendingReason.INSUFFICIENT_CAPACITY, KEPT
    choices = frozenset(decision.choices)
    verdict = Verdict(reason, detail, retry_at_s, choices, held)
    if not decision.silent:
        placement = queue.backlog.job_class(record.id).placement[candidate.over_quota]
        placement.verdicts[held is not None] = verdict
        note_refusal(queue, record, decision)
    refuse(queue, candidate, verdict, [bid.reservation for bid in decision.bids.values()])


def _commit(queue: QueueViews, record: JobRecord, decision: PendingDecision, plan: Plan) -> None:
    """Record the attempt, and let the region carry it out."""
    over_quota = decision.candidate.over_quota
    lease = decision.lease_of(plan)
    entitlements = queue.tenancy.entitlements
    chosen, plan = plan, entitlements.counted(record.spec, plan)
    may = entitlements.may_borrow if over_quota else entitlements.is_within
    if plan.gpus_milli and not may(record.spec, plan.held()):
        # The quota changed while the regions searched.
        reason, detail = entitlements.quota_reason(record.spec)
        verdict = Verdict(reason, detail, queue.now + REFUSAL_DELAY_S)
        block(queue, decision.candidate, verdict)
        return
    epoch = max(record.epoch, queue.jobs.skipped.get(record.id, 0)) + 1
    speed = record.speed_of_size(plan, queue.profile.elastic.efficiency)
    expected_s = queue.backlog.remaining_s(record) / speed
    if plan.region != record.region:
        release_place(queue, record)
    elastic, absent = record.spec.elastic is not None, queue.cycle.reach.absent
    decided = decided_by(decision, chosen, elastic=elastic, bound=record.bound, absent=absent)
    queue.decide(f.Planned(record.id, epoch, plan, over_quota, decided))
    queue.cycle.prefetch.take(plan.region, lease)
    for hook in queue.hooks.on_committed:
        hook.on_committed(record)
    band, time_left_s = effective_band(record.spec.band, over_quota), record.time_left_s()
    told, foreseen = (epoch, record.spec, band, time_left_s, expected_s), queue.cycle.foreseen
    if foreseen.plans is not None:  # commits are sent together, before the next request
        foreseen.choose([foreseen.row], *[[one] for one in told])
    else:
        queue.send(ids.placer(plan.region), m.CommitPlan(plan, *told, lease))


def _copy_or_wait(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> None:
    """There is room away from the data alone: copy the data, unless to wait is cheaper."""
    plan = decision.best
    assert plan is not None
    wait = waits_near(queue, record, decision)
    if wait is None:
        _copy(queue, record, decision, plan)
        return
    full, again_s = PendingReason.INSUFFICIENT_CAPACITY, wait.until_s
    if queue.data.fetches.next_s(queue.now) is None:
        again_s = max(queue.now + FETCH_AGAIN_S, again_s)
    # Near its data a job may be old enough to be stopped before that.
    young_until_s = earliest(bid.retry_at_s for bid in decision.bids.values())
    anew_at_s = _reserve_near(queue, record, decision)
    retry_at_s = earliest((again_s, young_until_s, anew_at_s))
    block(queue, decision.candidate, Verdict(full, wait.why, retry_at_s), for_room=True)


def _reserve_near(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> float | None:
    """Reserve room near its data for a job that waits for it; returns when to ask again."""
    if not queue.cycle.backfill.may_reserve(record, queue.now):
        return None
    over_quota = decision.candidate.over_quota
    band = effective_band(record.spec.band, over_quota)
    offered = [bid.reservation for bid in decision.bids.values()]
    return queue.cycle.backfill.found_no_room(record, band, over_quota, offered, queue.now)


def _copy(queue: QueueViews, record: JobRecord, decision: PendingDecision, plan: Plan) -> None:
    """The best plan wants data that its region lacks: order the copies, and ask again then."""
    for dataset, source in decision.costs[plan.region].missing:
        if queue.data.catalogue.copy_to(dataset, plan.region) is None:
            begin_copy(queue, queue.data, dataset, source, plan.region, cause=record.id)
    names = ", ".join(dataset for dataset, _ in decision.costs[plan.region].missing)
    detail = f"{names} is being copied to {plan.region}"
    again_s = queue.now + FETCH_AGAIN_S
    block(queue, decision.candidate, Verdict(PendingReason.WAITING_FOR_DATA, detail, again_s))
