"""Requests: what regions are asked in a phase; of other processes, also what they bid before."""

from __future__ import annotations

from collections import Counter

from msgspec import UNSET, Struct
from msgspec.structs import replace

from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.backlog.placement_class import colocated_of
from topmast.fast.queue.cycle.auction import PendingDecision, Phase
from topmast.fast.queue.cycle.behind import ask_behind, foreseen_plan, send_commits
from topmast.fast.queue.cycle.bulk_requests import ask_in_bulk
from topmast.fast.queue.cycle.checks import first_verdict
from topmast.fast.queue.cycle.pipeline import (
    Step,
    first_step,
    may_preempt,
    regions_of,
    request_of,
)
from topmast.fast.queue.cycle.prefetch import CLOSE, Wanted, following, offer_to
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.data.catalogue import DataCost
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.plan import Free, PlacementRequest, Plan, Preempt, RegionTerms

ASK_TIMEOUT_S = 5.0


def put(queue: QueueViews, record: JobRecord, decision: PendingDecision, step: Step) -> None:
    """Ask the regions of one phase; those of other processes may have answered already."""
    if step.phase is Phase.FREE and (plan := foreseen_plan(queue, decision)) is not None:
        _take_bid(queue, decision, plan)
        return
    send_commits(queue)
    queue.cycle.batch += 1
    request = request_of(queue, record, decision, step)
    decision.refused = decision.reasons()
    decision.phase, decision.bids, decision.silent = step.phase, {}, ()
    decision.batch, decision.deadline_s = queue.cycle.batch, queue.now + ASK_TIMEOUT_S
    decision.awaited = regions_of(queue, decision, step)
    decision.held = request.held
    queue.cycle.decision = decision
    apart = queue.cycle.reach.apart
    if apart and step.phase is Phase.FREE and ask_in_bulk(queue, decision):
        return
    here = [r for r in decision.awaited if r not in apart] if apart else decision.awaited
    if here:
        terms = queue.terms_of(here, decision.costs)
        placement = queue.backlog.job_class(record.id).placement[decision.candidate.over_quota]
        alone = apart or step.phase is not Phase.FREE
        behind = UNSET if alone else ask_behind(queue, decision)
        whole = m.RequestFleetBids(
            queue.cycle.batch, request, terms, placement.number, queue.cycle.reach.hold_s(), behind
        )
        queue.send(ids.FLEET_PLACER, whole)
    if len(here) < len(decision.awaited):
        _ask_apart(queue, record, decision, request)


def _take_bid(queue: QueueViews, decision: PendingDecision, plan: Plan) -> None:
    """Decide by the plan that came with the answer to an earlier request."""
    decision.phase, decision.bids = Phase.FREE, {plan.region: m.Bid(plan.job, plan)}
    decision.awaited, decision.silent = [], ()
    queue.cycle.decision = decision


def release_place(queue: QueueViews, record: JobRecord) -> None:
    """Have the place given up that its last region keeps for a job, which does not come."""
    if record.moves and record.region is not None:
        drop = m.DropLeases((record.id,), places=True)
        queue.send(ids.placer(record.region), drop)


# --- regions apart --------------------------------------------------------------------------------


def _ask_apart(
    queue: QueueViews, record: JobRecord, decision: PendingDecision, request: PlacementRequest
) -> None:
    """Take what regions apart have offered; ask the others, also for the next candidates."""
    prefetch = queue.cycle.prefetch
    alone = _is_alone(record, request) or prefetch.most_jobs == 1
    decision.kind = replace(request.kind(), job=record.id) if alone else request.kind()
    prefetch.came_up()
    lacking = [region for region in decision.awaited if region in queue.cycle.reach.apart]
    if not alone:
        lacking = [region for region in lacking if not hear_from(queue, decision, region)]
        go_without(queue, decision)
    idle = [r for r in lacking if alone or not is_coming(queue, decision, r)]
    due = [region for region in idle if region in decision.awaited]
    alone_now = alone or queue.cycle.bulk.follows
    looked = 0 if alone_now else prefetch.to_look_at(at_once=bool(idle), is_due=bool(due))
    ahead = _ahead(queue, decision, looked) if looked else []
    if ahead:
        _keep_what_is_wanted(queue, decision, ahead)
    for region in queue.cycle.reach.apart if ahead else due:
        _ask_region(queue, decision, region, ahead, is_due=region in due, alone=alone)


