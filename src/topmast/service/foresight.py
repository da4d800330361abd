"""What the queue would do with a job now: its own pipeline, run without writing anything."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager

from msgspec import UNSET, Struct
from msgspec.structs import replace

from topmast.fast.queue import (
    Candidate,
    DataCost,
    GlobalQueue,
    JobRecord,
    PendingDecision,
    Phase,
    Step,
    Wait,
    colocated_of,
    decided_by,
    first_step,
    next_step,
    regions_of,
    request_of,
    waits_near,
    when_matters,
    winner,
)
from topmast.fast.region import RegionalPlacer
from topmast.model.decided import Decided, Rule
from topmast.model.job import JobSpec
from topmast.model.messages import Bid
from topmast.model.plan import Plan
from topmast.model.reason import PendingReason
from topmast.service.turns import WHOLE, Turns


class Foreseen(Struct, frozen=True):
    """How the pipeline would end."""

    phase: Phase
    """The phase that would decide."""
    plan: Plan | None = None
    """What would be committed, or what data would be copied for; None for neither."""
    starts: bool = False
    """Whether the plan would be committed."""
    decided: Decided | None = None
    wait: Wait | None = None
    """Why the job would wait near its data rather than have it copied."""
    reasons: tuple[PendingReason, ...] = ()
    """What regions without a place say."""


def as_of(
    queue: GlobalQueue, placers: Mapping[str, RegionalPlacer], now: float, turns: Turns = WHOLE
) -> AbstractContextManager[None]:
    """Look at the machines as they are at ``now``; afterwards their clocks are set back."""
    return turns.at([queue, *placers.values()], now)


def newcomer(queue: GlobalQueue, spec: JobSpec, now: float) -> JobRecord:
    """The record that a job would have if it were submitted now; it has no id."""
    record = JobRecord("", queue.jobs.next_number, spec, now)
    places = queue.cycle.binding.places((spec,), queue.jobs.next_number, queue.data.catalogue, now)
    record.bound = places[0] if places else None
    record.paused = queue.tenancy.paused_by(spec.tenant) or UNSET
    return record


def foresee(
    queue: GlobalQueue,
    placers: Mapping[str, RegionalPlacer],
    record: JobRecord,
    over_quota: bool,
    choices: tuple[int, ...],
) -> Foreseen:
    """Run the pipeline for one job to its end, in one mode. To be called `as_of` a time.

    O(phases x one search in each region).
    """
    costs = queue.costs_of(record)
    costs = {r: cost for r, cost in costs.items() if cost.barred is None and r in placers}
    decision = pending_decision(queue, record, over_quota, choices, costs)
    step, plan = first_step(queue, record, decision), None
    while plan is None and step.request is not None:
        decision.refused = decision.reasons()
        decision.bids = _bids(queue, placers, record, decision, step)
        decision.phase, decision.silent = step.phase, ()
        step, plan = next_step(queue, record, decision)
    reasons = tuple(decision.reasons().values())
    chosen = plan or decision.best
    if chosen is None:
        return Foreseen(step.phase, reasons=reasons)
    elastic, absent = record.spec.elastic is not None, queue.cycle.reach.absent
    decided = decided_by(decision, chosen, elastic=elastic, bound=record.bound, absent=absent)
    wait = waits_near(queue, record, decision) if plan is None else None
    return Foreseen(step.phase, chosen, plan is not None, decided, wait, reasons)


def pending_decision(
    queue: GlobalQueue,
    record: JobRecord,
    over_quota: bool,
    choices: tuple[int, ...],
    costs: dict[str, DataCost],
) -> PendingDecision:
    """A job at the beginning of its way, as if its turn had come in a mode."""
    if record.id:
        key = queue.backlog.key(record, over_quota)
    else:
        key = queue.backlog.key_of_newcomer(record, over_quota)
    job_class = queue.backlog.class_of(record.id)
    return PendingDecision(
        Candidate(record.id, key, over_quota),
        {mode: queue.tenancy.choices(record.spec, mode) for mode in (False, True)},
        "" if job_class is None else colocated_of(job_class),
        choices, costs, list(costs),
    )  # fmt: skip


class Moves(Struct, frozen=True):
    """Running jobs that will be moved for a waiting one, if nothing else changes before."""

    at_s: float
    plan: Plan


def foresee_moves(
    queue: GlobalQueue,
    placers: Mapping[str, RegionalPlacer],
    record: JobRecord,
    over_quota: bool,
    choices: tuple[int, ...],
) -> Moves | None:
    """Run the pipeline at the time when moves are due for a job without room. As `foresee`."""
    later = copy.copy(queue)
    later.cycle = copy.copy(queue.cycle)
    later.cycle.defragmentation, at_s = queue.cycle.defragmentation.refused(record.id, queue.now)
    if at_s is None:
        return None
    with as_of(later, placers, at_s):
        seen = foresee(later, placers, record, over_quota, choices)
    moves = seen.decided is not None and seen.decided.rule is Rule.MOVES_JOBS
    return Moves(at_s, seen.plan) if moves and seen.plan is not None else None


def _bids(
    queue: GlobalQueue,
    placers: Mapping[str, RegionalPlacer],
    record: JobRecord,
    decision: PendingDecision,
    step: Step,
) -> dict[str, Bid]:
    """What the regions would answer in a phase; of this process only the best bid.

    Nothing is reserved.
    """
    request = replace(request_of(queue, record, decision, step), reserve=False)
    bids: dict[str, Bid] = {}
    when = step.phase is Phase.NEAR_DATA and when_matters(queue, record, decision)
    for region in regions_of(queue, decision, step):
        if region not in placers:
            continue
        ask = request.in_region(queue.terms(region, decision.costs[region]))
        bid = placers[region].offer(ask)
        if when and bid.reason is PendingReason.INSUFFICIENT_CAPACITY:
            first = placers[region].expected_start(ask, queue.now)
            bid = replace(bid, reservation=first)
        bids[region] = bid
    apart = {r: bid for r, bid in bids.items() if r in queue.cycle.reach.apart}
    here = {r: bid for r, bid in bids.items() if r not in apart}
    kept = {r: bid for r, bid in here.items() if bid.kept}
    return {**(kept or _best_of(here, record.spec.elastic is not None)), **apart}


def _best_of(bids: dict[str, Bid], elastic: bool) -> dict[str, Bid]:
    """The best bid, as the fleet placer tells; all of them if none has a plan."""
    best = winner((bid.plan for bid in bids.values()), elastic)
    return bids if best is None else {best.region: bids[best.region]}
