"""How each fact changes the state. Nothing is decided here: recovery runs this alone."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET, structs

from topmast.fast.machine import Fact
from topmast.fast.queue import facts as f
from topmast.fast.queue.admitting import admitted
from topmast.fast.queue.backlog.blocked import Anything, CopyDone
from topmast.fast.queue.cycle.state import QueueState
from topmast.fast.queue.jobs.jobs import alike
from topmast.fast.queue.jobs.record import REFUSAL_DELAY_S, REFUSALS_AT_ONCE, JobRecord
from topmast.model import messages as m
from topmast.model.absent import given
from topmast.model.decided import AS_FORESEEN
from topmast.model.job import MILLI, JobSpec
from topmast.model.owners import homes_after, homes_with, moved_within, settled
from topmast.model.states import WAITING, JobState, Outcome, may_move
from topmast.model.timed_quota import KnownQuota


def _fleet(queue: QueueState, fact: f.FleetSet, event: m.ConfigureFleet) -> None:
    fleet = settled(event.fleet, queue.fleet, queue.homes)
    queue.homes = homes_after(fleet, queue.fleet, queue.homes)
    if event.base is not UNSET:
        queue.fleet_edited = True
    elif event.file is not UNSET:
        queue.fleet_file, queue.fleet_edited = event.file, False
    was_paused = bool(queue.tenancy.paused)
    queue.take_fleet(fleet)
    if was_paused:
        _note_pauses(queue)
    queue.backlog.unblock(Anything())


def _hosts_moved(queue: QueueState, fact: f.HostsMoved, event: m.HostsMoved) -> None:
    queue.homes = homes_with(queue.fleet, queue.homes, event.owners)
    queue.take_owners(moved_within(queue.fleet, event.region, event.owners))
    queue.backlog.unblock(Anything())


def _skipped(queue: QueueState, fact: f.AttemptsSkipped, event: m.SkipAttempts) -> None:
    queue.jobs.next_number, epochs = queue.jobs.believable(event)
    queue.jobs.skipped.update(epochs)


def _bound(queue: QueueState, fact: f.Bound, event: m.Message) -> None:
    record = queue.jobs.records[fact.job]
    record.bindings += 1
    if fact.place == record.bound:
        queue.cycle.binding.waits(record, queue.now)
        return
    queue.waits_no_more(record)
    record.bound = fact.place
    queue.cycle.binding.note(record, queue.now)
    queue.enqueue(record)


def _planned(queue: QueueState, fact: f.Planned, event: m.Message) -> None:
    record = queue.jobs.records[fact.job]
    plan = fact.plan
    queue.waits_no_more(record)
    record.take_plan(plan, plan.hosts, fact.epoch, fact.over_quota, fact.decided)
    if record.spec.elastic is not None:
        tasks = len(plan.seats)
        if record.tasks not in (None, tasks):
            record.resizes += 1
            record.size_cause = record.cause or UNSET
        record.tasks = tasks
    queue.book([record])


def _all_planned(queue: QueueState, fact: f.AllPlanned, event: m.Message) -> None:
    """O(their seats)."""
    columns = fact.columns(event)
    rows = slice(fact.first, fact.first + len(fact.epochs))
    jobs, plans, hosts = columns.jobs[rows], columns.plans[rows], columns.seats.hosts_each[rows]
    records = [queue.jobs.records[job] for job in jobs]
    queue.wait_no_more(jobs)
    for record, plan, on, epoch, over in zip(
        records, plans, hosts, fact.epochs, fact.over_quota, strict=True
    ):
        record.take_plan(plan, on, epoch, over, AS_FORESEEN)
    queue.book(records)


def _unplanned(queue: QueueState, fact: f.Unplanned, event: m.Message) -> None:
    record = queue.jobs.records[fact.job]
    queue.unbook(record)
    record.refusals += 1
    record.cause = f"the region refused the plan: {fact.why}"
    record.over_quota = False
    record.region = record.cluster = record.model = None
    record.hosts = ()
    # At first another region, or another place, may take it at once.
    delay_s = 0.0 if record.refusals <= REFUSALS_AT_ONCE else REFUSAL_DELAY_S
    record.not_before_s = queue.now + delay_s
    queue.enqueue(record)
    queue.backlog.unblock(Anything())  # the quota that it had taken is there for others again


def _forgiven(queue: QueueState, fact: f.AvoidHostsCleared, event: m.Message) -> None:
    record = queue.jobs.records[fact.job]
    queue.backlog.remove(record.id)
    record.avoid_hosts = ()
    queue.enqueue(record)


def _promoted(queue: QueueState, fact: f.Promoted, event: m.Message) -> None:
    record = queue.jobs.records[fact.job]
    queue.backlog.remove(record.id)
    record.uncounted_s, record.extra_gpu_s = record.held_s, 0.0
    record.promotions += 1
    queue.enqueue(record)


def _moved(queue: QueueState, fact: f.Moved, event: m.Message) -> None:
    record = queue.jobs.records[fact.job]
    _move(queue, record, fact.to)
    record.cause = alike(fact.cause)
    if fact.to is JobState.STARTING:
        record.start_s = queue.now
        if record.first_start_s is None:
            record.first_start_s = queue.now
        queue.backlog.note_priority(record, queue.now)
    elif fact.to is JobState.RUNNING:
        record.ready_s = given(record.ready_s, queue.now)
    elif fact.to in (JobState.PREEMPTING, JobState.CANCELLING):
        record.told_to_stop_s = given(record.told_to_stop_s, queue.now)
    if record.finished:
        _retire(queue, record, queue.now)


def _all_starting(queue: QueueState, fact: f.AllStarting, event: m.AttemptsStarting) -> None:
    records, now = [queue.jobs.records[job] for job in event.jobs], queue.now
    queue.jobs.tallies.move_each(records, JobState.STARTING)
    for record in records:
        record.cause, record.start_s = "", now
        if record.first_start_s is None:
            record.first_start_s = now
    if queue.backlog.priority_timers.drifts:
        for record in records:
            queue.backlog.note_priority(record, now)
    for hook in queue.hooks.on_moved:
        for record in records:
            hook.on_moved(record)


def _migrates(queue: QueueState, fact: f.Migrates, event: m.Message) -> None:
    queue.jobs.records[fact.job].moves = True


def _move(queue: QueueState, record: JobRecord, to: JobState) -> None:
    if record.state is not to:
        if not may_move(record.state, to):
            raise AssertionError(f"{record.id}: {record.state} may not become {to}")
        queue.jobs.move(record, to)
        for hook in queue.hooks.on_moved:
            hook.on_moved(record)


def _retire(queue: QueueState, record: JobRecord, finish_s: float) -> None:
    """A job is over: out of its line, and after a while out of memory."""
    queue.waits_no_more(record)
    queue.backlog.priority_timers.drop(record.id)
    queue.backlog.durations.over(record.id)
    queue.cycle.binding.forget(record.id, queue.now)
    for hook in queue.hooks.on_over:
        hook.on_over(record.id)
    queue.jobs.retire(record, finish_s)


def _cancel_wanted(queue: QueueState, fact: f.CancelWanted, event: m.Message) -> None:
    record = queue.jobs.records[fact.job]
    record.cancelling = True
    record.cause = alike(fact.by)


def _hold_set(queue: QueueState, fact: f.HoldSet, event: m.Message) -> None:
    record = queue.jobs.records[fact.job]
    waits = record.plan is None and record.state in WAITING
    if record.cause == record.hold:
        record.cause = ""  # it is over
    record.hold, record.moves = alike(fact.why) or UNSET, False
    record.suspended = (isinstance(event, m.HoldJobs) and event.stop) or UNSET
    if waits:
        queue.waits_no_more(record)
        queue.enqueue(record)
        queue.backlog.unblock(Anything())  # what it kept for itself is there for others


def _dependency_met(queue: QueueState, fact: f.DependencyMet, event: m.Message) -> None:
    record = queue.jobs.records[fact.job]
    left = {job: after for job, after in given(record.awaits, {}).items() if job != fact.on}
    if fact.on == record.spec.in_sweep:
        queue.jobs.sweeps.records[fact.on].let_go += 1
    record.awaits = left or UNSET
    if not left:
        queue.waits_no_more(record)
        queue.enqueue(record)


def _tenant_paused(queue: QueueState, fact: f.TenantPaused, event: m.Message) -> None:
    """O(jobs)."""
    if fact.why:
        queue.tenancy.paused[fact.tenant] = fact.why
    else:
        queue.tenancy.paused.pop(fact.tenant, None)
    _note_pauses(queue)
    queue.backlog.unblock(Anything())  # what those kept for themselves is there for others


def _window_set(queue: QueueState, fact: f.WindowSet, event: m.SetWindow) -> None:
    """O(jobs)."""
    queue.windows.set(structs.replace(event.window, name=fact.name))
    queue.stays_changed()


def _window_begun(queue: QueueState, fact: f.WindowBegun, event: m.Message) -> None:
    queue.windows.known[fact.name].begun = True


def _window_over(queue: QueueState, fact: f.WindowOver, event: m.Message) -> None:
    """O(jobs)."""
    queue.windows.end(fact.name)
    queue.stays_changed()
    queue.backlog.unblock(Anything())


def _budget_noted(queue: QueueState, fact: f.BudgetNoted, event: m.Message) -> None:
    queue.tenancy.budgets_noted[fact.tenant] = (fact.month, fact.percent)


def _quota_set(queue: QueueState, fact: f.QuotaSet, event: m.SetQuota) -> None:
    before = queue.tenancy.timed.get(fact.tenant)
    queue.tenancy.timed[fact.tenant] = KnownQuota(event.timed)
    if before is not None and before.begun:
        _quotas_changed(queue)


def _quota_begun(queue: QueueState, fact: f.QuotaBegun, event: m.Message) -> None:
    queue.tenancy.timed[fact.tenant].begun = True
    _quotas_changed(queue)


def _quota_over(queue: QueueState, fact: f.QuotaOver, event: m.Message) -> None:
    if queue.tenancy.timed.pop(fact.tenant).begun:
        _quotas_changed(queue)


def _quotas_changed(queue: QueueState) -> None:
    """O(tenants x models + holdings x depth)."""
    queue.tenancy.configure(queue.fleet)
    queue.backlog.unblock(Anything())


def _note_pauses(queue: QueueState) -> None:
    for record in queue.jobs.records.values():
        if not record.finished:
            queue.note_pause(record)


def _requeued(queue: QueueState, fact: f.Requeued, event: m.Message) -> None:
    """The one way back from a terminal state; the attempts stay counted, the failures do not."""
    record = queue.jobs.records[fact.job]
    if record.finished:
        queue.jobs.revive(record)
        queue.backlog.durations.submitted(record)
        queue.cycle.binding.note(record, queue.now)
        record.cancelling = False
    else:
        queue.waits_no_more(record)
    queue.jobs.move(record, JobState.PENDING)
    record.cause = fact.cause
    record.restarts = record.host_losses = 0
    record.not_before_s, record.avoid_hosts = 0.0, ()
    record.paused = queue.tenancy.paused_by(record.spec.tenant) or UNSET
    queue.enqueue(record)


def _edited(queue: QueueState, fact: f.Edited, event: m.EditJobs) -> None:
    record = queue.jobs.records[fact.job]
    changed = event.changes.of(given(record.next_spec, record.spec))
    if record.plan is None and record.state in WAITING:
        _take_spec(queue, record, changed)
        return
    if event.changes.duration_s is not UNSET:
        spec = structs.replace(record.spec, duration_s=event.changes.duration_s)
        queue.jobs.change(record, spec)
        for hook in queue.hooks.on_expected:
            hook.on_expected(record)
    if record.next_spec is not UNSET or event.changes.others():
        record.next_spec = changed


def _edit_taken(queue: QueueState, fact: f.EditTaken, event: m.Message) -> None:
    record = queue.jobs.records[fact.job]
    changed = given(record.next_spec, record.spec)
    record.next_spec = UNSET
    _take_spec(queue, record, changed)


def _take_spec(queue: QueueState, record: JobRecord, spec: JobSpec) -> None:
    """A waiting job asks for something else."""
    queue.waits_no_more(record)
    queue.jobs.change(record, spec)
    queue.enqueue(record)
    queue.backlog.unblock(Anything())


def _ended(queue: QueueState, fact: f.Ended, event: m.AttemptEnded) -> None:
    record = queue.jobs.records[fact.job]
    gpus = record.plan.gpus_milli / MILLI if record.plan else 0.0
    if record.start_s is not None:
        held_s = event.held_s
        record.held_s += held_s
        record.kept_s += event.kept_s
        worked_s = event.kept_s * record.spec.speed_on(record.model)
        if record.plan is not None and record.spec.elastic is not None:
            worked_s *= record.speed_of_size(record.plan, queue.profile.elastic.efficiency)
            record.extra_gpu_s += held_s * (gpus - record.spec.gpus_milli() / MILLI)
        record.worked_s += worked_s
        ledger, tenant = queue.tenancy.ledger, record.spec.tenant
        ledger.charge(tenant, held_s * gpus, queue.now, queue.profile.rank)
    queue.unbook(record)
    end_s = queue.now
    if record.start_s is not None and record.start_s < event.end_s < queue.now:
        end_s = event.end_s  # before this process heard; another clock may say any time
    record.start_s, record.stopped_s = None, end_s
    record.ready_s = record.told_to_stop_s = UNSET
    if event.step is not None:
        record.step = event.step
    if event.metrics:
        record.metrics = event.metrics
    record.moves = record.moves and event.outcome is Outcome.PREEMPTED
    _count(record, fact, event)
    record.cause = fact.cause
    record.not_before_s = fact.not_before_s
    record.avoid_hosts = fact.avoid_hosts
    _move(queue, record, fact.to)
    if event.outcome is Outcome.SUCCEEDED:
        queue.backlog.durations.learn(record)
        if queue.backlog.attained_service.learn(record, gpus):
            queue.backlog.order_changed(queue.now)
    if record.finished:
        _retire(queue, record, end_s)
    else:
        record.over_quota = False
        queue.enqueue(record)


def _count(record: JobRecord, fact: f.Ended, event: m.AttemptEnded) -> None:
    """How its attempts ended so far."""
    if event.outcome is Outcome.PREEMPTED and record.state not in WAITING:
        record.preemptions += 1
        record.migrations += record.moves
        if event.evicted is True:
            record.evictions = record.evictions_after(event.held_s)
    elif event.outcome is Outcome.FAILED:
        record.restarts += fact.to is JobState.RECOVERING
    elif event.outcome in (Outcome.HOST_LOST, Outcome.LAUNCH_FAILED):
        record.host_losses += 1


def _forgotten(queue: QueueState, fact: f.JobsForgotten, event: m.Message) -> None:
    queue.jobs.forget(fact.jobs)
    queue.jobs.sweeps.forget(fact.sweeps)


def _checkpointed(queue: QueueState, fact: f.Checkpointed, event: m.Message) -> None:
    queue.jobs.records[fact.job].step = fact.step


def _resumed(queue: QueueState, fact: f.ResumedFrom, event: m.Message) -> None:
    queue.jobs.records[fact.job].resumed_from_step = fact.step


def _packed(queue: QueueState, fact: f.PackedWith, event: m.Message) -> None:
    """Told to people; and rounds count what two had together."""
    queue.jobs.records[fact.job].colocated_with = fact.colocated_with or UNSET


def _tree(queue: QueueState, fact: f.TreeTaken, event: m.TreeGrown) -> None:
    queue.backlog.durations.take_tree(event.tree)


def _dataset(queue: QueueState, fact: f.DatasetAdded, event: m.AddDataset) -> None:
    queue.data.catalogue.add(event.dataset)
    queue.backlog.unblock(Anything())


def _copy_begun(queue: QueueState, fact: f.CopyBegun, event: m.Message) -> None:
    queue.data.catalogue.begin(fact.copy)
    queue.data.next_copy += 1
    if fact.copy.cause in queue.jobs.records:
        queue.data.fetches.note(fact.copy.cause, queue.now)


def _copy_ready(queue: QueueState, fact: f.CopyReady, event: m.Message) -> None:
    queue.data.catalogue.complete(fact.copy.id)
    queue.backlog.unblock(CopyDone(fact.copy.dataset))


def _copy_gone(queue: QueueState, fact: f.CopyGone, event: m.Message) -> None:
    queue.data.catalogue.abandon(fact.copy.id, queue.now)
    queue.backlog.unblock(Anything())


def _dropped(queue: QueueState, fact: f.ReplicaDropped, event: m.Message) -> None:
    queue.data.catalogue.drop(fact.dataset, fact.region)
    queue.backlog.unblock(Anything())


def _removed(queue: QueueState, fact: f.DatasetRemoved, event: m.Message) -> None:
    """The fleet forgets it too, or a start without a fleet file would enter it again."""
    queue.data.catalogue.remove(fact.dataset)
    kept = tuple(spec for spec in queue.fleet.datasets if spec.name != fact.dataset)
    queue.fleet = structs.replace(queue.fleet, datasets=kept)
    queue.backlog.unblock(Anything())


def _deletion_begun(queue: QueueState, fact: f.DeletionBegun, event: m.Message) -> None:
    queue.data.catalogue.begin_deletion(fact.deletion)


def _deletion_done(queue: QueueState, fact: f.DeletionDone, event: m.Message) -> None:
    queue.data.catalogue.end_deletion(fact.deletion)
    queue.backlog.unblock(Anything())


APPLIERS: dict[type[Fact], Callable[..., None]] = {
    f.FleetSet: _fleet,
    f.HostsMoved: _hosts_moved,
    f.AttemptsSkipped: _skipped,
    f.Admitted: admitted,
    f.Bound: _bound,
    f.Planned: _planned,
    f.AllPlanned: _all_planned,
    f.AllStarting: _all_starting,
    f.Unplanned: _unplanned,
    f.AvoidHostsCleared: _forgiven,
    f.Promoted: _promoted,
    f.Moved: _moved,
    f.Migrates: _migrates,
    f.CancelWanted: _cancel_wanted,
    f.HoldSet: _hold_set,
    f.TenantPaused: _tenant_paused,
    f.BudgetNoted: _budget_noted,
    f.QuotaSet: _quota_set,
    f.QuotaBegun: _quota_begun,
    f.QuotaOver: _quota_over,
    f.WindowSet: _window_set,
    f.WindowBegun: _window_begun,
    f.WindowOver: _window_over,
    f.Requeued: _requeued,
    f.DependencyMet: _dependency_met,
    f.Edited: _edited,
    f.EditTaken: _edit_taken,
    f.Ended: _ended,
    f.JobsForgotten: _forgotten,
    f.Checkpointed: _checkpointed,
    f.ResumedFrom: _resumed,
    f.PackedWith: _packed,
    f.TreeTaken: _tree,
    f.DatasetAdded: _dataset,
    f.CopyBegun: _copy_begun,
    f.CopyReady: _copy_ready,
    f.CopyGone: _copy_gone,
    f.ReplicaDropped: _dropped,
    f.DatasetRemoved: _removed,
    f.DeletionBegun: _deletion_begun,
    f.DeletionDone: _deletion_done,
}
"""Every fact of the queue."""
