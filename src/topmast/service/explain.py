"""Why a job stands where it stands, and what would change that."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from topmast.fast.placement.changes.trials import count_of
from topmast.fast.placement.explain import pending_reason
from topmast.fast.placement.machine import RegionalPlacer
from topmast.fast.queue.auction import earliest, no_region
from topmast.fast.queue.catalogue import DataCost
from topmast.fast.queue.fetches import Wait, waits_since_s
from topmast.fast.queue.machine import GlobalQueue
from topmast.fast.queue.record import JobRecord
from topmast.model.job import MILLI, JobSpec
from topmast.model.plan import Ask, Plan, Reservation
from topmast.model.reason import (
    Change,
    ClusterVerdict,
    PendingReason,
    Rejection,
    VictimVerdict,
    by_size,
)
from topmast.model.states import WAITING, HostState
from topmast.model.views import Explanation, PlanView, RegionVerdict
from topmast.service.changes import World, copied, in_regions, of_data, of_the_job
from topmast.service.quotas import quota_changes
from topmast.service.warnings import gang_in_words, too_large

PLANS_SHOWN = 5
HOSTS_SHOWN = 4
HELP_SHOWN = 8


class _Inquiry(Struct):
    """What asking every region about a job brought."""

    over_quota: bool
    regions: list[RegionVerdict]
    plans: list[Plan]
    costs: dict[str, DataCost]
    stopped: dict[tuple[str, str], tuple[VictimVerdict, ...]]
    """The victims of each plan, by its region and cluster."""
    wait: Wait | None = None
    """Why the job would wait near its data, though the best plan is away from it."""


def explain_job(
    queue: GlobalQueue, placers: Mapping[str, RegionalPlacer], record: JobRecord, now: float
) -> Explanation:
    """Explain a job of the queue; reads the machines, changes nothing."""
    if record.state not in WAITING or record.plan is not None:
        return _explain_placed(queue, placers, record, now)
    spec = record.spec.at_least()  # with fewer tasks it does not start
    inquiry = _inquire(queue, placers, spec, record, now)
    reason, detail = queue.reason_of(record)
    if reason is PendingReason.PENDING_EVALUATION:
        reason, detail = _judge(queue, spec, inquiry)
    found = _explanation(_world(queue, placers, spec, record, now), inquiry, reason, detail)
    return msgspec.structs.replace(found, summary=found.summary + _sizes(record.spec))


def explain_spec(
    queue: GlobalQueue,
    placers: Mapping[str, RegionalPlacer],
    spec: JobSpec,
    now: float,
    warnings: tuple[str, ...] = (),
) -> Explanation:
    """What would become of a job if it were submitted now."""
    least = spec.at_least()
    inquiry = _inquire(queue, placers, least, None, now)
    reason, detail = _judge(queue, least, inquiry)
    world = _world(queue, placers, least, None, now)
    found = _explanation(world, inquiry, reason, detail, warnings)
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


def _world(
    queue: GlobalQueue,
    placers: Mapping[str, RegionalPlacer],
    spec: JobSpec,
    record: JobRecord | None,
    now: float,
) -> World:
    """What the job meets: regions that can be asked now."""
    reached = {name: placers[name] for name in placers if name not in queue.reach.absent}
    return World(queue, reached, spec, record, now)


def _inquire(
    queue: GlobalQueue,
    placers: Mapping[str, RegionalPlacer],
    spec: JobSpec,
    record: JobRecord | None,
    now: float,
) -> _Inquiry:
    """Ask every region, within quota if the tenant has room; if that finds no place, beyond it."""
    queue.now = now
    modes = [mode for mode in (False, True) if queue.choices(spec, mode)] or [True]
    first = _inquire_as(queue, placers, spec, record, now, modes[0])
    if first.plans or len(modes) == 1:
        return first
    second = _inquire_as(queue, placers, spec, record, now, modes[1])
    return second if second.plans else first


def _inquire_as(
    queue: GlobalQueue,
    placers: Mapping[str, RegionalPlacer],
    spec: JobSpec,
    record: JobRecord | None,
    now: float,
    over_quota: bool,
) -> _Inquiry:
    entitled = queue.choices(spec, over_quota)
    choices = queue.allowed(spec, record, entitled) or entitled or tuple(range(64))
    costs = {} if queue.catalogue.unknown(spec.datasets) else queue.data_costs(spec)
    job, avoid_hosts = ("", ()) if record is None else (record.id, record.avoid_hosts)
    held = queue.held_from(spec, record, over_quota)
    regions: list[RegionVerdict] = []
    plans: list[Plan] = []
    asks: dict[str, Ask] = {}
    stopped: dict[tuple[str, str], tuple[VictimVerdict, ...]] = {}
    for name in sorted({*placers, *queue.reach.apart}):
        absent = _absent(queue, placers, name)
        if absent is not None:
            regions.append(RegionVerdict(name, False, absent, 0, 0.0, ()))
            continue
        cost, placer = costs.get(name, DataCost()), placers[name]
        ask = queue.ask_for(
            spec, name, over_quota, choices, cost,
            preempt=False, job=job, avoid_hosts=avoid_hosts, held=held,
        )  # fmt: skip
        if cost.barred is not None:
            barred = f"{cost.barred} ({cost.detail})" if cost.detail else str(cost.barred)
            ruled_out = tuple(placer.barred(ask, now, cost.barred, cost.detail))
            regions.append(RegionVerdict(name, True, barred, cost.bytes, cost.seconds, ruled_out))
            continue
        asks[name] = ask
        answers = placer.verdicts(ask, now, preempt=not cost.missing)
        plans += [plan for _, plan in answers if plan is not None]
        stopped |= {(name, verdict.cluster): verdict.stopped for verdict, _ in answers}
        verdicts = tuple(verdict for verdict, _ in answers)
        regions.append(RegionVerdict(name, True, None, cost.bytes, cost.seconds, verdicts))
    plans = _in_order(plans, costs, weighs=queue.fetches.weighs)
    wait = None
    if plans and queue.fetches.weighs and costs.get(plans[0].region, DataCost()).missing:
        since_s = now if record is None else waits_since_s(record)
        wait = _wait_nearby(placers, asks, costs, queue, plans[0].region, since_s)
    return _Inquiry(over_quota, regions, plans, costs, stopped, wait)


def _wait_nearby(
    placers: Mapping[str, RegionalPlacer],
    asks: Mapping[str, Ask],
    costs: Mapping[str, DataCost],
    queue: GlobalQueue,
    region: str,
    since_s: float,
) -> Wait | None:
    """Why the queue would have the job wait near its data rather than copy it to ``region``; None if it would not.

    ``asks``: what is asked of each region that may hold the data.
    """
    busy = PendingReason.INSUFFICIENT_CAPACITY
    near = {
        name: ask
        for name, ask in asks.items()
        if not costs.get(name, DataCost()).missing
        and pending_reason(placers[name].columns, ask) is busy
    }
    if not near or costs[region].copying:
        return None
    kept = [placers[name].expected_start(ask, queue.now) for name, ask in near.items()]
    room_s = earliest(held.from_s for held in kept if held is not None)
    return queue.fetches.wait(region, costs[region].seconds, room_s, since_s, queue.now)


def _in_order(
    plans: list[Plan], costs: Mapping[str, DataCost], *, weighs: bool = False
) -> list[Plan]:
    """The plans as the auction ranks them: nobody is preempted while a free place has the data.

    ``weighs``: nor is anything copied then.
    """
    ranked = sorted(plans, key=lambda p: (p.score, p.region, p.cluster))
    away = {p.region for p in plans if costs.get(p.region, DataCost()).missing}
    if weighs and any(not p.victims and p.region not in away for p in ranked):
        return sorted(ranked, key=lambda p: bool(p.victims) or p.region in away)
    free = next((p for p in ranked if not p.victims), None)
    if free is not None and free.region in away:
        return ranked  # rather preempt than wait for a copy, if that is cheaper
    return sorted(ranked, key=lambda p: bool(p.victims))


def _absent(queue: GlobalQueue, placers: Mapping[str, RegionalPlacer], region: str) -> str | None:
    """Since when and why a region cannot be asked; None for one that can be."""
    absence = queue.reach.absent.get(region)
    if absence is not None:
        since = datetime.fromtimestamp(absence.since_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{Rejection.UNREACHABLE} (unreachable since {since}: {absence.why})"
    return None if region in placers else f"{Rejection.UNREACHABLE} (its books cannot be read)"


def _judge(
    queue: GlobalQueue, spec: JobSpec, inquiry: _Inquiry
) -> tuple[PendingReason | None, str]:
    """The dominant reason that keeps the job from starting now; None when it could start."""
    unknown = queue.catalogue.unknown(spec.datasets)
    if unknown:
        return PendingReason.UNKNOWN_DATASET, ", ".join(unknown)
    if not queue.choices(spec, False) and not queue.choices(spec, True):
        return queue.quota_reason(spec)
    if inquiry.plans:
        cost = inquiry.costs[inquiry.plans[0].region]
        if inquiry.wait is not None:
            return PendingReason.INSUFFICIENT_CAPACITY, inquiry.wait.why
        if cost.missing:
            how = "is being" if cost.copying else "would be"
            return PendingReason.WAITING_FOR_DATA, f"{how} copied to {inquiry.plans[0].region}"
        return None, ""
    if inquiry.costs and all(cost.barred for cost in inquiry.costs.values()):
        reason = no_region(inquiry.costs.values())
        return reason, queue.out_of_reach() or "no region may or can hold its data"
    allowed = [region for region in inquiry.regions if region.barred is None]
    verdicts = [v for region in allowed for v in region.clusters]
    if queue.reach.absent or any(v.ever for v in verdicts):
        return PendingReason.INSUFFICIENT_CAPACITY, queue.out_of_reach()
    if any(v.largest_gpus for v in verdicts):
        return PendingReason.TOPOLOGY_DOES_NOT_FIT, ""
    return PendingReason.NO_MATCHING_HARDWARE, ""


def _explanation(
    world: World,
    inquiry: _Inquiry,
    reason: PendingReason | None,
    detail: str,
    warnings: tuple[str, ...] = (),
) -> Explanation:
    queue, spec, record = world.queue, world.spec, world.record
    kept = queue.backfill.reservation
    kept = kept if kept is not None and record is not None and kept.job == record.id else None
    changes = _changes(world, inquiry)
    summary = _summary(spec, reason, detail, inquiry) + (_kept(kept) if kept else "")
    return Explanation(
        job=record.id if record else None,
        name=spec.name,
        state=record.state.value if record else "NOT SUBMITTED",
        reason=reason.value if reason else None,
        summary=summary + (_refused(record) if record else ""),
        would_help=_would_help(world, reason, inquiry, changes),
        regions=tuple(inquiry.regions),
        plans=tuple(
            plan_view(p, inquiry.over_quota, inquiry.stopped.get((p.region, p.cluster), ()))
            for p in inquiry.plans[:PLANS_SHOWN]
        ),
        warnings=warnings,
        expected_start_s=kept.from_s if kept else None,
        basis="when those who hold the GPUs kept for it are expected to end" if kept else "",
        changes=changes,
    )


def _changes(world: World, inquiry: _Inquiry) -> tuple[Change, ...]:
    """What would let a job start that does not, the smallest change first; nothing if it could start.

    O(regions x (log of the amounts asked + log of the attempts) x hosts): some tens of trials a region.
    """
    if world.queue.catalogue.unknown(world.spec.datasets):
        return ()
    queue, spec = world.queue, world.spec
    if inquiry.plans and (queue.choices(spec, False) or queue.choices(spec, True)):
        best = inquiry.plans[0].region
        cost = inquiry.costs.get(best, DataCost())
        return (copied(best, cost, world.now),) if cost.missing else ()
    found = [*of_data(world), *of_the_job(world), *quota_changes(world), *in_regions(world)]
    return tuple(sorted(found, key=by_size))


def _refused(record: JobRecord) -> str:
    """How often a region refused its plan, in words."""
    if not record.refusals:
        return ""
    times = "once" if record.refusals == 1 else f"{record.refusals} times"
    return f"; a plan for it was refused at commit {times}, and it is asked about again"


def _kept(kept: Reservation) -> str:
    """What is kept for a job, in words."""
    hosts = tuple(dict.fromkeys(seat.host for seat in kept.seats))
    shown = ", ".join(hosts[:HOSTS_SHOWN]) + (", ..." if len(hosts) > HOSTS_SHOWN else "")
    return (
        f"; room is kept for it in {kept.region}/{kept.cluster} ({shown}): others start there only if "
        f"they are expected to end in time"
    )


def _stays(placers: Mapping[str, RegionalPlacer], record: JobRecord, now: float) -> str:
    """Why a job is on a host that is drained, in words; empty if it is on none."""
    placer = placers.get(record.region or "")
    if record.plan is None or placer is None:
        return ""
    drained = [h for h in record.hosts if placer.host_state(h) is HostState.DRAINING]
    why = next((d.why for d in placer.departures(tuple(drained), now) if d.job == record.id), "")
    return f"; {', '.join(drained)} is drained, and it {why}" if why else ""


def _explain_placed(
    queue: GlobalQueue, placers: Mapping[str, RegionalPlacer], record: JobRecord, now: float
) -> Explanation:
    """A job with a place, or with none to wait for any more."""
    reason, _ = queue.reason_of(record)
    plan = record.plan
    if plan is None:
        summary = f"{record.id} is {record.state.value}" + (
            f": {record.cause}" if record.cause else ""
        )
    elif record.state in WAITING:
        victims = ", ".join(v.job for v in plan.victims)
        summary = f"its GPUs in {plan.region}/{plan.cluster} come free when {victims} has stopped"
        if not victims:
            summary = f"{plan.region}/{plan.cluster} was told to start it, and has not answered yet"
    else:
        summary = (
            f"{record.id} is {record.state.value} in {plan.region}/{plan.cluster}: that plan had "
            f"the lowest score of all regions ({plan.score:.3g})"
        )
        if record.over_quota:
            summary += "; it runs over its tenant's quota and may be preempted at any time"
        elastic = record.spec.elastic
        if elastic is not None:
            summary += _sizes(record.spec, plan.tasks_of(elastic.name))
            summary += f"; last change of size: {record.size_cause}" if record.size_cause else ""
        summary += _stays(placers, record, now)
    if plan is not None and plan.region in queue.reach.absent:
        summary += f"; {queue.out_of_reach()}: this is the last that was heard"
    return Explanation(
        job=record.id,
        name=record.spec.name,
        state=record.state.value,
        reason=reason.value if reason else None,
        summary=summary,
        would_help=(),
        regions=(),
        plans=(_placed_view(placers, record, plan, now),) if plan else (),
    )


def _placed_view(
    placers: Mapping[str, RegionalPlacer], record: JobRecord, plan: Plan, now: float
) -> PlanView:
    """The plan of a job that has one; its victims with what they lose, while they have not let go."""
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


def _summary(spec: JobSpec, reason: PendingReason | None, detail: str, inquiry: _Inquiry) -> str:
    wanted = gang_in_words(spec)
    more = f" ({detail})" if detail else ""
    if reason is None:
        best = inquiry.plans[0]
        place = f"{best.region}/{best.cluster}"
        victims = f", preempting {', '.join(v.job for v in best.victims)}" if best.victims else ""
        over = ", over quota and preemptible" if inquiry.over_quota and best.gpus_milli else ""
        return f"{wanted}: the best place now is {place} on {best.model or 'CPUs'}{victims}{over}"
    if inquiry.wait is not None and reason is PendingReason.INSUFFICIENT_CAPACITY:
        return f"{wanted}: there is room, but away from its data, and it waits rather than copies{more}"
    sentences = {
        PendingReason.UNKNOWN_DATASET: f"the catalogue does not know a dataset it reads{more}",
        PendingReason.EXCEEDS_MAX_QUOTA: f"{wanted} is more than its tenant may ever hold{more}",
        PendingReason.WAITING_FOR_QUOTA: (
            f"its tenant's quota is in use, and no idle GPUs are left to borrow{more}"
        ),
        PendingReason.WAITING_FOR_DATA: f"its data is not where the GPUs are{more}",
        PendingReason.NO_MATCHING_HARDWARE: f"no host in any region could take {wanted}{more}",
        PendingReason.TOPOLOGY_DOES_NOT_FIT: (
            f"{wanted} fits no part of any cluster within the topology it needs, even empty{more}"
        ),
        PendingReason.INSUFFICIENT_CAPACITY: (
            f"{wanted}: no cluster has room now, and nothing that may be preempted makes any{more}"
        ),
    }
    return sentences.get(reason, f"{reason.value}{more}")


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
    if reason in (PendingReason.TOPOLOGY_DOES_NOT_FIT, PendingReason.NO_MATCHING_HARDWARE):
        columns = [world.placers[region.region].columns for region in allowed]
        return list(too_large(queue, columns, spec)) or _of_hardware(spec, need, verdicts)
    if reason is PendingReason.UNKNOWN_DATASET:
        return ["`topmast datasets add` for each dataset named"]
    if reason is PendingReason.WAITING_FOR_DATA:
        nowhere = [n for n in spec.datasets if not queue.catalogue.datasets[n].replicas]
        return [f"`topmast datasets add {name}`: no region has it" for name in nowhere]
    if found_some or reason is None:
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


def _of_hardware(spec: JobSpec, need: float, verdicts: list[ClusterVerdict]) -> list[str]:
    """What the fleet would have to have, or the job to ask for, even if nothing else ran."""
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
