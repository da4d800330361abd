"""The cycle: candidate after candidate, one request at a time, and what arrives meanwhile."""

from __future__ import annotations

from topmast.fast.queue import facts as f
from topmast.fast.queue.backlog.blocked import (
    Anything,
    Candidate,
    QuotaFreed,
    ReservationFree,
    RoomFreed,
    TimeUp,
)
from topmast.fast.queue.backlog.placement_class import colocated_of
from topmast.fast.queue.cycle.auction import PendingDecision, Phase
from topmast.fast.queue.cycle.behind import decide_foreseen, send_commits
from topmast.fast.queue.cycle.bulk_requests import take_answers
from topmast.fast.queue.cycle.checks import CHECKS, OTHER_MODE, no_room_for_class
from topmast.fast.queue.cycle.deciding import decide, found_no_place
from topmast.fast.queue.cycle.foreseen import PER_REQUEST
from topmast.fast.queue.cycle.outright import refused_outright
from topmast.fast.queue.cycle.pipeline import STEPS, first_step
from topmast.fast.queue.cycle.requests import (
    ASK_TIMEOUT_S,
    ask_again,
    go_without,
    hear_from,
    is_coming,
    put,
)
from topmast.fast.queue.cycle.verdicts import block, block_gate, refuse
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.data.orders import order_deletion
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model import ids
from topmast.model import messages as m

ASKS_PER_WAKE = 200
"""Candidates that are tried before other events get their turn."""


def wake(queue: QueueViews, event: m.Wake) -> None:
    """Admit jobs at the end of their back-off, unblock what time unblocks, and go on."""
    for record in queue.backlog.release(queue.now):
        queue.enqueue(record)
    for job in queue.cycle.binding.patience.take_due(queue.now):
        bind_again(queue, queue.jobs.records[job])
    for deletion in queue.data.catalogue.deletions.take_due(queue.now):
        order_deletion(queue, deletion)
    _drift(queue)
    if queue.backlog.blocked.retries.is_due(queue.now):
        queue.backlog.unblock(TimeUp(queue.now))
    if queue.cycle.reach.retry(queue.now) or queue.cycle.backfill.is_due(queue.now):
        queue.backlog.unblock(Anything())
    if queue.quota_may_help():
        touched = queue.tenancy.ledger.take_touched()
        queue.backlog.unblock(QuotaFreed(touched, queue.choices_of))
    if queue.now - queue.backlog.ranking.ranked_at_s >= queue.profile.rerank_interval_s:
        queue.backlog.rerank(queue.now)
        queue.backlog.mix.settle()
    for hook in queue.hooks.on_wake:
        hook.on_wake()
    _forget(queue)
    queue.cycle.budget = ASKS_PER_WAKE
    if queue.cycle.decision is not None and queue.cycle.decision.deadline_s <= queue.now:
        _give_up_on_silent(queue, queue.cycle.decision)
    elif queue.cycle.decision is None and queue.cycle.backfill.freed:
        _offer_freed(queue)
        return
    advance(queue)


def _forget(queue: QueueViews) -> None:
    """Let leave memory what is over and too much.

    Not in the step that ended it, for its row is made after that, from its record; and not before
    hooks have told those that wait for it.
    """
    if queue.jobs.are_too_many:
        jobs, sweeps = queue.jobs.too_many(), queue.jobs.sweeps.too_many()
        queue.decide(f.JobsForgotten(tuple(jobs), tuple(sweeps)))


def bind_again(queue: QueueViews, record: JobRecord) -> None:
    """Send a job that waits somewhere else, unless regions are just being asked about it."""
    if queue.cycle.decision is not None and queue.cycle.decision.candidate.job == record.id:
        queue.cycle.binding.waits(record, queue.now)
    elif record.plan is None and not record.finished:
        place = queue.cycle.binding.again(record, queue.data.catalogue, queue.now)
        queue.decide(f.Bound(record.id, place))


def bind_astray(queue: QueueViews) -> None:
    """Send on the jobs that wait where they could never run. O(jobs)."""
    for record in [r for r in queue.jobs.records.values() if queue.cycle.binding.is_astray(r)]:
        bind_again(queue, record)


