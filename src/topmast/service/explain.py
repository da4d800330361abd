"""Why a job stands where it stands, and what would change that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial

import msgspec
from msgspec import Struct

from topmast.fast.queue import (
    NOT_TRIED,
    DataCost,
    GlobalQueue,
    JobRecord,
    Verdict,
    first_verdict,
    may_preempt,
    most_hopeful,
)
from topmast.fast.region import RegionalPlacer, count_of, states_of
from topmast.model.files.fields import nearest
from topmast.model.job import MILLI, JobSpec
from topmast.model.plan import PlacementRequest, Plan
from topmast.model.reason import (
    Change,
    ChangeKind,
    ClusterVerdict,
    PendingReason,
    Rejection,
    VictimVerdict,
    by_size,
)
from topmast.model.states import WAITING, HostState
from topmast.model.views import Explanation, PlanView, RegionVerdict
from topmast.service import sentences
from topmast.service.changes import World, copied, in_regions, moved, of_data, of_the_job
from topmast.service.foresight import (
    Foreseen,
    as_of,
    foresee,
    foresee_moves,
    newcomer,
    pending_decision,
)
from topmast.service.quotas import quota_changes
from topmast.service.sentences import Scene
from topmast.service.turns import WHOLE, Turns
from topmast.service.warnings import engines_for, nowhere, to_add, too_large

PLANS_SHOWN = 5
HELP_SHOWN = 8


class _Inquiry(Struct):
    """What asking every region about a job brought, in one mode."""

    over_quota: bool
    regions: list[RegionVerdict]
    plans: list[Plan]
    """The queue's first, then the best of the other clusters by score."""
    costs: dict[str, DataCost]
    stopped: dict[tuple[str, str], tuple[VictimVerdict, ...]]
    """The victims of each plan, by its region and cluster."""
    foreseen: Foreseen | None = None


def explain_job(
    queue: GlobalQueue,
    placers: Mapping[str, RegionalPlacer],
    record: JobRecord,
    now: float,
    *,
    in_brief: bool = False,
    turns: Turns = WHOLE,
    ends: Mapping[str, float] | None = None,
) -> Explanation:
    """Explain a job of the queue; reads the machines, changes nothing.

    ``in_brief``: without what would help, which takes most of the time. ``turns``: the slices in
    which the machines are looked at. ``ends``: when jobs will be over by a forecast of its start.
    """
    turns.rest_on(lambda: (*_basis(queue, placers), *_standing(record)))
    with as_of(queue, placers, now, turns):
        if record.state not in WAITING or record.plan is not None:
            return _explain_placed(queue, placers, record, now)
        world = msgspec.structs.replace(_world(queue, placers, record, now, turns), ends=ends)
        inquiry = _inquire(world, record)
        verdict = queue.verdict_on(record)
        if verdict == NOT_TRIED:
            verdict = _judge(world, inquiry, record)
        found = _explanation(world, inquiry, verdict, record, in_brief=in_brief)
        return msgspec.structs.replace(found, summary=found.summary + _sizes(record.spec))


def rejected_hosts(
    queue: GlobalQueue,
    placers: Mapping[str, RegionalPlacer],
    record: JobRecord,
    now: float,
    turns: Turns = WHOLE,
) -> dict[str, Rejection]:
    """The hosts that an explanation counts as rejected, each with why; changes nothing."""
    if record.state not in WAITING or record.plan is not None:
        return {}
    found: dict[str, Rejection] = {}
    turns.rest_on(lambda: (*_basis(queue, placers), *_standing(record)))
    with as_of(queue, placers, now, turns):
        world = _world(queue, placers, record, now, turns)
        over_quota = _inquire(world, record).over_quota
        for name, cost, ask in _asks(world, record, over_quota):
            turns.pause()
            ruled_out = partial(world.ruled_out, cost)
            found |= world.placers[name].rejected(ask, now, ruled_out, preempt=not cost.missing)
    return found


def explain_spec(
    queue: GlobalQueue,
    placers: Mapping[str, RegionalPlacer],
    spec: JobSpec,
    now: float,
    warnings: tuple[str, ...] = (),
    turns: Turns = WHOLE,
) -> Explanation:
    """What would become of a job if it were submitted now; changes nothing."""
    turns.rest_on(lambda: _basis(queue, placers))
    with as_of(queue, placers, now, turns):
        record = newcomer(queue, spec, now)
        world = _world(queue, placers, record, now, turns)
        inquiry = _inquire(world, record)
        verdict = _judge(world, inquiry, record)
        found = _explanation(world, inquiry, verdict, record, warnings)
        return msgspec.structs.replace(found, summary=found.summary + _sizes(spec))


