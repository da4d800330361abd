"""What the queue would do with a job now: the steps of its own auction, without any writing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from topmast.fast.queue.backlog.backlog import effective_band
from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.cycle.asking import costs_of, when_matters, with_data
from topmast.fast.queue.cycle.auction import Asking, Step, decided_by, next_step, winner
from topmast.fast.queue.cycle.deciding import Options
from topmast.fast.queue.data.copies_on_demand import Wait, waits_since_s
from topmast.fast.queue.machine import GlobalQueue
from topmast.fast.queue.record import JobRecord
from topmast.fast.region.machine import RegionalPlacer
from topmast.model.decided import Decided
from topmast.model.job import JobSpec
from topmast.model.messages import Bid
from topmast.model.plan import PlacementRequest, Plan
from topmast.model.reason import PendingReason
from topmast.policies.options import Preemption


class Foreseen(Struct, frozen=True):
    """How an auction would end: with a plan to commit or to copy data for, or with neither."""

    step: Step
    plan: Plan | None = None
    decided: Decided | None = None
    wait: Wait | None = None
    """Why the job would wait near its data rather than have it copied."""
    reasons: tuple[PendingReason, ...] = ()
    """What regions without a place say."""

    @property
    def starts(self) -> bool:
        """Whether the plan would be committed."""
        return self.step is Step.COMMIT


@contextmanager
def as_of(queue: GlobalQueue, placers: Mapping[str, RegionalPlacer], now: float) -> Iterator[None]:
    """Look at the machines as they are at ``now``; afterwards their clocks are set back."""
    machines = [queue, *placers.values()]
    before = [machine.now for machine in machines]
    for machine in machines:
        machine.now = now
    try:
        yield
    finally:
        for machine, at_s in zip(machines, before, strict=True):
            machine.now = at_s


def newcomer(queue: GlobalQueue, spec: JobSpec, now: float) -> JobRecord:
    """The record that a job would have if it were submitted now; it has no id."""
    record = JobRecord("", queue.next_job, spec, now)
    places = queue.binding.places((spec,), queue.next_job, queue.catalogue, now)
    record.bound = places[0] if places else None
    return record


def foresee(
    queue: GlobalQueue,
    placers: Mapping[str, RegionalPlacer],
    record: JobRecord,
    over_quota: bool,
    choices: tuple[int, ...],
) -> Foreseen:
    """Follow the auction for one job to its end, in one mode. To be called `as_of` a time.

    O(steps x one search in each region).
    """
    costs = costs_of(queue, record)
    open_to = [r for r, cost in costs.items() if cost.barred is None and r in placers]
    costs = {region: costs[region] for region in open_to}
    candidate = _candidate(queue, record, over_quota)
    asking = Asking(0, candidate, choices, False, [], queue.now, costs, 0)
    asking.offers = _offers(queue, placers, record, asking, open_to)
    while True:
        step, plan = next_step(asking, Options(queue, record, asking))
        nearby = asking.what_is_nearby()
        if step in (Step.COMMIT, Step.FETCH, Step.REFUSE):
            break
        asking = Asking(
            0, candidate, choices, step is Step.STOP, [], queue.now, costs, 0,
            free_best=plan, moves=step is Step.MOVE, copies=step is Step.ASK_NEAR,
            nearby=nearby, shrinks=step is Step.SHRINK,
        )  # fmt: skip
        near = [region for region in with_data(queue, costs) if region in placers]
        asking.offers = _offers(queue, placers, record, asking, near)
    reasons = tuple(o.reason for o in asking.offers.values() if o.reason is not None)
    if plan is None:
        return Foreseen(step, reasons=reasons)
    elastic = record.spec.elastic is not None
    decided = decided_by(
        asking, plan, elastic=elastic, bound=record.bound, absent=queue.reach.absent
    )
    wait = None
    if step is Step.FETCH and nearby is not None and nearby.could:
        copy_s = costs[plan.region].seconds
        since_s = waits_since_s(record)
        wait = queue.fetches.wait(plan.region, copy_s, nearby.room_s, since_s, queue.now)
    return Foreseen(step, plan, decided, wait, reasons)


def waits_behind(queue: GlobalQueue, record: JobRecord, over_quota: bool) -> str:
    """The job that must start before this one in a strict order; empty if there is none."""
    return queue.pending.waits_behind(_candidate(queue, record, over_quota))


def _candidate(queue: GlobalQueue, record: JobRecord, over_quota: bool) -> Candidate:
    if record.id:
        key = queue.pending.key(record, over_quota)
    else:
        key = queue.pending.key_of_newcomer(record, over_quota)
    return Candidate(record.id, key, over_quota)


def _offers(
    queue: GlobalQueue,
    placers: Mapping[str, RegionalPlacer],
    record: JobRecord,
    asking: Asking,
    regions: list[str],
) -> dict[str, Bid]:
    """What the regions would answer: of those in this process the best one, as the desk tells."""
    question = _question(queue, record, asking)
    offers: dict[str, Bid] = {}
    when = asking.copies and when_matters(queue, record, asking.costs, asking.free_best)
    for region in regions:
        ask = queue.in_region(question, region, asking.costs[region])
        offer = placers[region].offer(ask)
        if when and offer.reason is PendingReason.INSUFFICIENT_CAPACITY:
            first = placers[region].expected_start(ask, queue.now)
            offer = replace(offer, reservation=first)
        offers[region] = offer
    apart = {r: offer for r, offer in offers.items() if r in queue.reach.apart}
    here = {r: offer for r, offer in offers.items() if r not in apart}
    kept = {r: offer for r, offer in here.items() if offer.kept}
    return {**(kept or _best_of(here, record.spec.elastic is not None)), **apart}


def _best_of(offers: dict[str, Bid], elastic: bool) -> dict[str, Bid]:
    """The best offer, as the desk tells; all of them if none has a plan."""
    best = winner((offer.plan for offer in offers.values()), elastic)
    return offers if best is None else {best.region: offers[best.region]}


def _question(queue: GlobalQueue, record: JobRecord, asking: Asking) -> PlacementRequest:
    """The question of the queue at this step, but that nothing is reserved."""
    over_quota, moves = asking.candidate.over_quota, asking.moves
    outranked = None
    if asking.preempt and queue.profile.preemption is Preemption.RANK:
        outranked = queue.outranked(asking.candidate)
    room_gpu_s = None
    if moves:
        band = effective_band(record.spec.band, over_quota)
        room_gpu_s = queue.defragmentation.worth_gpu_s(record, band, queue.now)
    gently = not (asking.preempt or asking.shrinks or moves)
    return queue.question(
        record.spec, over_quota, asking.choices, preempt=asking.preempt, job=record.id,
        avoid_hosts=record.avoid_hosts, held=queue.held_from(record.spec, record, over_quota),
        outranked=outranked, room_gpu_s=room_gpu_s, shrinks=asking.shrinks,
        cluster=None if record.bound is None else record.bound.cluster,
        more=queue.more_tasks(record, over_quota, asking.choices) if gently else None,
    )  # fmt: skip
