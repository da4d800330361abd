"""What asking every region about a waiting job brings, and what keeps it from starting now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from topmast.fast.queue import (
    NOT_TRIED,
    DataCost,
    GlobalQueue,
    JobRecord,
    Verdict,
    first_verdict,
    most_hopeful,
)
from topmast.fast.region import RegionalPlacer, pending_reason
from topmast.model.plan import PlacementRequest, Plan
from topmast.model.reason import HOPELESS, PendingReason, Rejection, VictimVerdict
from topmast.model.views import RegionVerdict
from topmast.service.changes import World
from topmast.service.foresight import Foreseen, foresee, pending_decision
from topmast.service.turns import Turns
from topmast.service.warnings import residence


class Inquiry(Struct):
    """What asking every region about a job brought, in one mode."""

    over_quota: bool
    regions: list[RegionVerdict]
    plans: list[Plan]
    """The queue's first, then the best of the other clusters by score."""
    costs: dict[str, DataCost]
    stopped: dict[tuple[str, str], tuple[VictimVerdict, ...]]
    """The victims of each plan, by its region and cluster."""
    foreseen: Foreseen | None = None


def world_of(
    queue: GlobalQueue,
    placers: Mapping[str, RegionalPlacer],
    record: JobRecord,
    now: float,
    turns: Turns,
) -> World:
    """What the job is compared with: the regions that can be asked now, at its smallest size."""
    reached = {name: placers[name] for name in placers if name not in queue.cycle.reach.absent}
    known = record if record.id else None
    return World(queue, reached, record.spec.at_least(), known, now, record.bound, turns)


def inquire(world: World, record: JobRecord) -> Inquiry:
    """Ask every region, within quota if the tenant has room; if that does not start it, beyond."""
    tenancy = world.queue.tenancy
    modes = [mode for mode in (False, True) if tenancy.choices(world.spec, mode)] or [True]
    found = [_inquire_as(world, record, mode) for mode in modes]
    starts = [one for one in found if one.foreseen is not None and one.foreseen.starts]
    return next(iter([*starts, *(one for one in found if one.plans), *found]))


def _inquire_as(world: World, record: JobRecord, over_quota: bool) -> Inquiry:
    queue, now = world.queue, world.now
    allowed, costs = _allowed(world, record, over_quota), _costs(world)
    asked = {name: (cost, ask) for name, cost, ask in asks(world, record, over_quota)}
    regions: list[RegionVerdict] = []
    plans: list[Plan] = []
    stopped: dict[tuple[str, str], tuple[VictimVerdict, ...]] = {}
    for name in sorted({*world.placers, *queue.cycle.reach.apart, *queue.cycle.reach.absent}):
        absent = _absent(queue, world.placers, name)
        if absent is not None:
            regions.append(RegionVerdict(name, False, absent, 0, 0.0, ()))
            continue
        world.turns.pause()
        (cost, ask), placer = asked[name], world.placers[name]
        if cost.barred is not None:
            barred = f"{cost.barred} ({cost.detail})" if cost.detail else str(cost.barred)
            ruled_out = tuple(placer.barred(ask, now, cost.barred, cost.detail))
            regions.append(RegionVerdict(name, True, barred, cost.bytes, cost.seconds, ruled_out))
            continue
        answers = placer.verdicts(ask, now, preempt=not cost.missing)
        answers = [world.within_bounds(placer, ask, verdict, plan) for verdict, plan in answers]
        plans += [plan for _, plan in answers if plan is not None]
        stopped |= {(name, verdict.cluster): verdict.stopped for verdict, _ in answers}
        verdicts = tuple(verdict for verdict, _ in answers)
        regions.append(RegionVerdict(name, True, None, cost.bytes, cost.seconds, verdicts))
    foreseen = None
    world.turns.pause()
    if allowed and costs:
        foreseen = foresee(queue, world.placers, record, over_quota, allowed)
    return Inquiry(over_quota, regions, _in_order(plans, foreseen), costs, stopped, foreseen)


def _costs(world: World) -> dict[str, DataCost]:
    unknown = world.queue.data.catalogue.unknown(world.spec.datasets)
    return {} if unknown else world.costs()


