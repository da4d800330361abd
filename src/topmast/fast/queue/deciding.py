"""The decision about one job, when all its offers are in: commit, fetch data, ask for more, or close its line."""

from __future__ import annotations

from topmast.fast.queue import facts as f
from topmast.fast.queue.applying import REFUSAL_DELAY_S
from topmast.fast.queue.asking import (
    ASK_TIMEOUT_S,
    ask,
    close,
    may_preempt,
    refuse,
    with_data,
)
from topmast.fast.queue.auction import Asking, Nearby, earliest, most_hopeful, winner
from topmast.fast.queue.datasets import begin_copy
from topmast.fast.queue.fetches import waits_since_s
from topmast.fast.queue.kin import Refusal
from topmast.fast.queue.lifecycle import release_place
from topmast.fast.queue.pending import Candidate, effective_band
from topmast.fast.queue.record import JobRecord
from topmast.fast.queue.views import QueueViews
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.plan import Plan
from topmast.model.reason import PendingReason

FETCH_AGAIN_S = 60.0
"""How often a job whose data is being copied is looked at: room may come up where its data is already."""


def auction(queue: QueueViews, asking: Asking) -> None:
    """All offers are in: commit the best plan, order its data, ask for more, or close.

    More is: with moves, if it waited long; with elastic work made smaller, which decides it if that makes room; and
    with preemption. The better of moves and preemption wins.
    """
    queue.asking = None
    candidate = asking.candidate
    record = queue.jobs.get(candidate.job)
    elastic = record is not None and record.spec.elastic is not None
    best = winner([asking.free_best, *(o.plan for o in asking.offers.values())], elastic)
    gone = record is None or queue.pending.line_of(record.id) is None
    if record is None or gone:
        return  # it was cancelled while the regions thought about it
    over_quota = candidate.over_quota
    stops = not asking.preempt and may_preempt(queue, record, over_quota, asking.costs)
    may_win = best is not None and not asking.costs[best.region].missing
    near = with_data(queue, asking.costs)
    here = winner((o.plan for o in asking.offers.values()), elastic) if asking.copies else None
    nearby = _nearby(asking)
    stops_nobody = best is not None and (not best.victims or asking.shrinks)
    if best is not None and may_win and (stops_nobody or not stops):
        _commit(queue, record, asking, best)
    elif here is not None:  # nothing is copied while a free place has the data
        _commit(queue, record, asking, here)
    elif best is not None and not may_win and near and nearby is None and _weighs(queue, asking):
        ask(
            queue, candidate, asking.choices, asking.costs, near, preempt=False, free_best=best,
            copies=True,
        )  # fmt: skip
    elif near and _may_move(queue, record, asking):
        band = effective_band(record.spec.band, over_quota)
        worth_gpu_s = queue.defragmentation.worth_gpu_s(record, band, queue.now)
        queue.defragmentation.asked(record.id, queue.now)
        ask(
            queue, candidate, asking.choices, asking.costs, near, preempt=False, free_best=best,
            room_gpu_s=worth_gpu_s, nearby=nearby,
        )  # fmt: skip
    elif near and _may_shrink(queue, candidate, record, asking):
        ask(
            queue, candidate, asking.choices, asking.costs, near, preempt=False, free_best=best,
            shrinks=True, nearby=nearby,
        )  # fmt: skip
    elif stops:
        ask(
            queue, candidate, asking.choices, asking.costs, near, preempt=True, free_best=best,
            nearby=nearby,
        )  # fmt: skip
    elif best is not None:
        _fetch_or_wait(queue, record, asking, best, nearby)
    elif record.avoid_hosts:
        queue.decide(f.Forgiven(record.id))
    elif asking.changes == queue.pending.changes:  # else it is asked about once more
        _found_no_place(queue, record, asking)


def _found_no_place(queue: QueueViews, record: JobRecord, asking: Asking) -> None:
    """Close the line of a job for the best of the regions' reasons, until time may help; its kin are told the same."""
    candidate = asking.candidate
    reason = most_hopeful(o.reason for o in asking.offers.values())
    retry_at_s = earliest(o.retry_at_s for o in asking.offers.values())
    copies_at_s = earliest(c.retry_at_s for c in asking.costs.values())
    retry_at_s = earliest((retry_at_s, copies_at_s))
    if asking.silent:
        retry_at_s = earliest((retry_at_s, queue.now + ASK_TIMEOUT_S))
    refusal = Refusal(frozenset(asking.choices), asking.held, reason, retry_at_s)
    if not asking.silent:
        kin = queue.pending.line(record.id).kin[candidate.over_quota]
        kin.told[asking.held is not None] = refusal
    refuse(queue, candidate, refusal, [o.reservation for o in asking.offers.values()])


def _may_move(queue: QueueViews, record: JobRecord, asking: Asking) -> bool:
    asked = asking.preempt or asking.moves or asking.shrinks
    if asked or not record.spec.gpus_milli():
        return False
    reasons = [offer.reason for offer in asking.offers.values()]
    busy = PendingReason.INSUFFICIENT_CAPACITY in reasons
    return busy and queue.defragmentation.may_ask(record.id, queue.now)