def go_without(queue: QueueViews, decision: PendingDecision) -> None:
    """Wait no more for regions that are not likely to offer anything better than what is there.

    The dearest of their offers for such a job says so. They have no more for the moment, because
    others took them; they are asked again.
    """
    scores = [
        bid.plan.score
        for region, bid in decision.bids.items()
        if bid.plan is not None and not decision.costs[region].missing
    ]
    if not scores or not decision.awaited:
        return
    terms, price = queue.tenancy.plain_terms(), queue.profile.score.balance
    for region in list(decision.awaited):
        score = queue.cycle.prefetch.of(region).prices.get(_kind_in(decision, region))
        if score is not None and min(scores) < score + price * terms[region].balance + CLOSE:
            decision.awaited.remove(region)


def hear_from(queue: QueueViews, decision: PendingDecision, region: str) -> bool:
    """Take what a region has offered, or why it refuses, as its bid; whether there is any."""
    bid = queue.cycle.prefetch.of(region).answer(_kind_in(decision, region), queue.now)
    if bid is None:
        return False
    load = queue.tenancy.plain_terms()[region].balance
    price = queue.profile.score.balance
    decision.awaited.remove(region)
    decision.bids[region] = offer_to(decision.candidate.job, bid, price, load)
    return True


def is_coming(queue: QueueViews, decision: PendingDecision, region: str) -> bool:
    """Whether a region is just being asked for such a place."""
    return queue.cycle.prefetch.of(region).is_coming(_kind_in(decision, region))


def ask_again(queue: QueueViews, decision: PendingDecision, region: str) -> None:
    """A region said nothing of a job that is due, for it was not due when the region was asked."""
    assert decision.kind is not None
    _ask_region(queue, decision, region, [], is_due=True, alone=bool(decision.kind.job))


def _kind_in(decision: PendingDecision, region: str) -> PlacementRequest:
    """What a region is asked about the job in this phase, as others may be."""
    assert decision.kind is not None
    return _with_data(decision.kind, decision.costs[region])


def _with_data(kind: PlacementRequest, cost: DataCost) -> PlacementRequest:
    if not cost.bytes and not cost.seconds:
        return kind
    return kind.in_region(RegionTerms(cost.bytes, cost.seconds))


def _is_alone(record: JobRecord, request: PlacementRequest) -> bool:
    """Whether an answer holds for this job and moment only: no other job is asked about too."""
    by_band = isinstance(request.mode, Preempt) and request.mode.outranked is None
    common = by_band or isinstance(request.mode, Free)
    return request.reserve or record.moves or not common


class _Ahead(Struct):
    """Candidates of one class that come next."""

    kind: PlacementRequest
    job: str
    """The first of them."""
    costs: dict[str, DataCost]
    stops: bool
    """Whether others may be stopped for them."""
    jobs: int = 1


def _ahead(queue: QueueViews, first: PendingDecision, count: int) -> list[_Ahead]:
    """The next candidates that pass all checks, by what they ask for, in their order."""
    known: dict[object, _Ahead | None] = {}
    candidates = following(queue.backlog, first.candidate, count)
    kept = queue.cycle.backfill.reservation is not None
    for candidate in candidates:
        job_class = queue.backlog.job_class(candidate.job)
        # How long a job lasts decides what it may do where room is reserved.
        key = candidate.job if kept else (job_class.number, candidate.over_quota)
        one = known.get(key)
        if one is not None:
            one.jobs += 1
        elif key not in known:
            known[key] = _look_at(queue, candidate)
    queue.cycle.prefetch.looked_ahead(len(candidates))
    return [one for one in known.values() if one is not None]