def _drift(queue: QueueViews) -> None:
    """Jobs change their rank by the service that they had, or lacked: try all jobs again."""
    due = queue.backlog.priority_timers.take_due(queue.now)
    for record in [queue.jobs.records[job] for job in due]:
        if record.plan is None:
            queue.decide(f.Promoted(record.id))
        else:
            queue.backlog.note_priority(record, queue.now)
    if due:
        queue.backlog.unblock(Anything())


def _offer_freed(queue: QueueViews) -> None:
    """Seats are no longer reserved: the fleet placer names the classes that they may help.

    No job is tried before its answer.
    """
    for region, cluster in queue.cycle.backfill.take_freed():
        queue.send(ids.FLEET_PLACER, m.CheckBlocked(region, (cluster,), freed=True))
    if not queue.cycle.backfill.is_given:
        queue.backlog.unblock(ReservationFree())


def advance(queue: QueueViews) -> None:
    """Decide about the next candidates, and send what was chosen of plans that were foreseen."""
    _advance(queue)
    if queue.cycle.foreseen.left:
        queue.cycle.bulk.used(queue.cycle.foreseen.row)
    queue.cycle.foreseen.forget()
    send_commits(queue)


def _advance(queue: QueueViews) -> None:
    """Decide about the next candidates until an answer is waited for, or the budget is spent.

    1. While regions think about a job, wait for them.
    2. All bids are in: commit a plan, ask in the next phase, or block the job.
    3. Plans that were foreseen for the next jobs are taken at once where nothing can come between.
    4. Other events get their turn after so many candidates, and when seats came free; a hook may
       let candidates wait.
    5. The best-ranked job that is not blocked is next: ask about it, or block it.
    6. No job is left: regions hold nothing for later candidates, and idle GPUs go to elastic jobs.
    """
    while True:
        decision = queue.cycle.decision
        if decision is not None and decision.awaited:
            return
        if decision is not None and queue.cycle.bulk.is_out(decision.batch):
            _take_answers(queue, decision)
            continue
        if decision is not None:
            decide(queue, decision)
            continue
        if queue.cycle.foreseen.left and decide_foreseen(queue):
            continue
        if queue.cycle.budget <= 0 or queue.cycle.backfill.freed or not queue.may_try():
            return
        candidate = queue.backlog.next()
        if candidate is None:
            _all_decided(queue)
            return
        queue.cycle.budget -= 1
        try_admit(queue, candidate)


