"""The summary of an explanation: one plain sentence for each reason and each decision."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from topmast.fast.queue import GlobalQueue, JobRecord, Verdict
from topmast.model.decided import joined, why
from topmast.model.job import JobSpec
from topmast.model.plan import Binding, Plan, Reservation
from topmast.model.reason import PendingReason
from topmast.model.states import WAITING, JobState
from topmast.service.foresight import Foreseen
from topmast.service.warnings import engines_for, gang_in_words, nowhere, residence

HOSTS_SHOWN = 4
BESIDES = "; besides, "
"""Between the parts of a summary, each of which may end with words of people."""


class Scene(Struct, frozen=True):
    """What a sentence about a waiting job is about."""

    spec: JobSpec
    foreseen: Foreseen | None = None
    over_quota: bool = False
    """The plan is beyond the tenant's quota."""
    stops: bool = False
    """The queue looked for jobs to stop."""
    may_borrow: bool = False
    """The job may use idle GPUs beyond its tenant's quota."""
    bound: Binding | None = None
    """The only place that the job may have."""
    suspended: bool = False
    """What holds the job stopped it, too."""
    engine: str = ""
    """What the job needs of an engine that not all can do, in words."""
    engines: bool = True
    """There is a cluster with an engine that can do it."""
    residence: tuple[str, ...] | None = None
    """The only regions in which its datasets may be, if they may not be anywhere."""


_ASIDE = {
    PendingReason.HELD: "it is released: ",
    PendingReason.TENANT_PAUSED: "its tenant is resumed: ",
    PendingReason.WAITING_FOR_JOBS: "",
}
"""What jobs wait for that are in no order; the detail follows."""


def waiting(scene: Scene, reason: PendingReason | None, detail: str) -> str:
    """Why a job waits, or where it would start."""
    seen = scene.foreseen
    if reason is None:
        assert seen is not None
        return _starts(scene, seen)
    wanted = gang_in_words(scene.spec)
    more = f" ({detail})" if detail else ""
    if reason is PendingReason.HELD and scene.suspended:
        return f"the job waits until it is resumed: {detail}"
    if reason in _ASIDE:
        return f"the job waits until {_ASIDE[reason]}{detail}"
    match reason:
        case PendingReason.UNKNOWN_DATASET:
            what = "datasets" if ", " in detail else "a dataset"
            return f"the job reads {what} that the catalogue does not have: {detail}"
        case PendingReason.EXCEEDS_MAX_QUOTA:
            fit = "one has to lie within its quota, or within what it may borrow"
            return f"no job of tenant {scene.spec.tenant} may hold {wanted}: {fit}{more}"
        case PendingReason.WAITING_FOR_QUOTA:
            idle = "no idle GPUs are left that it may borrow"
            also = idle if scene.may_borrow else "the job may not borrow GPUs"
            return f"{wanted} must wait for quota: {detail}, and {also}"
        case PendingReason.WAITING_FOR_DATA:
            return f"the job waits for its data: {detail}"
        case PendingReason.NO_MATCHING_HARDWARE | PendingReason.TOPOLOGY_DOES_NOT_FIT:
            return _nowhere(scene, reason, wanted)
        case PendingReason.INSUFFICIENT_CAPACITY:
            return _no_room(scene, detail)
        case PendingReason.PENDING_EVALUATION:
            return detail or "the queue has not looked at the job yet"
    return f"{reason.value}{more}"


def waiting_for_all(
    scene: Scene, reasons: Sequence[PendingReason], details: Sequence[str], more: str
) -> str:
    """All that a job waits for, or where it would start; and what more is to be said."""
    each = [waiting(scene, *one) for one in zip(reasons, details, strict=True)]
    each = each or [waiting(scene, None, "")]
    return BESIDES.join([*each, more] if more else each)


def _nowhere(scene: Scene, reason: PendingReason, wanted: str) -> str:
    """What there is too little of, whatever ran; engines that cannot run the job do not count."""
    if not scene.engines:
        return f"the job needs an engine that {scene.engine}, and no cluster has one"
    several = scene.spec.tasks > 1
    of = f" of an engine that {scene.engine}" if scene.engine else ""
    if scene.residence is not None:
        if not scene.residence:
            return "no region may have all datasets of the job"
        of += f" in {joined(scene.residence)}, where alone its datasets may be"
    if reason is PendingReason.NO_MATCHING_HARDWARE:
        some = "one task of " if several else ""
        of += "," if scene.residence else ""
        return f"no host{of} could run {some}{wanted}, even if it were empty"
    level = scene.spec.topology.required
    within, fits = "cluster" if level is None else level.name.lower(), "fit" if several else "fits"
    return f"{wanted} {fits} into no {within}{of}, even if it were empty"


def _starts(scene: Scene, seen: Foreseen) -> str:
    """Where a job would start, and what decides that."""
    plan, decided = seen.plan, seen.decided
    assert plan is not None
    assert decided is not None
    wanted = gang_in_words(scene.spec)
    text = f"{wanted} would start now in {plan.region}/{plan.cluster} on {plan.model or 'CPUs'}"
    if scene.over_quota and plan.gpus_milli:
        text += ", over quota and preemptible"
    return f"{text}: {why(decided, plan)}"


