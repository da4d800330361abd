"""Jobs behind a candidate are asked about with it: thousands that come together share a question.

The fleet placer finds a place for each as if those before it ran. When a job's turn comes, its plan
counts if all came as it was foreseen: every job before it was placed as planned, and its request is
the one that was answered. Else it is asked about by itself, so that jobs are placed as one by one.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.backlog.placement_class import JobClass
from topmast.fast.queue.cycle.auction import PendingDecision
from topmast.fast.queue.cycle.foreseen import LEAST, Kind
from topmast.fast.queue.cycle.prefetch import following
from topmast.fast.queue.cycle.views import QueueViews
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.plan import PlacementRequest, Plan


def ask_behind(queue: QueueViews, decision: PendingDecision) -> m.Behind | UnsetType:
    """The question about the jobs behind a candidate; absent where none are to be asked about.

    O(jobs asked about).
    """
    foreseen = queue.cycle.foreseen
    foreseen.forget()
    count = min(queue.cycle.budget, foreseen.most)
    if count < LEAST or len(queue.backlog.ranking) <= LEAST or not _is_plain(queue, decision):
        return UNSET
    if foreseen.pause:
        foreseen.pause -= 1
        return UNSET
    asked = _kinds_behind(queue, decision.candidate, count)
    if len(asked) < LEAST:
        return UNSET
    foreseen.ask(asked, decision.candidate.job)
    numbers: dict[int, int] = {}
    requests: list[PlacementRequest] = []
    for job, kind in asked.items():
        if id(kind) not in numbers:
            numbers[id(kind)] = len(requests)
            requests.append(_request(queue, job, kind))
    jobs = tuple([(job, numbers[id(kind)]) for job, kind in asked.items()])
    held_milli = dict(queue.tenancy.ledger.by_region)
    return m.Behind(tuple(requests), jobs, held_milli, queue.tenancy.gpus_by_region)


def foreseen_plan(queue: QueueViews, decision: PendingDecision) -> Plan | None:
    """The plan that was foreseen for a candidate, if all else came as it was foreseen. O(1)."""
    foreseen = queue.cycle.foreseen
    if not foreseen.plans:
        return None
    plan, candidate = foreseen.plans.popleft(), decision.candidate
    job_class, before = queue.backlog.job_class(candidate.job), queue.jobs.records[foreseen.last]
    if (
        plan.job == candidate.job
        and before.plan is not None
        and _is_plain(queue, decision)
        and foreseen.asked[candidate.job].covers(candidate, job_class, decision.choices)
    ):
        foreseen.last = candidate.job
        return plan
    foreseen.forget()
    return None


def send_commits(queue: QueueViews) -> None:
    """Send what was chosen of the plans that were foreseen: to each region all at once."""
    commits, queue.cycle.foreseen.commits = queue.cycle.foreseen.commits, {}
    for region, those in commits.items():
        message = those[0] if len(those) == 1 else m.CommitPlans(tuple(those))
        queue.send(ids.placer(region), message)


def _is_plain(queue: QueueViews, decision: PendingDecision) -> bool:
    """Whether a candidate is asked about in all regions alike, and all are in this process."""
    cycle = queue.cycle
    return (
        queue.is_without_data(decision.costs)
        and not cycle.reach.apart
        and not cycle.reach.absent
        and cycle.backfill.reservation is None
        and not queue.windows.known
        and not queue.jobs.records[decision.candidate.job].moves
    )


def _kinds_behind(queue: QueueViews, first: Candidate, count: int) -> dict[str, Kind]:
    """By job, the kinds of the candidates behind one, up to the first that is not common."""
    found: dict[str, Kind] = {}
    known: dict[tuple[int, bool], Kind | None] = {}
    for candidate in following(queue.backlog.ranking, first, count):
        if candidate.job in found:
            continue  # over quota as well
        job_class = queue.backlog.job_class(candidate.job)
        key = (job_class.number, candidate.over_quota)
        if key not in known:
            known[key] = _kind_of(queue, candidate, job_class)
        kind = known[key]
        if kind is None or queue.jobs.records[candidate.job].moves:
            break
        found[candidate.job] = kind
    return found


def _kind_of(queue: QueueViews, candidate: Candidate, job_class: JobClass) -> Kind | None:
    """The kind of a common job; None for one that has to be asked about by itself."""
    record, spec = queue.jobs.records[candidate.job], job_class.spec
    alone = record.bound is not None or record.avoid_hosts or job_class.grant is not None
    if alone or spec.datasets or spec.elastic is not None:
        return None
    allowed = queue.choices_of(job_class)[candidate.over_quota]
    choices = queue.allowed(record.spec, record, allowed)
    return Kind(job_class, candidate.over_quota, choices) if choices else None


def _request(queue: QueueViews, job: str, kind: Kind) -> PlacementRequest:
    record = queue.jobs.records[job]
    return queue.request(record.spec, kind.over_quota, kind.choices, record=record)