def _take_answers(queue: QueueViews, decision: PendingDecision) -> None:
    """Regions have answered a bulk question: go on with their plans, or ask about one job alone.

    While they did others had their turn.
    """
    record = queue.jobs.records.get(decision.candidate.job)
    if record is None or queue.backlog.class_of(record.id) is None:
        queue.cycle.bulk.close()
        queue.cycle.decision = None  # it was cancelled while the regions searched
    elif take_answers(queue, decision):
        queue.cycle.budget = ASKS_PER_WAKE + -(-queue.cycle.foreseen.left // PER_REQUEST)
    else:
        put(queue, record, decision, STEPS[Phase.FREE])


def try_admit(queue: QueueViews, candidate: Candidate) -> None:
    """Ask the regions about a candidate if it passes all checks; else block its class.

    So it is if it is refused without a request.
    """
    record, job_class = queue.jobs.records[candidate.job], queue.backlog.job_class(candidate.job)
    decision = PendingDecision(candidate, queue.choices_of(job_class), colocated_of(job_class))
    decision.changes = queue.backlog.blocked.changes
    for check in CHECKS:
        verdict = check(queue, record, decision)
        if verdict is None:
            continue
        if verdict is OTHER_MODE:
            block_gate(queue, candidate)
        elif check is no_room_for_class:
            refuse(queue, candidate, verdict)
        else:
            block(queue, candidate, verdict)
        return
    step = first_step(queue, record, decision)
    bids = refused_outright(queue, record, decision) if step.phase is Phase.FREE else None
    if bids is None:
        put(queue, record, decision, step)
        return
    decision.phase, decision.bids = step.phase, bids
    found_no_place(queue, record, decision)


def _all_decided(queue: QueueViews) -> None:
    """No job is left to be asked about."""
    for region, leases in queue.cycle.prefetch.release():
        queue.send(ids.placer(region), m.DropLeases(leases=leases))
    for hook in queue.hooks.on_all_decided:
        hook.on_all_decided()


def offered(queue: QueueViews, event: m.RegionBids) -> None:
    """A region apart has answered."""
    if queue.cycle.reach.hear(event.region):
        queue.backlog.unblock(Anything())
    prefetch, region = queue.cycle.prefetch, event.region
    prefetch.lose(region, event.lost or ())
    if late := prefetch.hear(region, event.batch, event.counts or (), event.offers):
        queue.send(ids.placer(region), m.DropLeases(leases=late))
    decision = queue.cycle.decision
    if decision is None or region not in decision.awaited or decision.kind is None:
        return
    if hear_from(queue, decision, region):
        go_without(queue, decision)
        advance(queue)
    elif not is_coming(queue, decision, region):
        ask_again(queue, decision, region)


def planned(queue: QueueViews, event: m.RegionPlans) -> None:
    """A region has answered a bulk question."""
    region, reach, bulk = event.region, queue.cycle.reach, queue.cycle.bulk
    if reach.hear(region):
        queue.backlog.unblock(Anything())
    if not event.able:
        reach.find(region, columns=False)
    decision = queue.cycle.decision
    if decision is None or event.batch != decision.batch or not bulk.is_out(event.batch):
        return
    if region in decision.awaited:
        bulk.answers[region] = event
        decision.awaited.remove(region)
        advance(queue)


def fleet_offered(queue: QueueViews, event: m.FleetBids) -> None:
    """The regions of this process have answered."""
    decision = queue.cycle.decision
    if decision is None or event.batch != decision.batch:
        return
    if event.regions == tuple(decision.awaited):
        decision.awaited = []  # as where no region is apart
    else:
        heard = frozenset(event.regions)
        decision.awaited = [r for r in decision.awaited if r not in heard]
    decision.bids.update(event.offers)
    queue.cycle.foreseen.hear(event.plans)
    advance(queue)


def _give_up_on_silent(queue: QueueViews, decision: PendingDecision) -> None:
    """Regions that did not answer in time are skipped this once."""
    decision.silent += tuple(decision.awaited)
    for region in decision.awaited:
        queue.cycle.reach.miss(region, ASK_TIMEOUT_S, queue.now)
        queue.cycle.prefetch.forget(region)
    decision.awaited = []


def link_up(queue: QueueViews, event: m.LinkUp) -> None:
    """A region is back: it may have room for jobs that found none elsewhere."""
    queue.cycle.reach.find(event.region, columns=event.columns)
    queue.backlog.unblock(Anything())


def link_down(queue: QueueViews, event: m.LinkDown) -> None:
    """A region is out of reach: decide without it, and ask it no more."""
    queue.cycle.reach.lose(event.region, event.why, queue.now)
    queue.cycle.prefetch.forget(event.region)
    decision = queue.cycle.decision
    if decision is None:
        return
    decision.bids.pop(event.region, None)
    queue.cycle.bulk.answers.pop(event.region, None)
    if decision.best is not None and decision.best.region == event.region:
        decision.best = None
    if event.region in decision.awaited:
        decision.awaited.remove(event.region)
        decision.silent += (event.region,)
        advance(queue)


def capacity(queue: QueueViews, event: m.CapacityChanged) -> None:
    """A region has more room: the fleet placer names the classes that it may help."""
    queue.cycle.prefetch.spoil(event.region)
    for hook in queue.hooks.on_room:
        hook.on_room(event.region)
    if len(queue.backlog.ranking):
        queue.send(ids.FLEET_PLACER, m.CheckBlocked(event.region, event.clusters))


def out_of_service(queue: QueueViews, event: m.OutOfService) -> None:
    """Other hosts take work than before."""
    for hook in queue.hooks.on_out_of_service:
        hook.on_out_of_service(event.region, event.gpus)


def may_fit(queue: QueueViews, event: m.Unblocked) -> None:
    """Ask again about these, or about all."""
    if event.classes is None:
        queue.backlog.unblock(Anything())
    else:
        queue.backlog.unblock(RoomFreed(event.classes))
