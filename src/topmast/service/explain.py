"""Why a job stands where it stands, and what would change that."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import Struct

from topmast.fast.placement.machine import RegionalPlacer
from topmast.fast.queue.auction import no_region
from topmast.fast.queue.catalogue import DataCost
from topmast.fast.queue.machine import GlobalQueue
from topmast.fast.queue.record import JobRecord
from topmast.model.job import MILLI, JobSpec
from topmast.model.plan import Plan, Reservation
from topmast.model.reason import ClusterVerdict, PendingReason, Rejection
from topmast.model.states import WAITING, HostState
from topmast.model.units import format_bytes, format_duration
from topmast.model.views import Explanation, PlanView, RegionVerdict

PLANS_SHOWN = 5
HOSTS_SHOWN = 4


class _Inquiry(Struct):
    """What asking every region about a job brought."""

    over_quota: bool
    regions: list[RegionVerdict]
    plans: list[Plan]
    costs: dict[str, DataCost]


def explain_job(
    queue: GlobalQueue, placers: Mapping[str, RegionalPlacer], record: JobRecord, now: float
) -> Explanation:
    """Explain a job of the queue; reads the machines, changes nothing."""
    if record.state not in WAITING or record.plan is not None:
        return _explain_placed(queue, record, _stays(placers, record, now))
    inquiry = _inquire(queue, placers, record.spec, record, now)
    reason, detail = queue.reason_of(record)
    if reason is PendingReason.PENDING_EVALUATION:
        reason, detail = _judge(queue, record.spec, inquiry)
    return _explanation(queue, record.spec, inquiry, reason, detail, record)


def explain_spec(
    queue: GlobalQueue,
    placers: Mapping[str, RegionalPlacer],
    spec: JobSpec,
    now: float,
    warnings: tuple[str, ...] = (),
) -> Explanation:
    """What would become of a job if it were submitted now."""
    inquiry = _inquire(queue, placers, spec, None, now)
    reason, detail = _judge(queue, spec, inquiry)
    return _explanation(queue, spec, inquiry, reason, detail, None, warnings)


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
    choices = queue.choices(spec, over_quota) or tuple(range(64))
    costs = {} if queue.catalogue.unknown(spec.datasets) else queue.data_costs(spec)
    job, avoid_hosts = ("", ()) if record is None else (record.id, record.avoid_hosts)
    held = queue.held_from(spec, record, over_quota)
    regions, plans = [], []
    for name in sorted({*placers, *queue.reach.apart}):
        absent = _absent(queue, placers, name)
        if absent is not None:
            regions.append(RegionVerdict(name, False, absent, 0, 0.0, ()))
            continue
        cost = costs.get(name, DataCost())
        ask = queue.ask_for(
            spec, name, over_quota, choices, cost,
            preempt=False, job=job, avoid_hosts=avoid_hosts, held=held,
        )  # fmt: skip
        answers = placers[name].verdicts(ask, now)
        barred = f"{cost.barred} ({cost.detail})" if cost.barred else None
        if not barred:
            plans += [plan for _, plan in answers if plan is not None]
        verdicts = tuple(verdict for verdict, _ in answers)
        regions.append(RegionVerdict(name, True, barred, cost.bytes, cost.seconds, verdicts))
    plans.sort(key=lambda p: (bool(p.victims), p.score, p.region, p.cluster))
    return _Inquiry(over_quota, regions, plans, costs)


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
        best = inquiry.plans[0]
        if inquiry.costs[best.region].missing:
            return PendingReason.WAITING_FOR_DATA, f"would be copied to {best.region}"
        return None, ""
    if inquiry.costs and all(cost.barred for cost in inquiry.costs.values()):
        reason = no_region(inquiry.costs.values())
        return reason, queue.out_of_reach() or "no region may or can hold its data"
    verdicts = [v for region in inquiry.regions for v in region.clusters]
    if queue.reach.absent or any(v.ever for v in verdicts):
        return PendingReason.INSUFFICIENT_CAPACITY, queue.out_of_reach()
    if any(v.largest_gpus for v in verdicts):
        return PendingReason.TOPOLOGY_DOES_NOT_FIT, ""
    return PendingReason.NO_MATCHING_HARDWARE, ""


def _explanation(
    queue: GlobalQueue,
    spec: JobSpec,
    inquiry: _Inquiry,
    reason: PendingReason | None,
    detail: str,
    record: JobRecord | None,
    warnings: tuple[str, ...] = (),
) -> Explanation:
    verdicts = [v for region in inquiry.regions for v in region.clusters]
    kept = queue.backfill.reservation
    kept = kept if kept is not None and record is not None and kept.job == record.id else None
    return Explanation(
        job=record.id if record else None,
        name=spec.name,
        state=record.state.value if record else "NOT SUBMITTED",
        reason=reason.value if reason else None,
        summary=_summary(spec, reason, detail, inquiry) + (_kept(kept) if kept else ""),
        would_help=_would_help(queue, spec, reason, verdicts, inquiry),
        regions=tuple(inquiry.regions),
        plans=tuple(plan_view(p, inquiry.over_quota) for p in inquiry.plans[:PLANS_SHOWN]),
        warnings=warnings,
        expected_start_s=kept.from_s if kept else None,
        basis="when those who hold the GPUs kept for it are expected to end" if kept else "",
    )


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


def _explain_placed(queue: GlobalQueue, record: JobRecord, stays: str) -> Explanation:
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
        summary += stays
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
        plans=(plan_view(plan, record.over_quota),) if plan else (),
    )


def plan_view(plan: Plan, over_quota: bool) -> PlanView:
    """A plan as people see it."""
    return PlanView(
        region=plan.region,
        cluster=plan.cluster,
        gpu_model=plan.model,
        hosts=plan.hosts,
        level=plan.level.name.lower(),
        score=plan.score,
        terms=plan.terms,
        victims=tuple({"job": v.job, "lost_gpu_s": v.lost_gpu_s} for v in plan.victims),
        over_quota=over_quota,
        data_bytes=plan.data_bytes,
        data_s=plan.data_s,
    )


def _wanted(spec: JobSpec) -> str:
    """The gang in words: 2 tasks with 8 H100 each."""
    first = spec.groups[0]
    listed = first.resources.accelerators
    models = " or ".join(a.model or "any model" for a in listed)
    each = f"{listed[0].gpus_milli / MILLI:g} {models}" if listed else "no GPU"
    tasks = "1 task" if spec.tasks == 1 else f"{spec.tasks} tasks"
    return f"{tasks} with {each} each" if spec.tasks > 1 else f"{tasks} with {each}"


def _summary(spec: JobSpec, reason: PendingReason | None, detail: str, inquiry: _Inquiry) -> str:
    wanted = _wanted(spec)
    more = f" ({detail})" if detail else ""
    if reason is None:
        best = inquiry.plans[0]
        place = f"{best.region}/{best.cluster}"
        victims = f", preempting {', '.join(v.job for v in best.victims)}" if best.victims else ""
        over = ", over quota and preemptible" if inquiry.over_quota and best.gpus_milli else ""
        return f"{wanted}: the best place now is {place} on {best.model or 'CPUs'}{victims}{over}"
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


def _out_of_service(verdict: ClusterVerdict) -> int:
    """Hosts of a cluster that might take the job, were they not cordoned, draining or down."""
    return sum(c.count for c in verdict.rejections if c.reason is Rejection.HOST_UNAVAILABLE)


def _would_help(
    queue: GlobalQueue,
    spec: JobSpec,
    reason: PendingReason | None,
    verdicts: list[ClusterVerdict],
    inquiry: _Inquiry,
) -> tuple[str, ...]:
    """What would have to change for the job to start, most practical first."""
    need = spec.gpus_milli() / MILLI
    if reason in (PendingReason.TOPOLOGY_DOES_NOT_FIT, PendingReason.NO_MATCHING_HARDWARE):
        largest = max(verdicts, key=lambda v: v.largest_gpus, default=None)
        if largest is None or not largest.largest_gpus:
            return ("hosts with the GPU model and count that one task asks for",)
        level = spec.topology.required
        within = f"one {level.name.lower()}" if level is not None else "one cluster"
        return (
            f"a gang of at most {largest.largest_gpus:g} GPUs: the most that fits in {within} "
            f"(in {largest.cluster})",
            f"a {within[4:]} with at least {need:g} such GPUs",
        )
    if reason in (PendingReason.WAITING_FOR_QUOTA, PendingReason.EXCEEDS_MAX_QUOTA):
        listed = spec.groups[0].resources.accelerators
        model = listed[0].model or "GPU" if listed else "GPU"
        return (f"{need:g} {model} more quota for tenant {spec.tenant}", "idle GPUs to borrow")
    if reason is PendingReason.INSUFFICIENT_CAPACITY:
        usable = [v for v in verdicts if v.ever]
        out = {v.cluster: _out_of_service(v) for v in usable}
        young = sum(
            c.count for v in usable for c in v.rejections if c.reason is Rejection.VICTIMS_TOO_YOUNG
        )
        patience = format_duration(queue.profile.min_runtime_s)
        wait = (f"patience: {young} running jobs may be preempted once they are {patience} old",)
        return (
            (wait if young else ())
            + tuple(
                f"{hosts} hosts of {cluster} back in service (see `topmast hosts`)"
                for cluster, hosts in out.items()
                if hosts
            )
            + tuple(
                f"more free GPUs in {v.cluster}: {v.free_gpus:g} of {v.total_gpus:g} are free, "
                f"{need:g} are needed close together"
                for v in sorted(usable, key=lambda v: (-v.free_gpus, v.cluster))[:3]
            )
        )
    if reason is PendingReason.UNKNOWN_DATASET:
        return ("`topmast datasets add` for each dataset named",)
    if reason is PendingReason.WAITING_FOR_DATA:
        nowhere = [n for n in spec.datasets if not queue.catalogue.datasets[n].replicas]
        if nowhere:
            return tuple(f"`topmast datasets add {name}`: no region has it" for name in nowhere)
        return tuple(
            f"the copy of {format_bytes(cost.bytes)} to {region}: about {format_duration(cost.seconds)}"
            for region, cost in inquiry.costs.items()
            if cost.missing and not cost.barred
        )
    return ()
