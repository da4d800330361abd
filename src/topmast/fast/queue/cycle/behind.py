"""Jobs behind a candidate are asked about with it: thousands that come together share a question.

The fleet placer finds a place for each as if those before it ran. When a job's turn comes, its plan
counts if all came as it was foreseen: every job before it was placed as planned, and its request is
the one that was answered. Else it is asked about by itself, so that jobs are placed as one by one.
Where it is known beforehand that nothing comes between, all plans are taken at once.
"""

from __future__ import annotations

from collections import Counter

from msgspec import UNSET, UnsetType

from topmast.fast.queue import facts as f
from topmast.fast.queue.backlog.backlog import effective_band
from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.backlog.placement_class import JobClass
from topmast.fast.queue.cycle.auction import PendingDecision
from topmast.fast.queue.cycle.foreseen import LEAST, PER_REQUEST, Asked, Kind
from topmast.fast.queue.cycle.prefetch import following
from topmast.fast.queue.cycle.views import QueueViews
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.columns import some
from topmast.model.plan import Plan

# --- the question ---------------------------------------------------------------------------------


def ask_behind(queue: QueueViews, decision: PendingDecision) -> m.Behind | UnsetType:
    """The question about the jobs behind a candidate; absent where none are to be asked about.

    O(jobs asked about).
    """
    foreseen = queue.cycle.foreseen
    foreseen.forget()
    count = min(PER_REQUEST * queue.cycle.budget, foreseen.most)
    if count < LEAST or len(queue.backlog.ranking) <= LEAST:
        return UNSET
    if not are_common(queue) or not is_plain(queue, decision):
        return UNSET
    if foreseen.pause:
        foreseen.pause -= 1
        return UNSET
    asked = kinds_behind(queue, decision.candidate, count)
    if len(asked.jobs) < LEAST:
        return UNSET
    foreseen.ask(asked, decision.candidate.job)
    first: dict[int, str] = {}
    for job, kind in zip(asked.jobs, asked.kind, strict=True):
        first.setdefault(kind, job)
    requests = []
    for number, one in enumerate(asked.kinds):
        record = queue.jobs.records[first[number]]
        requests.append(queue.request(record.spec, one.over_quota, one.choices, record=record))
    held_milli = dict(queue.tenancy.ledger.by_region)
    return m.Behind(
        tuple(requests), asked.jobs, asked.kind, held_milli, queue.tenancy.gpus_by_region
    )


def are_common(queue: QueueViews) -> bool:
    """Whether nothing in the regions is reserved."""
    return queue.cycle.backfill.reservation is None and not queue.windows.known


def is_plain(queue: QueueViews, decision: PendingDecision) -> bool:
    """Whether a candidate is asked about in all regions alike."""
    moves = queue.jobs.records[decision.candidate.job].moves
    return queue.is_without_data(decision.costs) and not moves


def kinds_behind(queue: QueueViews, first: Candidate, count: int) -> Asked:
    """The candidates behind one, up to the first that is not common, and their kinds."""
    numbers: dict[tuple[int, bool], int] = {}
    kinds: list[Kind] = []
    found: dict[str, int] = {}
    candidates = _next(queue, first, count)
    are_all = len(candidates) < count
    for job, number, over_quota in candidates:
        if job in found:
            continue  # over quota as well
        if queue.backlog.may_move(job):
            are_all = False
            break
        at = numbers.get((number, over_quota))
        if at is None:
            job_class = queue.backlog.blocked.by_number[number]
            kind = kind_of(queue, job, job_class, over_quota)
            if kind is None:
                are_all = not queue.choices_of(job_class)[over_quota]  # else it is asked about
                break
            at = numbers[number, over_quota] = len(kinds)
            kinds.append(kind)
        found[job] = at
    return Asked(tuple(found), tuple(kinds), tuple(found.values()), are_all)


def _next(queue: QueueViews, first: Candidate, count: int) -> list[tuple[str, int, bool]]:
    """The candidates behind one, if each were placed: job, number of its class, over quota."""
    ranking, backlog = queue.backlog.ranking, queue.backlog
    if ranking.all_within() and not first.over_quota:
        jobs, classes = ranking.first_jobs(count + 1)
        found = zip(jobs, classes, strict=True)
        return [(job, number, False) for job, number in found if job != first.job][:count]
    candidates = following(backlog, first, count)
    return [(c.job, backlog.job_class(c.job).number, c.over_quota) for c in candidates]


def kind_of(queue: QueueViews, job: str, job_class: JobClass, over_quota: bool) -> Kind | None:
    """The kind of a common job; None for one that has to be asked about by itself."""
    record, spec = queue.jobs.records[job], job_class.spec
    alone = record.bound is not None or record.avoid_hosts or job_class.grant is not None
    if alone or spec.datasets or spec.elastic is not None:
        return None
    allowed = queue.choices_of(job_class)[over_quota]
    choices = queue.allowed(record.spec, record, allowed)
    return Kind(job_class, over_quota, choices) if choices else None


# --- the answer -----------------------------------------------------------------------------------


