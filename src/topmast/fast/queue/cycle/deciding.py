"""The decision about one job, when all its offers are in: commit, fetch data, ask for more, or block its class."""

from __future__ import annotations

from topmast.fast.queue import facts as f
from topmast.fast.queue.applying import REFUSAL_DELAY_S
from topmast.fast.queue.backlog.backlog import effective_band
from topmast.fast.queue.backlog.placement_class import Verdict
from topmast.fast.queue.cycle.asking import (
    ASK_TIMEOUT_S,
    ask,
    may_preempt,
    with_data,
)
from topmast.fast.queue.cycle.auction import (
    Asking,
    Nearby,
    Step,
    decided_by,
    earliest,
    most_hopeful,
    next_step,
)
from topmast.fast.queue.cycle.verdicts import block, refuse
from topmast.fast.queue.data.copies_on_demand import waits_since_s
from topmast.fast.queue.data.datasets import begin_copy
from topmast.fast.queue.lifecycle import release_place
from topmast.fast.queue.record import JobRecord
from topmast.fast.queue.views import QueueViews
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.plan import Plan
from topmast.model.reason import PendingReason

FETCH_AGAIN_S = 60.0
"""How often a job whose data is being copied is looked at: room may come up where its data is already."""


class Options:
    """What the queue may do for one job, as of now."""

    def __init__(self, queue: QueueViews, record: JobRecord, asking: Asking) -> None:
        self._queue = queue
        self._record = record
        self._asking = asking

    @property
    def is_elastic(self) -> bool:
        """Whether more tasks are better."""
        return self._record.spec.elastic is not None

    def has_data_somewhere(self) -> bool:
        """Whether some region that can be asked has all its data."""
        return bool(with_data(self._queue, self._asking.costs))

    def weighs_copies(self, region: str) -> bool:
        """Whether a copy to a region has to be worth it: one that is under way serves whoever wants it."""
        return self._queue.fetches.weighs and not self._asking.costs[region].copying

    def may_move(self) -> bool:
        """Whether jobs may be moved for it: it found no room for long."""
        asking = self._asking
        asked = asking.preempt or asking.moves or asking.shrinks
        if asked or not self._record.spec.gpus_milli() or not self._is_full():
            return False
        return self._queue.defragmentation.may_ask(self._record.id, self._queue.now)

    def may_shrink(self) -> bool:
        """Whether elastic jobs may be made smaller for it."""
        queue, asking = self._queue, self._asking
        if asking.preempt or asking.shrinks or not self._is_full():
            return False
        band = effective_band(self._record.spec.band, asking.candidate.over_quota)
        return queue.elastic.may_shrink(band, queue.now)

    def may_stop(self) -> bool:
        """Whether jobs may be stopped for it."""
        over_quota = self._asking.candidate.over_quota
        return may_preempt(self._queue, self._record, over_quota, self._asking.costs)

    def _is_full(self) -> bool:
        offers = self._asking.offers.values()
        return PendingReason.INSUFFICIENT_CAPACITY in [offer.reason for offer in offers]


def auction(queue: QueueViews, asking: Asking) -> None:
    """All offers are in: take the next step. As `next_step`."""
    queue.asking = None
    candidate = asking.candidate
    record = queue.jobs.get(candidate.job)
    if record is None or queue.pending.class_of(record.id) is None:
        return  # it was cancelled while the regions thought about it
    step, plan = next_step(asking, Options(queue, record, asking))
    nearby, room_gpu_s = asking.what_is_nearby(), None
    match step:
        case Step.COMMIT if plan is not None:
            _commit(queue, record, asking, plan)
            return
        case Step.FETCH if plan is not None:
            _fetch_or_wait(queue, record, asking, plan, nearby)
            return
        case Step.REFUSE:
            if record.avoid_hosts:
                queue.decide(f.AvoidHostsCleared(record.id))
            elif (
                asking.changes == queue.pending.blocked.changes
            ):  # else it is asked about once more
                _found_no_place(queue, record, asking)
            return
        case Step.MOVE:
            band = effective_band(record.spec.band, candidate.over_quota)
            room_gpu_s = queue.defragmentation.worth_gpu_s(record, band, queue.now)
            queue.defragmentation.asked(record.id, queue.now)
    ask(
        queue, candidate, asking.choices, asking.costs, with_data(queue, asking.costs),
        preempt=step is Step.STOP, free_best=plan, room_gpu_s=room_gpu_s,
        copies=step is Step.ASK_NEAR, nearby=nearby, shrinks=step is Step.SHRINK,
    )  # fmt: skip


def _found_no_place(queue: QueueViews, record: JobRecord, asking: Asking) -> None:
    """Block the class of a job for the best of the regions' reasons, until time may help.

    The verdict goes for its placement class.
    """
    candidate = asking.candidate
    reason = most_hopeful(o.reason for o in asking.offers.values())
    retry_at_s = earliest(o.retry_at_s for o in asking.offers.values())
    copies_at_s = earliest(c.retry_at_s for c in asking.costs.values())
    retry_at_s = earliest((retry_at_s, copies_at_s))
    if asking.silent:
        retry_at_s = earliest((retry_at_s, queue.now + ASK_TIMEOUT_S))
    held = asking.held
    detail = f"room in {held.region} is kept for {held.job}" if held else ""
    verdict = Verdict(reason, detail, retry_at_s, asking.changes, frozenset(asking.choices), held)
    if not asking.silent:
        placement = queue.pending.job_class(record.id).placement[candidate.over_quota]
        placement.verdicts[held is not None] = verdict
    refuse(queue, candidate, verdict, [o.reservation for o in asking.offers.values()])


def _commit(queue: QueueViews, record: JobRecord, asking: Asking, plan: Plan) -> None:
    """Write the attempt and its class down, and let the region carry it out."""
    over_quota = asking.candidate.over_quota
    offer = asking.offers.get(plan.region)
    held = offer is not None and offer.plan is plan
    hold = offer.hold.id if held and offer is not None and offer.hold is not None else ""
    chosen, plan = plan, queue.entitlements.counted(record.spec, plan)
    may = queue.entitlements.may_borrow if over_quota else queue.entitlements.is_within
    if plan.gpus_milli and not may(record.spec, plan.held()):
        # The quota changed while the regions thought about it.
        reason, detail = queue.quota_reason(record.spec)
        verdict = Verdict(reason, detail, queue.now + REFUSAL_DELAY_S)
        block(queue, asking.candidate, verdict)
        return
    epoch = max(record.epoch, queue.skipped.get(record.id, 0)) + 1
    expected_s = queue.pending.remaining_s(record) / queue.speed_of_size(record.spec, plan)
    if plan.region != record.region:
        release_place(queue, record)
    elastic, absent = record.spec.elastic is not None, queue.reach.absent
    decided = decided_by(asking, chosen, elastic=elastic, bound=record.bound, absent=absent)
    queue.decide(f.Planned(record.id, epoch, plan, over_quota, decided))
    queue.ahead.take(plan.region, hold, plan.gpus_milli)
    if guest := queue.rounds.guest_of(record.id):
        queue.let_try(guest)
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
    block(queue, asking.candidate, Verdict(full, wait.why, retry_at_s), for_room=True)


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
    block(queue, asking.candidate, Verdict(PendingReason.WAITING_FOR_DATA, detail, again_s))
