"""Admission: whether a candidate may start at all, before any region is asked."""

from __future__ import annotations

from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.backlog.placement_class import Verdict, beside_of
from topmast.fast.queue.cycle.auction import PendingDecision, earliest, no_region
from topmast.fast.queue.cycle.pipeline import first_step
from topmast.fast.queue.cycle.requests import put
from topmast.fast.queue.cycle.verdicts import block, block_gate, refuse, verdict_of_class
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.data.catalogue import DataCost
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.reason import PendingReason

FULL = PendingReason.INSUFFICIENT_CAPACITY


def try_admit(queue: QueueViews, candidate: Candidate) -> None:
    """Ask the regions about a candidate if it may start in this mode; else block its class.

    1. Its datasets are in the catalogue.
    2. Its tenant may use one of its accelerators.
    3. It has its turn, where time is shared, and no policy keeps its accelerators for other jobs.
    4. The verdict on another job of its placement class does not hold for it.
    5. Some region has its data, or can get it; for a job of a pair, the region of the other.
    """
    record, over_quota = queue.jobs.records[candidate.job], candidate.over_quota
    if verdict := unknown_data(queue, record):
        block(queue, candidate, verdict)
        return
    job_class = queue.backlog.job_class(candidate.job)
    choices = queue.choices_of(job_class)[over_quota]
    if not choices:
        if over_quota and not queue.choices_of(job_class)[False]:
            block(queue, candidate, Verdict(*queue.tenancy.entitlements.quota_reason(record.spec)))
        else:
            block_gate(queue, candidate)
        return
    if verdict := not_its_turn(queue, record):
        block(queue, candidate, verdict)
        return
    choices = queue.allowed(record.spec, record, choices)
    if not choices:
        block(queue, candidate, kept_for_others(queue, record))
        return
    beside = beside_of(job_class)
    known = None if beside else verdict_of_class(queue, record, candidate, choices)
    if known is not None:
        refuse(queue, candidate, known)
        return
    costs = queue.costs_of(record)
    regions = [region for region, cost in costs.items() if cost.barred is None]
    verdict = far_from_data(costs)
    if beside:
        region = _region_of(queue, beside)
        regions = [r for r in regions if r == region and not costs[r].missing]
        verdict = None if regions else _waits_for(beside)
    if verdict is not None:
        block(queue, candidate, verdict)
        return
    decision = PendingDecision(candidate, choices, costs, regions, beside)
    put(queue, record, decision, first_step(queue, record, decision))


def unknown_data(queue: QueueViews, record: JobRecord) -> Verdict | None:
    """The job reads datasets that the catalogue does not have."""
    unknown = queue.data.catalogue.unknown(record.spec.datasets)
    return Verdict(PendingReason.UNKNOWN_DATASET, ", ".join(unknown)) if unknown else None


def not_its_turn(queue: QueueViews, record: JobRecord) -> Verdict | None:
    """Time is shared, and other jobs have this round."""
    if queue.backlog.grants.may_start(record.id):
        return None
    return Verdict(FULL, "this round gives the GPUs to other jobs")


def kept_for_others(queue: QueueViews, record: JobRecord) -> Verdict:
    """The job's quota allows only accelerators that a policy keeps for other jobs."""
    detail = "the GPU models that its quota allows are kept for other jobs"
    return Verdict(FULL, detail, queue.kept_until_s(record))


def far_from_data(costs: dict[str, DataCost]) -> Verdict | None:
    """No region may be asked, for the sake of its data or because none can be reached."""
    if any(cost.barred is None for cost in costs.values()):
        return None
    detail = "; ".join(f"{region}: {cost.why}" for region, cost in costs.items())
    retry_at_s = earliest(cost.retry_at_s for cost in costs.values())
    return Verdict(no_region(costs.values()), detail, retry_at_s)


def _waits_for(other: str) -> Verdict:
    """The other job of its pair has no place yet; then it is asked about again."""
    return Verdict(
        FULL, f"it shares the GPUs of {other} in this round, and {other} is not placed yet"
    )


def _region_of(queue: QueueViews, job: str) -> str | None:
    """The region where another job has its place."""
    record = queue.jobs.records.get(job)
    return None if record is None or record.plan is None else record.plan.region
