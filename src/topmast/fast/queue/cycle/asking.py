"""Questions: whether a candidate may start at all, and what the regions are asked."""

from __future__ import annotations

from msgspec.structs import replace

from topmast.fast.queue.backlog.backlog import effective_band
from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.backlog.placement_class import Verdict, beside_of
from topmast.fast.queue.cycle.auction import Asking, Nearby, earliest, no_region
from topmast.fast.queue.cycle.prefetch import following
from topmast.fast.queue.cycle.verdicts import block, block_gate, refuse, verdict_of_class
from topmast.fast.queue.data.catalogue import DataCost
from topmast.fast.queue.record import JobRecord
from topmast.fast.queue.views import QueueViews
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import Band
from topmast.model.plan import PlacementRequest, Plan
from topmast.model.reason import PendingReason
from topmast.policies.options import Preemption

ASK_TIMEOUT_S = 5.0
NOT_ITS_TURN = "this round gives the GPUs to other jobs"
KEPT_FOR_OTHERS = "the GPU models that its quota allows are kept for other jobs"


def consider(queue: QueueViews, candidate: Candidate) -> None:
    """May this job start in this mode? Then ask the regions; else block its class."""
    record, over_quota = queue.jobs[candidate.job], candidate.over_quota
    unknown = queue.catalogue.unknown(record.spec.datasets)
    if unknown:
        verdict = Verdict(PendingReason.UNKNOWN_DATASET, ", ".join(unknown))
        block(queue, candidate, verdict)
        return
    job_class = queue.pending.job_class(candidate.job)
    choices = queue.choices_of(job_class, over_quota)
    if not choices:
        if over_quota and not queue.choices_of(job_class, over_quota=False):
            block(queue, candidate, Verdict(*queue.quota_reason(record.spec)))
        else:
            block_gate(queue, candidate)
        return
    full = PendingReason.INSUFFICIENT_CAPACITY
    if not queue.rounds.may_start(candidate.job):
        block(queue, candidate, Verdict(full, NOT_ITS_TURN))
        return
    choices = queue.allowed(record.spec, record, choices)
    if not choices:
        until_s = queue.kept_back_until_s(record)
        block(queue, candidate, Verdict(full, KEPT_FOR_OTHERS, until_s))
        return
    beside = beside_of(job_class)
    if beside:
        _ask_beside(queue, candidate, choices, beside)
        return
    known = verdict_of_class(queue, record, candidate, choices)
    if known is not None:
        refuse(queue, candidate, known)
        return
    costs = costs_of(queue, record)
    regions = [r for r, cost in costs.items() if cost.barred is None]
    if not regions:
        detail = "; ".join(f"{r}: {c.why}" for r, c in costs.items())
        retry_at_s = earliest(c.retry_at_s for c in costs.values())
        block(queue, candidate, Verdict(no_region(costs.values()), detail, retry_at_s))
        return
    ask(queue, candidate, choices, costs, regions, preempt=False)


def _ask_beside(
    queue: QueueViews, candidate: Candidate, choices: tuple[int, ...], beside: str
) -> None:
    """Ask the region of the job whose GPUs this one is to share, when that job is placed; it is asked about again then."""
    record, host = queue.jobs[candidate.job], queue.jobs.get(beside)
    costs = costs_of(queue, record)
    region = None if host is None or host.plan is None else host.plan.region
    cost = costs.get(region or "")
    if region is None or cost is None or cost.barred is not None or cost.missing:
        detail = f"it shares the GPUs of {beside} in this round, and {beside} is not placed yet"
        block(queue, candidate, Verdict(PendingReason.INSUFFICIENT_CAPACITY, detail))
        return
    ask(queue, candidate, choices, costs, [region], preempt=False)