def _keep_what_is_wanted(queue: QueueViews, decision: PendingDecision, ahead: list[_Ahead]) -> None:
    """Let go of places that neither the job that is next nor one ahead has use for.

    Else what is left over of each kind, as where the jobs of a band are all placed, takes the room
    that those ahead need, until it expires.
    """
    for region in queue.cycle.reach.apart:
        wanted = Counter({_kind_in(decision, region): 1}) if region in decision.costs else Counter()
        for one in ahead:
            if region in one.costs:
                kind = _with_data(one.kind, one.costs[region])
                wanted[kind] += one.jobs
                if one.stops:
                    wanted[replace(kind, mode=Preempt())] += one.jobs
        queue.cycle.prefetch.of(region).keep(wanted)


def _look_at(queue: QueueViews, candidate: Candidate) -> _Ahead | None:
    """What a candidate will ask for; None if that is not known, or holds for no other job."""
    record = queue.jobs.records[candidate.job]
    job_class = queue.backlog.job_class(candidate.job)
    decision = PendingDecision(candidate, queue.choices_of(job_class), colocated_of(job_class))
    if first_verdict(queue, record, decision) is not None:
        return None
    request = request_of(queue, record, decision, first_step(queue, record, decision))
    if _is_alone(record, request):
        return None
    stops = not queue.preemption.by_rank
    stops = stops and not queue.cycle.backfill.may_reserve(record, queue.now)
    stops = stops and may_preempt(queue, record, candidate.over_quota, decision.costs)
    return _Ahead(request.kind(), record.id, decision.costs, stops)


def _ask_region(
    queue: QueueViews,
    decision: PendingDecision,
    region: str,
    ahead: list[_Ahead],
    *,
    is_due: bool,
    alone: bool,
) -> None:
    """Ask a region for the places that it is likely to get; for those that are due at least one."""
    prefetch = queue.cycle.prefetch
    wanted: dict[PlacementRequest, Wanted] = {}
    if is_due:
        kind = _kind_in(decision, region)
        wanted[kind] = Wanted(kind, decision.candidate.job, 1)
    for one in ahead:
        for kind in _kinds_ahead(queue, region, one):
            known = wanted.get(kind)
            jobs = one.jobs + (0 if known is None else known.count)
            count = prefetch.places(region, kind, jobs, len(queue.cycle.reach.apart))
            if count > 0:
                job = one.job if known is None else known.job
                wanted[kind] = Wanted(kind, job, count)
    if not wanted:
        return
    queue.cycle.batch += 1
    batch, asked = queue.cycle.batch, list(wanted.values())
    if loose := prefetch.ask(region, batch, asked, queue.now, alone=alone):
        queue.send(ids.placer(region), m.DropLeases(leases=loose))
    balance = queue.tenancy.plain_terms()[region].balance
    asks = tuple([_as_asked(one, balance) for one in asked])
    counts = tuple([one.count for one in asked])
    hold_s = queue.cycle.reach.hold_s()
    plans = m.RequestRegionBids(batch, asks, hold_s, counts, due=is_due)
    queue.send(ids.placer(region), plans)


def _kinds_ahead(queue: QueueViews, region: str, one: _Ahead) -> list[PlacementRequest]:
    """What a region is asked for some candidates: free GPUs, and where it is full, victims."""
    cost = one.costs.get(region)
    if cost is None or cost.barred is not None:
        return []
    kind = _with_data(one.kind, cost)
    if one.stops and not cost.missing and queue.cycle.prefetch.of(region).is_full:
        return [kind, replace(kind, mode=Preempt())]
    return [kind]


def _as_asked(one: Wanted, balance: float) -> PlacementRequest:
    return replace(one.kind, job=one.job, terms=replace(one.kind.terms, balance=balance))
