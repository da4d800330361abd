"""Questions: whether a candidate may start at all, what the regions are asked, and lines that are closed."""

from __future__ import annotations

from collections.abc import Iterable

from topmast.fast.queue.auction import Asking, earliest, no_region
from topmast.fast.queue.catalogue import DataCost
from topmast.fast.queue.kin import Refusal
from topmast.fast.queue.pending import Candidate, effective_band
from topmast.fast.queue.record import JobRecord
from topmast.fast.queue.views import QueueViews
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import Band
from topmast.model.plan import Plan, Reservation
from topmast.model.reason import PendingReason
from topmast.policies.base import Preemption, WhenBlocked

ASK_TIMEOUT_S = 5.0


def consider(queue: QueueViews, candidate: Candidate) -> None:
    """May this job start in this mode? Then ask the regions; else close its line."""
    record, over_quota = queue.jobs[candidate.job], candidate.over_quota
    unknown = queue.catalogue.unknown(record.spec.datasets)
    if unknown:
        close(queue, candidate, PendingReason.UNKNOWN_DATASET, ", ".join(unknown))
        return
    line = queue.pending.line(candidate.job)
    choices = queue.choices_of(line, over_quota)
    if not choices:
        if over_quota and not queue.choices_of(line, over_quota=False):
            close(queue, candidate, *queue.quota_reason(record.spec))
        else:
            _pass_over(queue, candidate)
        return
    refusal = _was_told(queue, record, candidate, choices)
    if refusal is not None:
        refuse(queue, candidate, refusal)
        return
    costs = queue.data_costs(record.spec)
    if record.bound is not None and record.bound.region in costs:
        costs = {record.bound.region: costs[record.bound.region]}
    regions = [r for r, cost in costs.items() if cost.barred is None]
    if not regions:
        detail = "; ".join(f"{r}: {c.barred} ({c.detail})" for r, c in costs.items())
        retry_at_s = earliest(c.retry_at_s for c in costs.values())
        close(queue, candidate, no_region(costs.values()), detail, retry_at_s)
        return
    ask(queue, candidate, choices, costs, regions, preempt=False)


def ask(
    queue: QueueViews,
    candidate: Candidate,
    choices: tuple[int, ...],
    costs: dict[str, DataCost],
    regions: list[str],
    *,
    preempt: bool,
    free_best: Plan | None = None,
    room_gpu_s: float | None = None,
) -> None:
    """Put one question about a job to ``regions``."""
    record = queue.jobs[candidate.job]
    queue.batch += 1
    held = queue.held_from(record.spec, record, candidate.over_quota)
    queue.asking = asking = Asking(
        queue.batch, candidate, choices, preempt, list(regions), queue.now + ASK_TIMEOUT_S,
        costs, queue.pending.changes, held, free_best=free_best, offers={},
        moves=room_gpu_s is not None,
    )  # fmt: skip
    outranked = None
    if preempt and queue.profile.preemption is Preemption.RANK:
        outranked = queue.outranked(candidate)
    reserve = queue.backfill.may_reserve(record, queue.now)
    reserve = reserve and not may_preempt(queue, record, asking)
    ask = queue.question(
        record.spec, candidate.over_quota, choices, preempt=preempt, job=record.id,
        avoid_hosts=record.avoid_hosts, held=held, reserve=reserve, outranked=outranked,
        room_gpu_s=room_gpu_s,
        cluster=None if record.bound is None else record.bound.cluster,
    )  # fmt: skip
    terms = {region: queue.terms(region, costs[region]) for region in regions}
    kin = queue.pending.line(record.id).kin[candidate.over_quota]
    question = m.AskFleet(queue.batch, ask, terms, kin.number, queue.reach.hold_s())
    queue.send(ids.DESK, question)


def _was_told(
    queue: QueueViews, record: JobRecord, candidate: Candidate, choices: tuple[int, ...]
) -> Refusal | None:
    """What another of its kin was told, if this job would be told the same now. O(1).

    Not if it may do more than the others: have a place that is kept for it, stop who ranks behind it, forget the
    hosts that it avoids, get a reservation, or have others moved.
    """
    apart = record.moves or record.avoid_hosts or queue.profile.preemption is Preemption.RANK
    told = queue.pending.line(record.id).kin[candidate.over_quota].told
    if apart or not told or queue.backfill.may_reserve(record, queue.now):
        return None
    if queue.defragmentation.may_ask(record.id, queue.now):
        return None
    held = queue.held_from(record.spec, record, candidate.over_quota)
    known = (told.get(False), told.get(held is not None))
    return next((r for r in known if r is not None and r.covers(choices, held, queue.now)), None)


