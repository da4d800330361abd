"""Requests: what regions are asked in a phase; of other processes, also what they bid before."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from topmast.fast.queue.backlog.placement_class import colocated_of
from topmast.fast.queue.cycle.auction import PendingDecision, Phase
from topmast.fast.queue.cycle.behind import ask_behind, foreseen_plan
from topmast.fast.queue.cycle.checks import first_verdict
from topmast.fast.queue.cycle.pipeline import (
    Step,
    first_step,
    may_preempt,
    regions_of,
    request_of,
)
from topmast.fast.queue.cycle.prefetch import following
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.data.catalogue import DataCost
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.plan import Free, PlacementRequest, Plan, Preempt

ASK_TIMEOUT_S = 5.0


def put(queue: QueueViews, record: JobRecord, decision: PendingDecision, step: Step) -> None:
    """Ask the regions of one phase; those of other processes may have answered already."""
    if step.phase is Phase.FREE and (plan := foreseen_plan(queue, decision)) is not None:
        _take_bid(queue, decision, plan)
        return
    queue.cycle.batch += 1
    request = request_of(queue, record, decision, step)
    decision.phase, decision.bids, decision.silent = step.phase, {}, ()
    decision.batch, decision.deadline_s = queue.cycle.batch, queue.now + ASK_TIMEOUT_S
    decision.awaited = regions_of(queue, decision, step)
    decision.held, decision.changes = request.held, queue.backlog.blocked.changes
    queue.cycle.decision = decision
    apart = queue.cycle.reach.apart
    here = [r for r in decision.awaited if r not in apart] if apart else decision.awaited
    if here:
        terms = queue.terms_of(here, decision.costs)
        placement = queue.backlog.job_class(record.id).placement[decision.candidate.over_quota]
        behind = ask_behind(queue, decision) if step.phase is Phase.FREE else UNSET
        whole = m.RequestFleetBids(
            queue.cycle.batch, request, terms, placement.number, queue.cycle.reach.hold_s(), behind
        )
        queue.send(ids.FLEET_PLACER, whole)
    if len(here) < len(decision.awaited):
        _ask_apart(queue, record, decision, request)


def _take_bid(queue: QueueViews, decision: PendingDecision, plan: Plan) -> None:
    """Decide by the plan that came with the answer to an earlier request."""
    decision.phase, decision.bids, decision.silent = (
        Phase.FREE,
        {plan.region: m.Bid(plan.job, plan)},
        (),
    )
    decision.awaited, decision.changes = [], queue.backlog.blocked.changes
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
    """Take what regions apart have answered; ask the others, also about the next candidates."""
    alone = _is_alone(record, request)
    silent: dict[str, PlacementRequest] = {}
    for region in [r for r in decision.awaited if r in queue.cycle.reach.apart]:
        own = request.in_region(queue.terms(region, decision.costs[region]))
        held_milli = queue.tenancy.ledger.by_region.get(region, 0)
        bid = None if alone else queue.cycle.prefetch.answer(region, own, held_milli, queue.now)
        if bid is None:
            silent[region] = own
        else:
            decision.awaited.remove(region)
            decision.bids[region] = bid
    if not silent:
        return
    count = 0 if alone else max(queue.cycle.prefetch.jobs(region) for region in silent) - 1
    upcoming = _upcoming(queue, decision, count) if count else []
    for region, own in silent.items():
        asks = _batch(queue, region, own, upcoming)
        held_milli = queue.tenancy.ledger.by_region.get(region, 0)
        if left := queue.cycle.prefetch.ask(region, decision.batch, asks, held_milli, queue.now):
            queue.send(ids.placer(region), m.DropLeases(left, quiet=True))
        gpus, hold_s = queue.tenancy.gpus_by_region.get(region, 0), queue.cycle.reach.hold_s()
        plans = m.RequestRegionBids(decision.batch, asks, hold_s, held_milli, gpus)
        queue.send(ids.placer(region), plans)


def _is_alone(record: JobRecord, request: PlacementRequest) -> bool:
    """Whether an answer holds for this job and moment only: no other job is asked about too."""
    by_band = isinstance(request.mode, Preempt) and request.mode.outranked is None
    common = by_band or isinstance(request.mode, Free)
    return request.reserve or record.moves or not common


def _upcoming(
    queue: QueueViews, first: PendingDecision, count: int
) -> list[tuple[PlacementRequest, dict[str, DataCost], bool]]:
    """Requests for the next candidates, costs of data, and whether jobs may be stopped."""
    found = []
    for candidate in following(queue.backlog.ranking, first.candidate, count):
        record = queue.jobs.records[candidate.job]
        job_class = queue.backlog.job_class(candidate.job)
        decision = PendingDecision(candidate, queue.choices_of(job_class), colocated_of(job_class))
        if first_verdict(queue, record, decision) is not None:
            continue
        request = request_of(queue, record, decision, first_step(queue, record, decision))
        if _is_alone(record, request):
            break
        stops = not queue.preemption.by_rank
        stops = stops and not queue.cycle.backfill.may_reserve(record, queue.now)
        stops = stops and may_preempt(queue, record, candidate.over_quota, decision.costs)
        found.append((request, decision.costs, stops))
    return found


def _batch(
    queue: QueueViews,
    region: str,
    first: PlacementRequest,
    upcoming: list[tuple[PlacementRequest, dict[str, DataCost], bool]],
) -> tuple[PlacementRequest, ...]:
    """What one region is asked; one that is full, with victims as well."""
    asks = [first]
    for request, costs, stops in upcoming[: queue.cycle.prefetch.jobs(region) - 1]:
        cost = costs.get(region)
        if cost is None or cost.barred is not None:
            continue
        own = request.in_region(queue.terms(region, cost))
        asks.append(own)
        if stops and not cost.missing and queue.cycle.prefetch.is_full(region):
            asks.append(replace(own, mode=Preempt()))
    return tuple(asks)
