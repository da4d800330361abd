"""Why a job stands where it stands, and what would change that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from topmast.fast.queue import (
    DataCost,
    GlobalQueue,
    JobRecord,
    Verdict,
    may_preempt,
)
from topmast.fast.region import RegionalPlacer, count_of, states_of
from topmast.model.job import JobSpec
from topmast.model.plan import Plan
from topmast.model.reason import (
    Change,
    ChangeKind,
    PendingReason,
    Rejection,
    VictimVerdict,
    by_size,
)
from topmast.model.states import WAITING, HostState
from topmast.model.views import Explanation, PlanView
from topmast.service import sentences
from topmast.service.advice import would_help
from topmast.service.changes import World, copied, in_regions, moved, of_data, of_the_job
from topmast.service.foresight import (
    as_of,
    foresee_moves,
    newcomer,
)
from topmast.service.inquiry import Inquiry, asks, inquire, obstacles_of, world_of
from topmast.service.quota_turns import quota_turn
from topmast.service.quotas import quota_changes
from topmast.service.sentences import Scene
from topmast.service.turns import WHOLE, Turns
from topmast.service.warnings import engines_for, residence

PLANS_SHOWN = 5
HELP_SHOWN = 8


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
        world = msgspec.structs.replace(world_of(queue, placers, record, now, turns), ends=ends)
        inquiry = inquire(world, record)
        obstacles = obstacles_of(world, inquiry, record)
        found = _explanation(world, inquiry, obstacles, record, in_brief=in_brief)
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
        world = world_of(queue, placers, record, now, turns)
        over_quota = inquire(world, record).over_quota
        for name, cost, ask in asks(world, record, over_quota):
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
        world = world_of(queue, placers, record, now, turns)
        inquiry = inquire(world, record)
        obstacles = obstacles_of(world, inquiry, record)
        found = _explanation(world, inquiry, obstacles, record, warnings)
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


def _explanation(
    world: World,
    inquiry: Inquiry,
    obstacles: Sequence[Verdict],
    record: JobRecord,
    warnings: tuple[str, ...] = (),
    *,
    in_brief: bool = False,
) -> Explanation:
    queue, spec, seen = world.queue, world.spec, inquiry.foreseen
    reservation = queue.cycle.backfill.reservation
    mine = reservation is not None and record.id != "" and reservation.job == record.id
    kept = reservation if mine else None
    reasons = [verdict.reason for verdict in obstacles]
    reason = reasons[0] if reasons else None
    turn = quota_turn(queue, spec)
    changes = () if in_brief else _changes(world, inquiry, reason, record)
    if turn is not None and not turn.lets:
        changes = _before(world, changes, turn.at_s)
    scene = Scene(
        spec, seen, inquiry.over_quota,
        may_preempt(queue, record, inquiry.over_quota, inquiry.costs),
        bool(queue.tenancy.choices(spec, True)), record.bound, record.suspended is True,
        *engines_for(queue, spec), residence(queue, spec),
    )  # fmt: skip
    details = [sentences.detail_of(queue, spec, verdict) for verdict in obstacles]
    if reason is PendingReason.INSUFFICIENT_CAPACITY:
        details[0] = "; ".join(filter(None, (details[0], _out_of_service(world, changes))))
    said = "" if turn is None else turn.says()
    summary = sentences.waiting_for_all(scene, reasons, details, said)
    summary += sentences.kept(kept) if kept else ""
    if reason in (PendingReason.INSUFFICIENT_CAPACITY, PendingReason.WAITING_FOR_QUOTA):
        places = (placer.state.places for placer in world.placers.values())
        summary += sentences.kept_for_others(record, [p.plan for of in places for p in of.values()])
    decided = None if seen is None or reason is not None else seen.decided
    return Explanation(
        job=record.id or None,
        name=spec.name,
        state=record.state.value if record.id else "NOT SUBMITTED",
        reason=queue.word_for(record, obstacles[0] if obstacles else None),
        summary=summary + sentences.refused(record),
        would_help=would_help(world, reasons[-1] if reasons else None, inquiry, changes, turn),
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
        also=tuple(further.value for further in reasons[1:]),
        not_before_s=turn.at_s if turn is not None and turn.lets else None,
        until_s=None if turn is None or turn.lets else turn.at_s,
    )


def _changes(
    world: World, inquiry: Inquiry, reason: PendingReason | None, record: JobRecord
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
    return tuple(sorted(_not_in_vain(found), key=by_size))


def _not_in_vain(changes: Sequence[Change]) -> list[Change]:
    """Changes without those that want the end of jobs as well, where that end alone is enough."""
    enough = [set(c.jobs) for c in changes if c.kind is ChangeKind.ENDS and not c.also]
    return [c for c in changes if not (c.also and any(jobs <= set(c.jobs) for jobs in enough))]


def _before(world: World, changes: tuple[Change, ...], until_s: float) -> tuple[Change, ...]:
    """Changes but for those that come too late; jobs end as their regions expect it, at least."""
    ends: dict[str, float] = {}
    for name in sorted(world.placers):
        ends |= world.placers[name].expected_ends(world.now)

    def in_time(change: Change) -> bool:
        last_s = max((ends.get(job, 0.0) for job in change.jobs), default=0.0)
        at_s = last_s if change.kind is ChangeKind.ENDS else 0.0
        return (at_s if change.at_s is None else change.at_s) <= until_s

    return tuple(change for change in changes if in_time(change))


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