def costs_of(queue: QueueViews, record: JobRecord) -> dict[str, DataCost]:
    """What it takes to have a job's data in each region where it may run."""
    costs = queue.data_costs(record.spec)
    if record.bound is not None and record.bound.region in costs:
        return {record.bound.region: costs[record.bound.region]}
    return costs


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
    copies: bool = False,
    nearby: Nearby | None = None,
    shrinks: bool = False,
) -> None:
    """Put one question about a job to ``regions``; those apart may have answered it already."""
    record = queue.jobs[candidate.job]
    queue.batch += 1
    outranked = None
    if preempt and queue.profile.preemption is Preemption.RANK:
        outranked = queue.outranked(candidate)
    question = _question(
        queue, candidate, choices, costs,
        preempt=preempt, outranked=outranked, room_gpu_s=room_gpu_s, shrinks=shrinks,
        when=copies and when_matters(queue, record, costs, free_best),
    )  # fmt: skip
    queue.asking = asking = Asking(
        queue.batch, candidate, choices, preempt, list(regions), queue.now + ASK_TIMEOUT_S,
        costs, queue.pending.blocked.changes, question.held, free_best=free_best, offers={},
        moves=room_gpu_s is not None, copies=copies, nearby=nearby, shrinks=shrinks,
    )  # fmt: skip
    here = [region for region in regions if region not in queue.reach.apart]
    if here:
        terms = {region: queue.terms(region, costs[region]) for region in here}
        placement = queue.pending.job_class(record.id).placement[candidate.over_quota]
        whole = m.RequestFleetBids(
            queue.batch, question, terms, placement.number, queue.reach.hold_s()
        )
        queue.send(ids.FLEET_PLACER, whole)
    if len(here) < len(regions):
        _ask_apart(queue, asking, question)


def when_matters(
    queue: QueueViews, record: JobRecord, costs: dict[str, DataCost], best: Plan | None
) -> bool:
    """Whether it matters when there will be room: not where nothing may be copied, or the job waited long enough."""
    fetches = queue.fetches
    if best is None or fetches.next_s(queue.now) is not None:
        return False
    return queue.now < fetches.waits_until_s(record, costs[best.region].seconds)


def _question(
    queue: QueueViews,
    candidate: Candidate,
    choices: tuple[int, ...],
    costs: dict[str, DataCost],
    *,
    preempt: bool,
    outranked: tuple[str, ...] | None = None,
    room_gpu_s: float | None = None,
    when: bool = False,
    shrinks: bool = False,
) -> PlacementRequest:
    """The question about a candidate, as far as it is the same for all regions. ``when``: there will be room.

    Nobody has to go for more tasks of an elastic gang than the fewest that will do.
    """
    record, over_quota = queue.jobs[candidate.job], candidate.over_quota
    gently = not preempt and not shrinks and room_gpu_s is None
    more = queue.more_tasks(record, over_quota, choices) if gently else None
    reserve = queue.backfill.may_reserve(record, queue.now)
    # Room is reserved after the last question: not where victims can still be asked for.
    reserve = reserve and (preempt or not may_preempt(queue, record, over_quota, costs))
    question = queue.question(
        record.spec, over_quota, choices, preempt=preempt, job=record.id,
        avoid_hosts=record.avoid_hosts, held=queue.held_from(record.spec, record, over_quota),
        reserve=reserve or when, outranked=outranked, room_gpu_s=room_gpu_s,
        cluster=None if record.bound is None else record.bound.cluster, more=more, shrinks=shrinks,
    )  # fmt: skip
    beside = beside_of(queue.pending.job_class(record.id))
    return replace(question, beside=beside) if beside else question


# --- regions apart ------------------------------------------------------------------------------------