def _no_room(scene: Scene, detail: str) -> str:
    wanted, seen, more = gang_in_words(scene.spec), scene.foreseen, f": {detail}" if detail else ""
    if seen is not None and seen.plan is not None:
        place = f"{seen.plan.region}/{seen.plan.cluster}"
        again = f": {detail}" if detail else " until the queue asks again"
        return f"{wanted} would fit into {place} now, but the job waits{again}"
    where = "no cluster has"
    if scene.bound is not None:
        where = f"{_place(scene.bound)}, where the job was sent, does not have"
    text = f"{where} room for {wanted} now"
    if scene.stops:
        text += ", and stopping the jobs that it may stop would not make enough"
    return text + more


def _place(place: Binding) -> str:
    return place.region if place.cluster is None else f"{place.region}/{place.cluster}"


def detail_of(queue: GlobalQueue, spec: JobSpec, verdict: Verdict) -> str:
    """The detail of a verdict, in few words where all regions have the same."""
    names = nowhere(queue, spec) if verdict.reason is PendingReason.WAITING_FOR_DATA else []
    return f"no region has the files of {', '.join(names)}" if names else verdict.detail


_LEAVING = (JobState.PREEMPTING, JobState.CANCELLING)
"""Of a job that stops, the cause tells more than why it was placed there."""
_SCORE = re.compile(r" \((score )?-?[0-9.e+-]+\)|, score -?[0-9.e+-]+")


def standing(queue: GlobalQueue, record: JobRecord) -> str:
    """Why a job stands where it stands, as far as the queue knows without a search.

    For a row that has the job's id, state and place besides; scores are on its own page.
    """
    plan = record.plan
    if plan is None and record.state not in WAITING:
        return record.cause
    if record.state in _LEAVING and record.cause:
        return record.cause
    if plan is not None and (plan.victims or record.state not in WAITING):
        has_place = record.state not in WAITING
        reason = _SCORE.sub("", why(record.decided, plan, past=has_place)) if record.decided else ""
        if record.over_quota and has_place:
            reason += "; over its tenant's quota: it may be preempted at any time"
        return reason.removeprefix("; ")
    if plan is not None:
        return placed(record)
    verdict = queue.verdict_on(record)
    if verdict is None:
        return "the queue has not looked at the job yet"
    may_borrow = bool(queue.tenancy.choices(record.spec, True))
    engine, engines = engines_for(queue, record.spec)
    scene = Scene(
        record.spec, may_borrow=may_borrow, bound=record.bound,
        suspended=record.suspended is True, engine=engine, engines=engines,
        residence=residence(queue, record.spec),
    )  # fmt: skip
    return waiting(scene, verdict.reason, detail_of(queue, record.spec, verdict))


def placed(record: JobRecord) -> str:
    """Where a job with a plan is, and what decided that; of one without, what became of it."""
    plan = record.plan
    if plan is None:
        return f"{record.id} is {record.state.value}" + (
            f": {record.cause}" if record.cause else ""
        )
    place = f"{plan.region}/{plan.cluster}"
    has_place = record.state not in WAITING
    reason = f": {why(record.decided, plan, past=has_place)}" if record.decided else ""
    if record.state in _LEAVING and record.cause:
        return f"{record.id} is {record.state.value} in {place}: {record.cause}"
    if has_place:
        text = f"{record.id} is {record.state.value} in {place}{reason}"
        if record.over_quota:
            text += "; it runs over its tenant's quota and may be preempted at any time"
        return text
    if plan.victims:
        return f"{record.id} starts in {place} when {_named(plan)} stopped{reason}"
    return f"{place} was told to start {record.id} and has not answered yet{reason}"


def _named(plan: Plan) -> str:
    jobs = [victim.job for victim in plan.victims]
    return f"{joined(jobs)} {'has' if len(jobs) == 1 else 'have'}"


def kept(reservation: Reservation) -> str:
    """What is kept for a job."""
    hosts = tuple(dict.fromkeys(seat.host for seat in reservation.seats))
    shown = ", ".join(hosts[:HOSTS_SHOWN]) + (", ..." if len(hosts) > HOSTS_SHOWN else "")
    place = f"{reservation.region}/{reservation.cluster}"
    return (
        f"; room is kept for it in {place} ({shown}): "
        "another job starts there only if it is expected to end in time"
    )


def kept_for_others(record: JobRecord, places: Sequence[Plan]) -> str:
    """The places that are kept for jobs that move, with GPUs that this job could use."""
    listed = {a.model for g in record.spec.groups for a in g.resources.accelerators}
    text = ""
    for plan in places:
        if plan.job != record.id and (None in listed or plan.model in listed):
            hosts = ", ".join(plan.hosts[:HOSTS_SHOWN])
            text += f"; GPUs on {hosts} are kept for {plan.job}, which is moving there"
    return text


def refused(record: JobRecord) -> str:
    """How often a region refused its plan."""
    if not record.refusals:
        return ""
    times = "once" if record.refusals == 1 else f"{record.refusals} times"
    return f"; a plan for it was refused at commit {times}, and the queue asks again"