def refuse(
    queue: QueueViews,
    candidate: Candidate,
    refusal: Refusal,
    offered: Iterable[Reservation | None] = (),
) -> None:
    """A job found no place: close its line until something, or time, may help. ``offered``: where it would first."""
    record, retry_at_s = queue.jobs[candidate.job], refusal.retry_at_s
    if refusal.reason is PendingReason.INSUFFICIENT_CAPACITY:
        band = effective_band(record.spec.band, candidate.over_quota)
        anew_at_s = queue.backfill.found_no_room(record, band, offered, queue.now)
        moves_at_s = queue.defragmentation.found_no_room(record.id, queue.now)
        retry_at_s = earliest((retry_at_s, anew_at_s, moves_at_s))
    held = refusal.held
    close(queue, candidate, refusal.reason, refusal.detail, retry_at_s, held, refused=True)
    if _goes_for_all(queue, record, refusal):
        kin = queue.pending.line(record.id).kin[candidate.over_quota]
        queue.pending.ranking.exempt = queue.backfill.holder
        queue.pending.pass_over(kin, queue.backfill.closes_from_s(held, queue.now))


def _goes_for_all(queue: QueueViews, record: JobRecord, refusal: Refusal) -> bool:
    """Whether nobody of a job's kin may do more than it might, now or when time alone has passed."""
    profile = queue.profile
    alike = profile.preemption is not Preemption.RANK and not profile.defragment
    in_turn = profile.when_blocked is not WhenBlocked.STOP and queue.backfill.is_given
    one_choice = len(queue.entitlements.accelerators(record.spec)) <= 1
    for_good = refusal.retry_at_s is None and not record.avoid_hosts
    return alike and in_turn and one_choice and for_good


def close(
    queue: QueueViews,
    candidate: Candidate,
    reason: PendingReason,
    detail: str,
    retry_at_s: float | None = None,
    held: Reservation | None = None,
    *,
    refused: bool = False,
) -> None:
    """No place now: remember why. The reason found within the quota outlives the other's."""
    line, spec = queue.pending.line(candidate.job), queue.jobs[candidate.job].spec
    within = queue.choices_of(line, over_quota=False)
    full = PendingReason.INSUFFICIENT_CAPACITY
    busy = reason is full
    if not candidate.over_quota or not within:
        if candidate.over_quota and busy:
            reason, detail = queue.quota_reason(spec)
        line.reason, line.detail = reason, detail
    from_s = queue.backfill.closes_from_s(held, queue.now)
    choices = queue.choices_of(line, candidate.over_quota)
    limited = queue.ledger.is_limited(spec.tenant)
    queue.pending.close(line, candidate.over_quota, retry_at_s, from_s, choices, limited, refused)
    last = candidate.over_quota or not queue.choices_of(line, over_quota=True)
    if last and queue.profile.when_blocked is WhenBlocked.STOP and (busy or line.reason is full):
        queue.pending.stop_at(candidate)


def _pass_over(queue: QueueViews, candidate: Candidate) -> None:
    """A job has nothing to ask for in one mode; the other one decides."""
    line = queue.pending.line(candidate.job)
    limited = queue.ledger.is_limited(line.spec.tenant)
    queue.pending.close(line, candidate.over_quota, None, limited=limited)


def with_data(queue: QueueViews, asking: Asking) -> list[str]:
    """Regions that can be asked and have the job's data already."""
    near = [r for r, c in asking.costs.items() if c.barred is None and not c.missing]
    return [region for region in near if region not in queue.reach.absent]


def may_preempt(queue: QueueViews, record: JobRecord, asking: Asking) -> bool:
    """Whether it makes sense to ask who could be stopped for a job; not twice."""
    if asking.preempt or queue.profile.preemption is Preemption.NONE:
        return False
    if not with_data(queue, asking):
        return False
    band = effective_band(record.spec.band, asking.candidate.over_quota)
    return queue.profile.preemption is Preemption.RANK or band > Band.OPPORTUNISTIC