def _ask_apart(queue: QueueViews, asking: Asking, question: PlacementRequest) -> None:
    """Take what regions apart have answered already; ask the others, and about who comes next."""
    alone = _is_alone(queue.jobs[question.job], question)
    silent: dict[str, PlacementRequest] = {}
    for region in [r for r in asking.awaited if r in queue.reach.apart]:
        own = queue.in_region(question, region, asking.costs[region])
        held_milli = queue.ledger.by_region.get(region, 0)
        offer = None if alone else queue.ahead.answer(region, own, held_milli, queue.now)
        if offer is None:
            silent[region] = own
        else:
            asking.awaited.remove(region)
            asking.offers[region] = offer
    if not silent:
        return
    count = 0 if alone else max(queue.ahead.jobs(region) for region in silent) - 1
    upcoming = _upcoming(queue, asking.candidate, count) if count else []
    for region, own in silent.items():
        asks = _batch(queue, region, own, upcoming)
        held_milli = queue.ledger.by_region.get(region, 0)
        if left := queue.ahead.ask(region, asking.batch, asks, held_milli, queue.now):
            queue.send(ids.placer(region), m.DropLeases(left, quiet=True))
        gpus, hold_s = queue.gpus_by_region.get(region, 0), queue.reach.hold_s()
        plans = m.RequestRegionBids(asking.batch, asks, hold_s, held_milli, gpus)
        queue.send(ids.placer(region), plans)


def _is_alone(record: JobRecord, question: PlacementRequest) -> bool:
    """Whether an answer concerns this job in this moment only: nobody else is asked about with it."""
    special = question.reserve or question.outranked is not None or question.room_gpu_s is not None
    return special or question.shrinks or record.moves or bool(question.beside)


def _upcoming(
    queue: QueueViews, first: Candidate, count: int
) -> list[tuple[PlacementRequest, dict[str, DataCost], bool]]:
    """Questions about who comes next, with what data costs, and whether others may be stopped for it."""
    found = []
    for candidate in following(queue.pending.ranking, first, count):
        record = queue.jobs[candidate.job]
        job_class = queue.pending.job_class(candidate.job)
        choices = queue.choices_of(job_class, candidate.over_quota)
        choices = queue.allowed(record.spec, record, choices)
        if not queue.rounds.may_start(candidate.job):
            break
        if not choices or queue.catalogue.unknown(record.spec.datasets):
            continue
        costs = costs_of(queue, record)
        question = _question(queue, candidate, choices, costs, preempt=False)
        if _is_alone(record, question):
            break
        stops = queue.profile.preemption is Preemption.BAND
        stops = stops and not queue.backfill.may_reserve(record, queue.now)
        stops = stops and may_preempt(queue, record, candidate.over_quota, costs)
        found.append((question, costs, stops))
    return found


def _batch(
    queue: QueueViews,
    region: str,
    first: PlacementRequest,
    upcoming: list[tuple[PlacementRequest, dict[str, DataCost], bool]],
) -> tuple[PlacementRequest, ...]:
    """What one region is asked; where it is full, with victims in the same breath."""
    asks = [first]
    for question, costs, stops in upcoming[: queue.ahead.jobs(region) - 1]:
        cost = costs.get(region)
        if cost is None or cost.barred is not None:
            continue
        own = queue.in_region(question, region, cost)
        asks.append(own)
        if stops and not cost.missing and queue.ahead.is_full(region):
            asks.append(replace(own, preempt=True))
    return tuple(asks)


def with_data(queue: QueueViews, costs: dict[str, DataCost]) -> list[str]:
    """Regions that can be asked and have the job's data already."""
    near = [r for r, c in costs.items() if c.barred is None and not c.missing]
    return [region for region in near if region not in queue.reach.absent]


def may_preempt(
    queue: QueueViews, record: JobRecord, over_quota: bool, costs: dict[str, DataCost]
) -> bool:
    """Whether it makes sense to ask who could be stopped for a job."""
    if queue.profile.preemption is Preemption.NONE or not with_data(queue, costs):
        return False
    band = effective_band(record.spec.band, over_quota)
    return queue.profile.preemption is Preemption.RANK or band > Band.OPPORTUNISTIC
