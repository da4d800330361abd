"""Verdicts: what follows for a job that found no place, and for others of its class."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from topmast.fast.queue.backlog.backlog import effective_band
from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.backlog.placement_class import Verdict
from topmast.fast.queue.cycle.auction import earliest
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.plan import Reservation
from topmast.model.reason import PendingReason
from topmast.policies.options import WhenBlocked


def verdict_of_class(
    queue: QueueViews, record: JobRecord, candidate: Candidate, choices: tuple[int, ...]
) -> Verdict | None:
    """What another job of its placement class heard, if this one would hear the same now. O(1).

    Not if it may do more than the others: use a place that is kept for it, stop jobs that rank
    behind it, forget the hosts that it avoids, get a reservation, or have others moved.
    """
    apart = record.moves or record.avoid_hosts or queue.preemption.by_rank
    known = queue.backlog.job_class(record.id).placement[candidate.over_quota].verdicts
    if apart or not known or queue.cycle.backfill.may_reserve(record, queue.now):
        return None
    if queue.cycle.defragmentation.may_ask(record.id, queue.now):
        return None
    held = queue.held_from(record.spec, record, candidate.over_quota)
    both = (known.get(False), known.get(held is not None))
    return next((v for v in both if v is not None and v.covers(choices, held, queue.now)), None)


def refuse(
    queue: QueueViews,
    candidate: Candidate,
    verdict: Verdict,
    offered: Iterable[Reservation | None] = (),
) -> None:
    """A job found no place: block its class until something, or time, may help.

    ``offered``: where it would have a place first.
    """
    record, own = queue.jobs.records[candidate.job], verdict
    if verdict.reason is PendingReason.INSUFFICIENT_CAPACITY:
        over_quota, now = candidate.over_quota, queue.now
        band = effective_band(record.spec.band, over_quota)
        anew_at_s = queue.cycle.backfill.found_no_room(record, band, over_quota, offered, now)
        moves_at_s = queue.cycle.defragmentation.found_no_room(record.id, now)
        times_s = verdict.retry_at_s, anew_at_s, moves_at_s, queue.kept_until_s(record)
        own = replace(verdict, retry_at_s=earliest(times_s))
    block(queue, candidate, own, for_room=True)
    if _holds_for_class(queue, record, verdict):
        placement = queue.backlog.job_class(record.id).placement[candidate.over_quota]
        from_s = queue.cycle.backfill.blocks_from_s(verdict.held, queue.now)
        queue.backlog.block_class(placement, from_s, exempt=queue.cycle.backfill.holder)


def _holds_for_class(queue: QueueViews, record: JobRecord, verdict: Verdict) -> bool:
    """Whether no job of its placement class may do more than it might, now or when time passes."""
    alike = not queue.preemption.by_rank and not queue.cycle.defragmentation.is_on
    in_turn = queue.profile.when_blocked is not WhenBlocked.STOP and queue.cycle.backfill.is_given
    one_choice = len(queue.tenancy.entitlements.accelerators(record.spec)) <= 1
    for_good = verdict.retry_at_s is None and not record.avoid_hosts
    return alike and in_turn and one_choice and for_good


def block(
    queue: QueueViews, candidate: Candidate, verdict: Verdict, *, for_room: bool = False
) -> None:
    """No place now: block the class of a job, and remember why.

    The verdict found within the quota outlives the one found over it. ``for_room``: more room may
    help.
    """
    one, spec = queue.backlog.job_class(candidate.job), queue.jobs.records[candidate.job].spec
    choices = queue.choices_of(one)
    full = PendingReason.INSUFFICIENT_CAPACITY
    busy = verdict.reason is full
    if not candidate.over_quota or not choices[False]:
        beyond = candidate.over_quota
        one.verdict = queue.as_beyond_quota(spec, verdict) if beyond else verdict
    queue.backlog.block(
        one, candidate.over_quota, verdict.retry_at_s,
        queue.cycle.backfill.blocks_from_s(verdict.held, queue.now),
        choices[candidate.over_quota],
        limited=queue.tenancy.ledger.is_limited(spec.tenant), for_room=for_room,
    )  # fmt: skip
    last = candidate.over_quota or not choices[True]
    stops = queue.profile.when_blocked is WhenBlocked.STOP
    if last and stops and (busy or one.verdict.reason is full):
        queue.backlog.blocked.stop_at(candidate, one)


def block_gate(queue: QueueViews, candidate: Candidate) -> None:
    """A job may use nothing in one mode, nor may the others of its gate; the other mode decides."""
    one = queue.backlog.job_class(candidate.job)
    limited = queue.tenancy.ledger.is_limited(one.spec.tenant)
    queue.backlog.blocked.block_gate(one, candidate.over_quota, limited=limited)
