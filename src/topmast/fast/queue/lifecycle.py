"""The life of a job: admitted, news of its attempts, and its way after one has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topmast.fast.machine import Fact
from topmast.fast.queue import facts as f
from topmast.fast.queue.cycle.requests import release_place
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.jobs.dependencies import fault_of
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.absent import given
from topmast.model.errors import Conflict, InvalidInput, TopmastError
from topmast.model.expansion import jobs_of, size_of
from topmast.model.states import HOPELESS, JobState, Outcome, may_move

HOPELESS_S = 5.0
"""A script that misses a command so soon misses it every time."""
HASTY_S = 120.0
"""A job that loses host after host so soon may kill what runs it."""
STARTABLE = tuple(state for state in JobState if may_move(state, JobState.STARTING))
AVOIDED = 16
"""At most so many hosts are avoided by the next attempt."""


def submit(queue: QueueViews, event: m.SubmitJobs) -> tuple[str, ...] | TopmastError:
    """Admit jobs, all or none; a repetition is answered as the first time."""
    known = queue.jobs.keys.get(event.key) if event.key else None
    if known is not None:
        if known.digest != event.digest:
            return Conflict(
                "this Idempotency-Key was used for another submission: give this one another key"
            )
        return _ids(known.first_number, known.count)
    if given(event.known_tenants_only, False):  # one may have left since the request was read
        known_now = queue.tenancy.ledger.tenants
        unknown = [spec.tenant for spec in event.jobs if spec.tenant not in known_now]
        if unknown:
            return InvalidInput(f"unknown tenant '{unknown[0]}'", field="tenant")
    fault = fault_of(event.jobs, queue.jobs, given(event.ended, {}))
    if fault is not None:
        return fault
    first = queue.jobs.next_number
    jobs = tuple(jobs_of(event.jobs, first)) if queue.cycle.binding.binds else ()
    places = queue.cycle.binding.places(jobs, first, queue.data.catalogue, queue.now)
    queue.decide(f.Admitted(first, places))
    return _ids(first, size_of(event.jobs))


def committed(queue: QueueViews, event: m.PlanCommitted) -> None:
    """Nothing to do: the plan was written down before it was sent."""


def refused(queue: QueueViews, event: m.PlanRefused) -> None:
    """A plan no longer fits: the job waits again."""
    record = queue.jobs.current(event.job, event.epoch)
    if record is None:
        return
    # The region did not have what it had offered: no more is taken of what it offered before.
    if record.region and (leases := queue.cycle.prefetch.forget(record.region)):
        queue.send(ids.placer(record.region), m.DropLeases(leases=leases))
    queue.decide(f.Unplanned(record.id, event.why))
    _take_edit(queue, record)
    if record.cancelling:  # the order to stop it crossed the refusal on its way
        queue.decide(f.Moved(record.id, JobState.CANCELLED, record.cause))


def starting(queue: QueueViews, event: m.AttemptStarting) -> None:
    """The region launches the gang."""
    record = queue.jobs.current(event.job, event.epoch)
    if record is not None and may_move(record.state, JobState.STARTING):
        queue.decide(f.Moved(record.id, JobState.STARTING))
        if record.cancelling:  # the order to stop it crosses this news on its way
            queue.decide(f.Moved(record.id, JobState.CANCELLING, record.cause))


def all_starting(queue: QueueViews, event: m.AttemptsStarting) -> None:
    """The region launches these gangs."""
    records = [queue.jobs.current(*one) for one in zip(event.jobs, event.epochs, strict=True)]
    if all(r is not None and r.state in STARTABLE and not r.cancelling for r in records):
        queue.decide(f.AllStarting())
        return
    for job, epoch in zip(event.jobs, event.epochs, strict=True):
        starting(queue, m.AttemptStarting(job, epoch))


GOES_ON = {
    m.AttemptRunning: (JobState.STARTING, JobState.RUNNING, ""),
    m.AttemptSuspended: (JobState.RUNNING, JobState.SUSPENDED, "others take their turn"),
    m.AttemptContinued: (JobState.SUSPENDED, JobState.RUNNING, ""),
}
"""By the news that a gang is up, waits for its turn, or has it again: from which state to which."""


def goes_on(
    queue: QueueViews, event: m.AttemptRunning | m.AttemptSuspended | m.AttemptContinued
) -> None:
    """All of a gang runs, or rests while others have its GPUs."""
    before, after, cause = GOES_ON[type(event)]
    record = queue.jobs.current(event.job, event.epoch)
    if record is not None and record.state is before:
        queue.decide(f.Moved(record.id, after, cause))


def stopping(queue: QueueViews, event: m.AttemptStopping) -> None:
    """The gang was told to stop."""
    record = queue.jobs.current(event.job, event.epoch)
    if record is None or event.why is not Outcome.PREEMPTED:
        return
    if may_move(record.state, JobState.PREEMPTING):
        queue.decide(f.Moved(record.id, JobState.PREEMPTING, event.cause))
        if event.moves:
            queue.decide(f.Migrates(record.id))


NOTED: dict[type[m.Message], Callable[[Any], Fact]] = {
    m.AttemptPacked: lambda event: f.PackedWith(event.job, event.colocated_with, event.why),
    m.AttemptCheckpointed: lambda event: f.Checkpointed(event.job, event.step),
    m.AttemptResumed: lambda event: f.ResumedFrom(event.job, event.step),
}
"""News of attempts from which nothing follows."""


def noted(queue: QueueViews, event: Any) -> None:
    """A job has GPUs with another, or alone again; or a checkpoint, or went on from one."""
    if queue.jobs.current(event.job, event.epoch):
        queue.decide(NOTED[type(event)](event))


def ended(queue: QueueViews, event: m.AttemptEnded) -> None:
    """Nothing of the attempt runs any more."""
    record = queue.jobs.current(event.job, event.epoch)
    if record is None:
        return
    for hook in queue.hooks.before_end:
        hook.before_end(record)
    queue.decide(what_becomes(queue, record, event))
    _take_edit(queue, record)
    if record.finished:
        release_place(queue, record)
    for hook in queue.hooks.on_ended:
        hook.on_ended(record)
    if (order := queue.backlog.durations.wants_tree()) is not None:
        queue.send(ids.GROWER, order)  # elsewhere: it takes seconds


def _take_edit(queue: QueueViews, record: JobRecord) -> None:
    """What was changed of a job while it had a plan counts when it waits again."""
    if record.next_spec and not record.finished:
        queue.decide(f.EditTaken(record.id))


def tree_grown(queue: QueueViews, event: m.TreeGrown) -> None:
    """Predict by another tree."""
    queue.decide(f.TreeTaken())


def what_becomes(queue: QueueViews, record: JobRecord, event: m.AttemptEnded) -> f.Ended:
    """Finished, back in the queue at once, or after a delay that grows with each failure."""
    job, outcome, cause = record.id, event.outcome, event.cause
    if outcome is Outcome.SUCCEEDED:
        return f.Ended(job, JobState.SUCCEEDED, "")
    if record.cancelling or outcome is Outcome.CANCELLED:
        return f.Ended(job, JobState.CANCELLED, record.cause)
    if outcome is Outcome.TIME_LIMIT:
        return f.Ended(job, JobState.FAILED, cause)
    if outcome is Outcome.PREEMPTED and event.evicted is True:
        return _evicted(queue, record, event)
    if outcome is Outcome.PREEMPTED:
        return f.Ended(job, JobState.PENDING, cause, avoid_hosts=record.avoid_hosts)
    own_fault = outcome is Outcome.FAILED
    tried = record.restarts if own_fault else record.host_losses
    allowed = record.spec.max_restarts if own_fault else queue.profile.host_losses_allowed
    if tried >= allowed:
        limit = "max_restarts" if own_fault else "host_losses_allowed"
        why = f"{tried} restarts used up" if tried else f"not restarted: {limit} is 0"
        return f.Ended(job, JobState.FAILED, f"{cause}; {why}")
    if own_fault and event.exit_code in HOPELESS and event.held_s < HOPELESS_S:
        return f.Ended(job, JobState.FAILED, f"{cause}; not restarted: it would fail again")
    delay_s = _backoff_s(queue, tried)
    if outcome is Outcome.HOST_LOST:
        is_hasty = tried > 0 and event.held_s < HASTY_S
        delay_s = _backoff_s(queue, tried - 1) if is_hasty else 0.0
    # A cluster that refused it will refuse it again, and a host that is well may not suit it:
    # others are tried first.
    unsuited = not own_fault and not event.suspects
    avoid = _avoiding(record, record.hosts if unsuited else event.suspects)
    return f.Ended(job, JobState.RECOVERING, cause, queue.now + delay_s, avoid)


def _evicted(queue: QueueViews, record: JobRecord, event: m.AttemptEnded) -> f.Ended:
    """Back in the queue, each time later, and first to be tried elsewhere: nothing is at fault."""
    times = record.evictions_after(event.held_s)
    delay_s, cause = 0.0, event.cause
    if times > 1:
        delay_s = _backoff_s(queue, times - 2)
        cause = f"{cause}; evicted {times} times in a row, so it waits {delay_s:g} s"
    avoid = _avoiding(record, record.hosts)
    return f.Ended(record.id, JobState.PENDING, cause, queue.now + delay_s, avoid)


def _backoff_s(queue: QueueViews, before: int) -> float:
    """The delay after a number of failures before this one."""
    growth = 2.0 ** min(before, 60)  # of 2.0**1024 no float knows
    return min(queue.profile.backoff_s * growth, queue.profile.backoff_cap_s)


def _avoiding(record: JobRecord, hosts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*record.avoid_hosts, *hosts}))[-AVOIDED:]


def _ids(first_number: int, count: int) -> tuple[str, ...]:
    return tuple(ids.job_id(first_number + i) for i in range(count))