def foreseen_plan(queue: QueueViews, decision: PendingDecision) -> Plan | None:
    """The plan that was foreseen for a candidate, if all else came as it was foreseen. O(1)."""
    foreseen = queue.cycle.foreseen
    if foreseen.plans is None or not foreseen.left:
        return None
    foreseen.row += 1
    plan, candidate = foreseen.plans.plans[foreseen.row], decision.candidate
    job_class, before = queue.backlog.job_class(candidate.job), queue.jobs.records[foreseen.last]
    if (
        plan.job == candidate.job
        and before.plan is not None
        and are_common(queue)
        and is_plain(queue, decision)
        and foreseen.kind_of(foreseen.row).covers(candidate, job_class, decision.choices)
    ):
        foreseen.last = candidate.job
        return plan
    foreseen.forget()
    return None


def decide_foreseen(queue: QueueViews) -> bool:
    """Decide by all plans that were foreseen at once, if it is known that each job would have its
    own; whether that was done. O(jobs).

    What the cycle looks at for each of them (checks, quota, the order) comes out the same for all
    of a kind, and what is booked for those before cannot change it.
    """
    foreseen = queue.cycle.foreseen
    plans, count = foreseen.plans, foreseen.left
    if plans is None or foreseen.row or count < LEAST or not _may_decide_at_once(queue, count):
        return False
    first = foreseen.row + 1
    rows = range(first, first + count)
    jobs = plans.jobs[first : first + count]
    records = [queue.jobs.records[job] for job in jobs]
    skipped = queue.jobs.skipped
    epochs = [max(r.epoch, skipped.get(r.id, 0) if skipped else 0) + 1 for r in records]
    over_quota = [foreseen.kind_of(row).over_quota for row in rows]
    bands = [effective_band(r.spec.band, o) for r, o in zip(records, over_quota, strict=True)]
    foreseen.choose(
        rows, epochs, [r.spec for r in records], bands, [r.time_left_s() for r in records],
        [queue.backlog.remaining_s(r) for r in records],
    )  # fmt: skip
    chosen = plans if foreseen.are_chosen else UNSET
    queue.decide(f.AllPlanned(first, tuple(epochs), tuple(over_quota), chosen))
    for hook in queue.hooks.on_committed:
        for record in records:
            hook.on_committed(record)
    foreseen.forget()
    queue.cycle.budget -= -(-count // PER_REQUEST)
    return True


def _may_decide_at_once(queue: QueueViews, count: int) -> bool:
    """Whether nothing can come between the next jobs and their plans. O(jobs)."""
    foreseen, backlog, asked = queue.cycle.foreseen, queue.backlog, queue.cycle.foreseen.asked
    first = foreseen.row
    if (
        queue.jobs.records[foreseen.last].plan is None
        or not are_common(queue)
        or backlog.blocked.stopped is not None
        or backlog.grants.are_limited
        or queue.tenancy.keeps_models
        or not queue.may_try()
    ):
        return False
    kinds = Counter(asked.kind[first : first + count])
    if any(asked.kinds[number].verdicts for number in kinds):
        return False
    return _quota_lasts(queue, [(asked.kinds[number], jobs) for number, jobs in kinds.items()])


def _quota_lasts(queue: QueueViews, kinds: list[tuple[Kind, int]]) -> bool:
    """Whether quota leaves each kind its choices, even when all these jobs have their GPUs.

    What is booked only takes from what tenants may use, unless one keeps quota back.
    """
    ledger, entitlements = queue.tenancy.ledger, queue.tenancy.entitlements
    if ledger.keeps_back:
        return False
    sums: Counter[str] = Counter()
    for kind, jobs in kinds:
        for choice in kind.choices:
            for model, milli in kind.job_class.gate.wanted[choice].items():
                sums[model] += jobs * milli
    for kind, _ in kinds:
        allowed, spec = queue.choices_of(kind.job_class), kind.job_class.spec
        if allowed[kind.over_quota] != kind.choices or (kind.over_quota and allowed[False]):
            return False
        if not kind.over_quota and not ledger.is_limited(spec.tenant):
            continue
        may = entitlements.may_borrow if kind.over_quota else entitlements.is_within
        wanted = [kind.job_class.gate.wanted[choice] for choice in kind.choices]
        if not all(may(spec, {model: sums[model] for model in milli}) for milli in wanted):
            return False
    return True


def send_commits(queue: QueueViews) -> None:
    """Send what was chosen of the plans that were foreseen: to each region all at once. O(jobs)."""
    chosen, queue.cycle.foreseen.chosen = queue.cycle.foreseen.chosen, None
    if chosen is None:
        return
    plans = chosen.plans.plans
    places: dict[str, list[int]] = {}
    for at, row in enumerate(chosen.rows):
        places.setdefault(plans[row].region, []).append(at)
    for region, those in places.items():
        message = m.CommitPlans(
            chosen.plans.take([chosen.rows[at] for at in those]),
            *[some(column, those) for column in chosen.columns],
        )
        commits: m.Message = message if len(those) > 1 else message.one_by_one()[0]
        queue.send(ids.placer(region), commits)
