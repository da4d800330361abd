"""The checks of admission: all that keeps a job from being asked about, in one table.

The cycle walks `CHECKS` for each candidate, prefetch for those behind it, and `explain` for a job
that was not tried. A new reason to wait is one more row.

A verdict counts for all jobs of the same class: a check looks only at what is in `placement_key`
and `gate_key`, and something must end the verdict: an event that unblocks the class, or
``retry_at_s``.
"""

from __future__ import annotations

from collections.abc import Callable

from topmast.fast.queue.backlog.placement_class import Verdict
from topmast.fast.queue.cycle.auction import PendingDecision, earliest, no_region
from topmast.fast.queue.cycle.verdicts import verdict_of_class
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.reason import PendingReason

FULL = PendingReason.INSUFFICIENT_CAPACITY


OTHER_MODE = Verdict(PendingReason.WAITING_FOR_QUOTA)
"""Quota allows nothing in this mode; what becomes of the job is decided in the other."""


def first_verdict(
    queue: QueueViews, record: JobRecord, decision: PendingDecision
) -> Verdict | None:
    """What keeps a job from being asked about, whatever others of its class have heard."""
    own = (check(queue, record, decision) for check in CHECKS if check is not no_room_for_class)
    return next((verdict for verdict in own if verdict is not None), None)


# --- the checks -----------------------------------------------------------------------------------


def unknown_data(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> Verdict | None:
    """The job reads datasets that the catalogue does not have."""
    unknown = queue.data.catalogue.unknown(record.spec.datasets)
    return Verdict(PendingReason.UNKNOWN_DATASET, ", ".join(unknown)) if unknown else None


def lacks_quota(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> Verdict | None:
    """Its tenant may use none of its accelerators in this mode."""
    over_quota, allowed = decision.candidate.over_quota, decision.by_mode
    if allowed[over_quota]:
        return None
    if not over_quota or allowed[False]:
        return OTHER_MODE
    return Verdict(*queue.tenancy.entitlements.quota_reason(record.spec))


def waits_behind(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> Verdict | None:
    """No job may overtake another that waits; the cycle does not even try it."""
    ahead = queue.backlog.waits_behind(decision.candidate)
    if not ahead:
        return None
    detail = f"{ahead} has to start first, and waits itself"
    return Verdict(PendingReason.PENDING_EVALUATION, detail)


def not_its_turn(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> Verdict | None:
    """Time is shared, and other jobs have this round."""
    if queue.backlog.grants.may_start(record.id):
        return None
    return Verdict(FULL, "this round gives the GPUs to other jobs")


def kept_for_others(
    queue: QueueViews, record: JobRecord, decision: PendingDecision
) -> Verdict | None:
    """The job's quota allows only accelerators that a policy keeps for other jobs."""
    allowed = decision.by_mode[decision.candidate.over_quota]
    decision.choices = queue.allowed(record.spec, record, allowed)
    if decision.choices:
        return None
    detail = "the GPU models that its quota allows are kept for other jobs"
    return Verdict(FULL, detail, queue.kept_until_s(record))


def no_room_for_class(
    queue: QueueViews, record: JobRecord, decision: PendingDecision
) -> Verdict | None:
    """The verdict on another job of its placement class holds for it."""
    if decision.colocated_with:
        return None
    return verdict_of_class(queue, record, decision.candidate, decision.choices)


def far_from_data(
    queue: QueueViews, record: JobRecord, decision: PendingDecision
) -> Verdict | None:
    """No region may be asked, for the sake of its data or because none can be reached.

    For a job of a pair, the region of the other has to have the data.
    """
    costs = decision.costs = decision.costs or queue.costs_of(record)
    decision.regions = [region for region, cost in costs.items() if cost.barred is None]
    if decision.colocated_with:
        return _far_from_pair(queue, decision)
    if decision.regions:
        return None
    by_region = (f"{region}: {cost.why}" for region, cost in costs.items())
    detail = queue.out_of_reach() or "; ".join(by_region)
    retry_at_s = earliest(cost.retry_at_s for cost in costs.values())
    return Verdict(no_region(costs.values()), detail, retry_at_s)


def _far_from_pair(queue: QueueViews, decision: PendingDecision) -> Verdict | None:
    """The other job of its pair has no place yet; then it is asked about again."""
    other = queue.jobs.placed.get(decision.colocated_with)
    there = None if other is None or other.plan is None else other.plan.region
    costs = decision.costs
    decision.regions = [r for r in decision.regions if r == there and not costs[r].missing]
    if decision.regions:
        return None
    detail = f"it shares the GPUs of {decision.colocated_with} in this round"
    return Verdict(FULL, f"{detail}, and {decision.colocated_with} is not placed yet")


Check = Callable[[QueueViews, JobRecord, PendingDecision], Verdict | None]
"""Why a job may not start now; None: it passes."""

CHECKS: tuple[Check, ...] = (
    unknown_data,
    lacks_quota,
    waits_behind,
    not_its_turn,
    kept_for_others,
    no_room_for_class,
    far_from_data,
)
"""All checks, in their order."""
