"""Questions: whether a candidate may start at all, what the regions are asked, and lines that are closed."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from topmast.fast.queue.backlog.pending import Candidate, effective_band
from topmast.fast.queue.backlog.placement_class import Refusal
from topmast.fast.queue.cycle.auction import Asking, Nearby, earliest, no_region
from topmast.fast.queue.cycle.prefetch import following
from topmast.fast.queue.data.catalogue import DataCost
from topmast.fast.queue.record import JobRecord
from topmast.fast.queue.views import QueueViews
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import Band
from topmast.model.plan import PlacementRequest, Plan, Reservation
from topmast.model.reason import PendingReason
from topmast.policies.options import Preemption, WhenBlocked

ASK_TIMEOUT_S = 5.0
NOT_ITS_TURN = "this round gives the GPUs to other jobs"
KEPT_FOR_OTHERS = "the GPU models that its quota allows are kept for other jobs"


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
    if not queue.rounds.may_start(candidate.job):
        close(queue, candidate, PendingReason.INSUFFICIENT_CAPACITY, NOT_ITS_TURN)
        return
    choices = queue.allowed(record.spec, record, choices)
    if not choices:
        full, until_s = PendingReason.INSUFFICIENT_CAPACITY, queue.kept_back_until_s(record)
        close(queue, candidate, full, KEPT_FOR_OTHERS, until_s)
        return
    if line.beside:
        _ask_beside(queue, candidate, choices, line.beside)
        return
    refusal = _was_told(queue, record, candidate, choices)
    if refusal is not None:
        refuse(queue, candidate, refusal)
        return
    costs = costs_of(queue, record)
    regions = [r for r, cost in costs.items() if cost.barred is None]
    if not regions:
        detail = "; ".join(f"{r}: {c.why}" for r, c in costs.items())
        retry_at_s = earliest(c.retry_at_s for c in costs.values())
        close(queue, candidate, no_region(costs.values()), detail, retry_at_s)
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
        full, detail = (
            PendingReason.INSUFFICIENT_CAPACITY,
            f"it shares the GPUs of {beside} in this round, and {beside} is not placed yet",
        )
        close(queue, candidate, full, detail)
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
        costs, queue.pending.changes, question.held, free_best=free_best, offers={},
        moves=room_gpu_s is not None, copies=copies, nearby=nearby, shrinks=shrinks,
    )  # fmt: skip
    here = [region for region in regions if region not in queue.reach.apart]
    if here:
        terms = {region: queue.terms(region, costs[region]) for region in here}
        kin = queue.pending.line(record.id).kin[candidate.over_quota]
        whole = m.RequestFleetBids(queue.batch, question, terms, kin.number, queue.reach.hold_s())
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
    beside = queue.pending.line(record.id).beside
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
        line = queue.pending.line(candidate.job)
        choices = queue.choices_of(line, candidate.over_quota)
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


# --- lines ----------------------------------------------------------------------------------------------


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
        over_quota = candidate.over_quota
        anew_at_s = queue.backfill.found_no_room(record, band, over_quota, offered, queue.now)
        moves_at_s = queue.defragmentation.found_no_room(record.id, queue.now)
        kept_until_s = queue.kept_back_until_s(record)
        retry_at_s = earliest((retry_at_s, anew_at_s, moves_at_s, kept_until_s))
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
    """A job has nothing to ask for in one mode; the other one decides. Nor has who wants as much of its quota."""
    line = queue.pending.line(candidate.job)
    limited = queue.ledger.is_limited(line.spec.tenant)
    queue.pending.close_terms(line, candidate.over_quota, limited=limited)
    queue.pending.close(line, candidate.over_quota, None, limited=limited)


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