def _sizes(spec: JobSpec, now: int | None = None) -> str:
    """The range of an elastic job in words, and what it has ``now``; empty for any other."""
    elastic = spec.elastic
    if elastic is None:
        return ""
    of = f" of group {elastic.name}" if len(spec.groups) > 1 else ""
    runs = f"from {elastic.least} to {elastic.most} tasks{of}; it asked for {elastic.count}"
    if now is None:
        return f"; it starts with the most that fit, {runs}"
    return f"; it runs with {count_of(now, 'task')}, and may have {runs}"


def _basis(queue: GlobalQueue, placers: Mapping[str, RegionalPlacer]) -> tuple[object, ...]:
    """Without which every explanation would be false: the fleet, its hosts, what is reached."""
    hosts = [placer.columns for placer in placers.values()]
    paused, timed = dict(queue.tenancy.paused), dict(queue.tenancy.timed)
    return (queue.fleet, queue.profile, paused, timed, tuple(queue.cycle.reach.absent), *hosts)


def _standing(record: JobRecord) -> tuple[object, ...]:
    """Without which the explanation of this job would be false: what it asks, where it stands."""
    r = record
    return (r.spec, r.next_spec, r.state, r.epoch, r.plan, r.hold, r.paused, r.bound, r.cancelling)


def _world(
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


def _inquire(world: World, record: JobRecord) -> _Inquiry:
    """Ask every region, within quota if the tenant has room; if that does not start it, beyond."""
    tenancy = world.queue.tenancy
    modes = [mode for mode in (False, True) if tenancy.choices(world.spec, mode)] or [True]
    found = [_inquire_as(world, record, mode) for mode in modes]
    starts = [one for one in found if one.foreseen is not None and one.foreseen.starts]
    return next(iter([*starts, *(one for one in found if one.plans), *found]))


def _inquire_as(world: World, record: JobRecord, over_quota: bool) -> _Inquiry:
    queue, now = world.queue, world.now
    allowed, costs = _allowed(world, record, over_quota), _costs(world)
    asks = {name: (cost, ask) for name, cost, ask in _asks(world, record, over_quota)}
    regions: list[RegionVerdict] = []
    plans: list[Plan] = []
    stopped: dict[tuple[str, str], tuple[VictimVerdict, ...]] = {}
    for name in sorted({*world.placers, *queue.cycle.reach.apart, *queue.cycle.reach.absent}):
        absent = _absent(queue, world.placers, name)
        if absent is not None:
            regions.append(RegionVerdict(name, False, absent, 0, 0.0, ()))
            continue
        world.turns.pause()
        (cost, ask), placer = asks[name], world.placers[name]
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
    return _Inquiry(over_quota, regions, _in_order(plans, foreseen), costs, stopped, foreseen)


def _costs(world: World) -> dict[str, DataCost]:
    unknown = world.queue.data.catalogue.unknown(world.spec.datasets)
    return {} if unknown else world.costs()


def _allowed(world: World, record: JobRecord, over_quota: bool) -> tuple[int, ...]:
    """The GPU models that the queue would ask for now, by their place in the job's list."""
    entitled = world.queue.tenancy.choices(world.spec, over_quota)
    return world.queue.allowed(record.spec, world.record, entitled)


def _asks(
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


def _judge(world: World, inquiry: _Inquiry, record: JobRecord) -> Verdict | None:
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


def _explanation(
    world: World,
    inquiry: _Inquiry,
    verdict: Verdict | None,
    record: JobRecord,
    warnings: tuple[str, ...] = (),
    *,
    in_brief: bool = False,
) -> Explanation:
    queue, spec, seen = world.queue, world.spec, inquiry.foreseen
    reservation = queue.cycle.backfill.reservation
    mine = reservation is not None and record.id != "" and reservation.job == record.id
    kept = reservation if mine else None
    reason = None if verdict is None else verdict.reason
    changes = () if in_brief else _changes(world, inquiry, reason, record)
    scene = Scene(
        spec, seen, inquiry.over_quota,
        may_preempt(queue, record, inquiry.over_quota, inquiry.costs),
        bool(queue.tenancy.choices(spec, True)), record.bound, record.suspended is True,
        *engines_for(queue, spec),
    )  # fmt: skip
    detail = "" if verdict is None else sentences.detail_of(queue, spec, verdict)
    if reason is PendingReason.INSUFFICIENT_CAPACITY:
        detail = "; ".join(filter(None, (detail, _out_of_service(world, changes))))
    summary = sentences.waiting(scene, reason, detail)
    summary += sentences.kept(kept) if kept else ""
    if reason in (PendingReason.INSUFFICIENT_CAPACITY, PendingReason.WAITING_FOR_QUOTA):
        places = (placer.state.places for placer in world.placers.values())
        summary += sentences.kept_for_others(record, [p.plan for of in places for p in of.values()])
    decided = None if seen is None or reason is not None else seen.decided
    return Explanation(
        job=record.id or None,
        name=spec.name,
        state=record.state.value if record.id else "NOT SUBMITTED",
        reason=reason.value if reason else None,
        summary=summary + sentences.refused(record),
        would_help=_would_help(world, reason, inquiry, changes),
        regions=tuple(inquiry.regions),
        plans=tuple(
            plan_view(p, inquiry.over_quota, inquiry.stopped.get((p.region, p.cluster), ()))
            for p in inquiry.plans[:PLANS_SHOWN]
        ),
        warnings=warnings,
        expected_start_s=kept.from_s if kept else None,
        basis="when the jobs on the GPUs kept for it are expected to end" if kept else "",
        changes=changes,
        decided=decided,
        suspended=record.suspended is True,
    )


def _changes(
    world: World, inquiry: _Inquiry, reason: PendingReason | None, record: JobRecord
) -> tuple[Change, ...]:
    """What would let a waiting job start, the smallest change first; nothing if it could start.

    O(regions x (log of the amounts asked + log of the attempts) x hosts): some tens of trials a
    region.
    """
    if world.queue.data.catalogue.unknown(world.spec.datasets):
        return ()
    seen = inquiry.foreseen
    if seen is not None and seen.plan is not None:
        best = seen.plan.region
        cost = inquiry.costs.get(best, DataCost())
        return (copied(best, cost, world.now),) if cost.missing else ()
    found = [*of_data(world), *of_the_job(world), *quota_changes(world), *in_regions(world)]
    if seen is not None and reason is PendingReason.INSUFFICIENT_CAPACITY:
        found += _moves(world, inquiry.over_quota, record)
    return tuple(sorted(found, key=by_size))


def _out_of_service(world: World, changes: tuple[Change, ...]) -> str:
    """The hosts out of service on which the job would start, in words; empty without such hosts."""
    back = next((change for change in changes if change.kind is ChangeKind.SERVICE), None)
    if back is None or back.region is None:
        return ""
    count = int(back.to) if isinstance(back.to, float) else len(back.hosts)
    hosts, are = count_of(count, "host"), "is" if count == 1 else "are"
    states = states_of(world.placers[back.region].columns, back.hosts)
    return f"{hosts} of {back.cluster} would do, but {are} out of service ({states})"


def _moves(world: World, over_quota: bool, record: JobRecord) -> list[Change]:
    """The moves of running jobs that the queue will find for this one, if nothing else changes."""
    queue, spec = world.queue, world.spec
    choices = queue.allowed(spec, world.record, queue.tenancy.choices(spec, over_quota))
    moves = foresee_moves(queue, world.placers, record, over_quota, choices)
    return [] if moves is None else [moved(moves.plan, moves.at_s, world.now)]


def _stays(placers: Mapping[str, RegionalPlacer], record: JobRecord, now: float) -> str:
    """Why a job is on a host that is drained, in words; empty if it is on none."""
    placer = placers.get(record.region or "")
    if record.plan is None or placer is None:
        return ""
    drained = [h for h in record.hosts if placer.host_state(h) is HostState.DRAINING]
    why = next((d.why for d in placer.departures(tuple(drained), now) if d.job == record.id), "")
    being = "is" if len(drained) == 1 else "are"
    return f"; {', '.join(drained)} {being} drained, and {why}" if why else ""


def _explain_placed(
    queue: GlobalQueue, placers: Mapping[str, RegionalPlacer], record: JobRecord, now: float
) -> Explanation:
    """A job with a place, or with none to wait for any more."""
    verdict = queue.verdict_on(record)
    plan = record.plan
    summary = sentences.placed(record)
    if plan is not None and record.state not in WAITING:
        elastic = record.spec.elastic
        if elastic is not None:
            summary += _sizes(record.spec, plan.tasks_of(elastic.name))
            summary += f"; last change of size: {record.size_cause}" if record.size_cause else ""
        summary += _stays(placers, record, now)
    if plan is not None and plan.region in queue.cycle.reach.absent:
        summary += f"; {queue.out_of_reach()}: this is the last that was heard"
    return Explanation(
        job=record.id,
        name=record.spec.name,
        state=record.state.value,
        reason=None if verdict is None else verdict.reason.value,
        summary=summary,
        would_help=(),
        regions=(),
        plans=(_placed_view(placers, record, plan, now),) if plan else (),
        decided=(record.decided or None) if plan else None,
    )


def _placed_view(
    placers: Mapping[str, RegionalPlacer], record: JobRecord, plan: Plan, now: float
) -> PlanView:
    """The plan of a placed job; its victims with their losses, while they still hold GPUs."""
    placer = placers.get(plan.region)
    stopped = placer.victims(plan, now) if placer is not None else ()
    return plan_view(plan, record.over_quota, stopped)


def plan_view(plan: Plan, over_quota: bool, stopped: tuple[VictimVerdict, ...]) -> PlanView:
    """A plan as people see it, with what is known of those it stops."""
    known = {victim.job: msgspec.to_builtins(victim) for victim in stopped}
    return PlanView(
        region=plan.region,
        cluster=plan.cluster,
        gpu_model=plan.model,
        hosts=plan.hosts,
        level=plan.level.name.lower(),
        score=plan.score,
        terms=plan.terms,
        victims=tuple(known.get(v.job, {"job": v.job}) for v in plan.victims),
        over_quota=over_quota,
        data_bytes=plan.data_bytes,
        data_s=plan.data_s,
    )


def _would_help(
    world: World, reason: PendingReason | None, inquiry: _Inquiry, changes: tuple[Change, ...]
) -> tuple[str, ...]:
    """The smallest change of each kind, in words; then what is no change of one thing."""
    smallest = {change.kind: change for change in reversed(changes)}
    texts = [change.text for change in sorted(smallest.values(), key=by_size)[:HELP_SHOWN]]
    return tuple(texts + _in_general(world, reason, inquiry, bool(changes)))


def _in_general(
    world: World, reason: PendingReason | None, inquiry: _Inquiry, found_some: bool
) -> list[str]:
    """What helps with a reason, whatever is free now."""
    queue, spec = world.queue, world.spec
    need = spec.gpus_milli() / MILLI
    allowed = [region for region in inquiry.regions if region.barred is None]
    verdicts = [v for region in allowed for v in region.clusters]
    if reason is PendingReason.TOPOLOGY_DOES_NOT_FIT and found_some:
        return []  # the summary says what does not fit, and the changes what would
    if reason in (PendingReason.TOPOLOGY_DOES_NOT_FIT, PendingReason.NO_MATCHING_HARDWARE):
        columns = [world.placers[region.region].columns for region in allowed]
        return list(too_large(queue, columns, spec)) or _of_hardware(spec, need, verdicts)
    if reason is PendingReason.UNKNOWN_DATASET:
        return [_to_add(queue, name) for name in queue.data.catalogue.unknown(spec.datasets)]
    if reason is PendingReason.WAITING_FOR_DATA:
        return [f"{to_add(queue, name)}: no region has its files" for name in nowhere(queue, spec)]
    starts = inquiry.foreseen is not None and inquiry.foreseen.starts
    if found_some or reason is None or starts:
        return []
    if reason in (PendingReason.WAITING_FOR_QUOTA, PendingReason.EXCEEDS_MAX_QUOTA):
        return [f"more quota for tenant {spec.tenant}, and room: no one change was found to do"]
    if reason is PendingReason.INSUFFICIENT_CAPACITY:
        usable = sorted((v for v in verdicts if v.ever), key=lambda v: (-v.free_gpus, v.cluster))
        return [
            f"more free GPUs in {v.cluster}: {v.free_gpus:g} of {v.total_gpus:g} are free, "
            f"{need:g} are needed close together"
            for v in usable[:3]
        ]
    return []


def _to_add(queue: GlobalQueue, name: str) -> str:
    """What helps with a dataset that the catalogue does not have."""
    near = nearest(name, queue.data.catalogue.datasets)
    return to_add(queue, name) + (f"; {near}" if near else "")


def _of_hardware(spec: JobSpec, need: float, verdicts: list[ClusterVerdict]) -> list[str]:
    """What the fleet would need, or the job should request, even if nothing else ran."""
    largest = max(verdicts, key=lambda v: v.largest_gpus, default=None)
    if largest is None or not largest.largest_gpus:
        return ["hosts with the GPU model and count that one task asks for"]
    level = spec.topology.required
    within = f"one {level.name.lower()}" if level is not None else "one cluster"
    return [
        f"a gang of at most {largest.largest_gpus:g} GPUs: the most that fits in {within} "
        f"(in {largest.cluster})",
        f"a {within[4:]} with at least {need:g} such GPUs",
    ]