def _may_shrink(queue: QueueViews, candidate: Candidate, record: JobRecord, asking: Asking) -> bool:
    if asking.preempt or asking.shrinks:
        return False
    reasons = [offer.reason for offer in asking.offers.values()]
    if PendingReason.INSUFFICIENT_CAPACITY not in reasons:
        return False
    return queue.elastic.may_shrink(
        effective_band(record.spec.band, candidate.over_quota), queue.now
    )


def _commit(queue: QueueViews, record: JobRecord, asking: Asking, plan: Plan) -> None:
    """Write the attempt and its class down, and let the region carry it out."""
    over_quota = asking.candidate.over_quota
    offer = asking.offers.get(plan.region)
    held = offer is not None and offer.plan is plan
    hold = offer.hold.id if held and offer is not None and offer.hold is not None else ""
    plan = queue.entitlements.counted(record.spec, plan)
    may = queue.entitlements.may_borrow if over_quota else queue.entitlements.is_within
    if plan.gpus_milli and not may(record.spec, plan.held()):
        # The quota changed while the regions thought about it.
        reason, detail = queue.quota_reason(record.spec)
        close(queue, asking.candidate, reason, detail, queue.now + REFUSAL_DELAY_S)
        return
    epoch = max(record.epoch, queue.skipped.get(record.id, 0)) + 1
    expected_s = queue.pending.remaining_s(record) / queue.speed_of_size(record.spec, plan)
    if plan.region != record.region:
        release_place(queue, record)
    queue.decide(f.Planned(record.id, epoch, plan, over_quota))
    queue.ahead.take(plan.region, hold, plan.gpus_milli)
    if guest := queue.rounds.guest_of(record.id):
        queue.pending.reopen_line(guest)
    queue.send(
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


def _weighs(queue: QueueViews, asking: Asking) -> bool:
    """Whether a copy for the best plan has to be worth it: one that is under way serves whoever wants it."""
    best = winner([asking.free_best, *(o.plan for o in asking.offers.values())])
    return queue.fetches.weighs and best is not None and not asking.costs[best.region].copying


def _nearby(asking: Asking) -> Nearby | None:
    """What is known of room near the data: told just now, or to an earlier question about the same job."""
    if not asking.copies:
        return asking.nearby
    busy = PendingReason.INSUFFICIENT_CAPACITY
    could = [offer for offer in asking.offers.values() if offer.reason is busy]
    kept = (offer.reservation for offer in could)
    return Nearby(bool(could), earliest(held.from_s for held in kept if held is not None))


def _fetch_or_wait(
    queue: QueueViews, record: JobRecord, asking: Asking, plan: Plan, nearby: Nearby | None
) -> None:
    """Room is away from the data alone: have it copied, unless to wait is cheaper, or enough was copied."""
    if nearby is None or not nearby.could:  # no region with its data could ever hold it
        _fetch(queue, record, asking, plan)
        return
    copy_s = asking.costs[plan.region].seconds
    since_s = waits_since_s(record)
    wait = queue.fetches.wait(plan.region, copy_s, nearby.room_s, since_s, queue.now)
    if wait is None:
        _fetch(queue, record, asking, plan)
        return
    full, again_s = PendingReason.INSUFFICIENT_CAPACITY, wait.until_s
    if queue.fetches.next_s(queue.now) is None:
        again_s = max(queue.now + FETCH_AGAIN_S, again_s)
    # Near its data somebody may be old enough to be stopped before that.
    young_until_s = earliest(offer.retry_at_s for offer in asking.offers.values())
    anew_at_s = _reserve_near(queue, record, asking)
    retry_at_s = earliest((again_s, young_until_s, anew_at_s))
    close(queue, asking.candidate, full, wait.why, retry_at_s, refused=True)


def _reserve_near(queue: QueueViews, record: JobRecord, asking: Asking) -> float | None:
    """A job waits for room near its data: that is reserved for it, or anew, as where there is room nowhere.

    Returns when to ask it again.
    """
    if not queue.backfill.may_reserve(record, queue.now):
        return None
    over_quota = asking.candidate.over_quota
    band = effective_band(record.spec.band, over_quota)
    offered = [offer.reservation for offer in asking.offers.values()]
    return queue.backfill.found_no_room(record, band, over_quota, offered, queue.now)


def _fetch(queue: QueueViews, record: JobRecord, asking: Asking, plan: Plan) -> None:
    """The best plan wants data that its region has not: have it copied, and ask again then."""
    for dataset, source in asking.costs[plan.region].missing:
        if queue.catalogue.copy_to(dataset, plan.region) is None:
            begin_copy(queue, dataset, source, plan.region, cause=record.id)
    names = ", ".join(dataset for dataset, _ in asking.costs[plan.region].missing)
    detail = f"{names} is being copied to {plan.region}"
    again_s = queue.now + FETCH_AGAIN_S
    close(queue, asking.candidate, PendingReason.WAITING_FOR_DATA, detail, again_s)