def _allowed(world: World, record: JobRecord, over_quota: bool) -> tuple[int, ...]:
    """The GPU models that the queue would ask for now, by their place in the job's list."""
    entitled = world.queue.tenancy.choices(world.spec, over_quota)
    return world.queue.allowed(record.spec, world.record, entitled)


def asks(
    world: World, record: JobRecord, over_quota: bool
) -> Iterator[tuple[str, DataCost, PlacementRequest]]:
    """What each region that can be asked is asked, with what the job's data costs there."""
    queue, spec, costs = world.queue, world.spec, _costs(world)
    choices = (
        _allowed(world, record, over_quota)
        or queue.tenancy.choices(spec, over_quota)
        or tuple(range(64))
    )
    held = queue.held_from(spec, world.record, over_quota)
    request = queue.request(spec, over_quota, choices, record=record, held=held)
    for name in sorted(world.placers):
        cost = costs.get(name, DataCost())
        yield name, cost, request.in_region(queue.terms(name, cost))


def _in_order(plans: list[Plan], foreseen: Foreseen | None) -> list[Plan]:
    """The plan of the queue, if there is one; then those of the other clusters by score."""
    ranked = sorted(plans, key=lambda p: (p.score, p.region, p.cluster))
    first = None if foreseen is None else foreseen.plan
    if first is None:
        return ranked
    return [first, *(p for p in ranked if (p.region, p.cluster) != (first.region, first.cluster))]


def _absent(queue: GlobalQueue, placers: Mapping[str, RegionalPlacer], region: str) -> str | None:
    """Since when and why a region cannot be asked; None for one that can be."""
    absence = queue.cycle.reach.absent.get(region)
    if absence is not None:
        since = datetime.fromtimestamp(absence.since_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{Rejection.UNREACHABLE} (unreachable since {since}: {absence.why})"
    return None if region in placers else f"{Rejection.UNREACHABLE} (its books cannot be read)"


def judge(world: World, inquiry: Inquiry, record: JobRecord) -> Verdict | None:
    """What keeps the job from starting now; None when it could start."""
    queue, spec, seen = world.queue, world.spec, inquiry.foreseen
    decision = pending_decision(queue, record, inquiry.over_quota, (), inquiry.costs)
    if verdict := first_verdict(queue, record, decision):
        return verdict
    if seen is None or seen.starts:
        return None
    if seen.wait is not None:
        return Verdict(PendingReason.INSUFFICIENT_CAPACITY, seen.wait.why)
    if seen.plan is not None:
        how = "is being" if inquiry.costs[seen.plan.region].copying else "would be"
        detail = f"it {how} copied to {seen.plan.region}"
        return Verdict(PendingReason.WAITING_FOR_DATA, detail)
    found = Verdict(most_hopeful(seen.reasons))
    if not queue.tenancy.choices(spec, False):
        found = queue.as_beyond_quota(spec, found)
    return queue.as_reached(found)


def obstacles_of(world: World, inquiry: Inquiry, record: JobRecord) -> list[Verdict]:
    """All that keeps a job from starting; of what time may remove, only the first.

    A job that is released, say, may still be one that its quota never allows.
    """
    aside = world.queue.aside(record)
    verdict = None if aside or not record.id else world.queue.verdict_on(record)
    if verdict is None or verdict == NOT_TRIED:
        verdict = judge(world, inquiry, record)
    if verdict is None or (aside and verdict.reason not in HOPELESS):
        return aside
    return [*aside, verdict, *_beyond_data(world, inquiry, record, verdict)]


def _beyond_data(
    world: World, inquiry: Inquiry, record: JobRecord, verdict: Verdict
) -> list[Verdict]:
    """What keeps a job that waits for its data from starting even where its data may be."""
    if verdict.reason is not PendingReason.WAITING_FOR_DATA or world.queue.cycle.reach.absent:
        return []
    only = residence(world.queue, world.spec)
    found = most_hopeful(
        pending_reason(world.placers[name].columns, ask)
        for name, cost, ask in asks(world, record, inquiry.over_quota)
        if (only is None or name in only) and cost.barred is not Rejection.BOUND_ELSEWHERE
    )
    return [Verdict(found)] if found in HOPELESS else []
