"""Candidates for which there are surely too few GPUs are refused without a request.

Where many jobs wait, most requests are in vain: each time that GPUs come free, every class is tried
again. Once a job of a class was refused for want of GPUs, the regions' reasons are known, and
another is refused at once if all that is free, or may come free for it, is less than it needs.

The refusal is what the regions would say: nothing may be under way in this process that makes room.
While attempts stop, candidates wait for the answers of regions: the order in which they are tried
decides what each of them finds.
"""

from __future__ import annotations

from itertools import chain

from topmast.fast.queue.backlog.placement_class import Refused
from topmast.fast.queue.cycle.auction import PendingDecision
from topmast.fast.queue.cycle.state import Around
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model import messages as m

STARTS: frozenset[type[m.Message]] = frozenset(
    (
        m.AttemptStarting, m.AttemptsStarting, m.LaunchGang, m.LaunchGangs, m.StartGang,
        m.StartGangs, m.TaskStarted, m.AttemptRunning,
    )
)  # fmt: skip
"""Messages from which no room follows: attempts start on GPUs that are theirs already."""


def note_refusal(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> None:
    """Regions refused a job: remember why, if others of its class are refused alike. O(regions)."""
    candidate, spec = decision.candidate, record.spec
    job_class = queue.backlog.job_class(record.id)
    placement = job_class.placement[candidate.over_quota]
    if (
        queue.around is None
        or spec.datasets
        or spec.elastic is not None
        or record.avoid_hosts
        or record.bound is not None
        or job_class.grant is not None
        or job_class.stay is not None
    ):
        return
    reasons = {region: bid.reason for region, bid in decision.bids.items()}
    known = placement.refused_for(queue.fleet, decision.choices)
    if known is None or known.reasons != reasons:
        need_milli = queue.tenancy.entitlements.fewest_milli(spec, decision.choices)
        placement.refused[decision.choices] = Refused(
            queue.fleet, decision.batch, need_milli, reasons
        )


def refused_outright(
    queue: QueueViews, record: JobRecord, decision: PendingDecision
) -> dict[str, m.Bid] | None:
    """The bids of all regions without a plan, if there are surely too few GPUs; else None.

    O(messages under way + regions), and what `RunningJobs.order` takes.
    """
    around, cycle, candidate = queue.around, queue.cycle, decision.candidate
    if around is None or record.moves or not queue.is_without_data(decision.costs):
        return None
    placement = queue.backlog.job_class(record.id).placement[candidate.over_quota]
    known = placement.refused_for(queue.fleet, decision.choices)
    if (
        known is None
        or cycle.reach.apart
        or cycle.reach.absent
        or cycle.backfill.reservation is not None
        or cycle.backfill.may_reserve(record, queue.now)
        or queue.windows.known
    ):
        return None
    promised = _promised_milli(queue, around)
    if promised is None:
        return None
    running = queue.backlog.running
    order, place = None, 0
    if queue.preemption.by_rank:
        order = queue.running_order()
        place = order.place_of(candidate.key[:-1])
    for region in decision.regions:
        room_milli = around.free_milli(region)
        if room_milli is None:
            return None
        room_milli -= promised.get(region, 0)
        if order is not None:
            room_milli += running.gain_milli(order, place, region)
        if room_milli >= known.need_milli:
            return None
    stops = order is not None
    if not around.refused_again(placement.number, decision.choices, known.batch, stops=stops):
        return None
    again_s = None
    if order is not None:
        around.victims_weighed()
        again_s = order.next_old_enough_s(place, queue.now)
    return {r: m.Bid(record.id, None, known.reasons.get(r), again_s) for r in decision.regions}


def _promised_milli(queue: QueueViews, around: Around) -> dict[str, int] | None:
    """GPUs that commits under way take, by region; None: what is under way may make room."""
    promised: dict[str, int] = {}
    chosen = queue.cycle.foreseen.chosen
    plans = [] if chosen is None else [chosen.plans.plans[row] for row in chosen.rows]
    for message in chain(queue.about_to_send(), around.under_way()):
        if isinstance(message, m.CommitPlan):
            plans.append(message.plan)
        elif isinstance(message, m.CommitPlans):
            plans += message.plans.plans
        elif type(message) not in STARTS:
            return None
    for plan in plans:
        if plan.victims:
            return None
        promised[plan.region] = promised.get(plan.region, 0) + plan.gpus_milli
    return promised
