"""What people do to jobs: what an act would do to each, and how it is done.

One function judges each job. The queue asks it before it acts, and the service asks it for people
that want to know first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from functools import partial

from msgspec import UNSET, Struct

from topmast.fast.queue import facts as f
from topmast.fast.queue.cycle.requests import release_place
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.absent import given
from topmast.model.errors import NotFound
from topmast.model.job import Band, JobChanges
from topmast.model.states import HOLDING, JobState, Outcome


class Effect(StrEnum):
    """What an act does to a job."""

    DONE = "done"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


class Judgement(Struct, frozen=True):
    """What an act would do to a job, and why it would do nothing."""

    effect: Effect = Effect.DONE
    why: str = ""


_DONE = Judgement()
Act = m.CancelJobs | m.HoldJobs | m.PreemptJobs | m.RequeueJobs


def _unchanged(why: str) -> Judgement:
    return Judgement(Effect.UNCHANGED, why)


def _refused(why: str) -> Judgement:
    return Judgement(Effect.REFUSED, why)


# --- what an act would do ------------------------------------------------------------------------


def _judge_going(record: JobRecord) -> Judgement:
    """What holds for all acts on jobs that go on."""
    if record.finished:
        return _refused(f"has ended: {record.state.value}")
    return _refused("is being cancelled") if record.cancelling else _DONE


def judge_cancel(record: JobRecord) -> Judgement:
    """Whether a job may still be ended."""
    if record.finished:
        return _unchanged(f"has ended: {record.state.value}")
    return _unchanged("is being cancelled") if record.cancelling else _DONE


def judge_hold(record: JobRecord) -> Judgement:
    """Whether a job may be kept from starting."""
    going = _judge_going(record)
    if going.effect is not Effect.DONE:
        return going
    if record.hold is not UNSET:
        return _unchanged("is held")
    if record.plan is not None:
        return Judgement(why="goes on, and is held when it waits again")
    return going


def judge_release(record: JobRecord) -> Judgement:
    """Whether a job is held."""
    going = _judge_going(record)
    if going.effect is Effect.DONE and record.hold is UNSET:
        return _unchanged("is not held")
    return going


def judge_preempt(record: JobRecord) -> Judgement:
    """Whether a job has GPUs to let go of."""
    going = _judge_going(record)
    if going.effect is Effect.DONE and record.plan is None:
        return _unchanged("waits")
    if going.effect is Effect.DONE and record.state is JobState.PREEMPTING:
        return _unchanged("is being stopped")
    return going


def judge_suspend(record: JobRecord) -> Judgement:
    """Whether a job can be stopped and held."""
    stop, hold = judge_preempt(record), judge_hold(record)
    return hold if stop.effect is Effect.UNCHANGED else stop


def judge_requeue(record: JobRecord, tenants: Collection[str]) -> Judgement:
    """Whether a job can be tried anew, with these tenants in the fleet."""
    if record.state is JobState.SUCCEEDED:
        return _refused("has succeeded")
    if record.finished and tenants and record.spec.tenant not in tenants:
        return _refused(f"tenant {record.spec.tenant} has left the fleet")
    if record.finished:
        return _DONE
    if record.cancelling:
        return _refused("is being cancelled")
    if record.state is JobState.PREEMPTING:
        return _unchanged("is being stopped, and waits again then")
    delayed = record.state is JobState.RECOVERING or record.avoid_hosts or record.not_before_s
    return _unchanged("waits") if record.plan is None and not delayed else _DONE


def judge_edit(record: JobRecord, changes: JobChanges) -> Judgement:
    """Whether changes make a difference to a job."""
    going = _judge_going(record)
    if going.effect is not Effect.DONE:
        return going
    before = given(record.next_spec, record.spec)
    after = changes.of(before)
    if after == before:
        return _unchanged("is so already")
    if after.band is Band.OPPORTUNISTIC and not after.preemptible:
        return _refused("may not be preempted, and an opportunistic job must make way")
    if record.plan is not None and changes.others():
        now = "" if changes.duration_s is UNSET else "but for the expected duration "
        return Judgement(why=f"has GPUs: {now}it takes effect when the job waits again")
    return going


# --- acts -----------------------------------------------------------------------------------------


def cause_of(done: str, event: Act) -> str:
    """The cause that the history gives for an act: ``cancelled by ann: it diverged``."""
    reason = "" if event.reason is UNSET else f": {event.reason}"
    return f"{done} by {event.by or 'its user'}{reason}"


def cancel(queue: QueueViews, event: m.CancelJobs) -> tuple[str, ...] | NotFound:
    """End jobs for good, each as far as it has come."""
    cause = cause_of("cancelled", event)
    return _each(queue, event.jobs, judge_cancel, lambda record: _cancel_one(queue, record, cause))


def hold(queue: QueueViews, event: m.HoldJobs) -> tuple[str, ...] | NotFound:
    """Keep jobs from starting; stop also what runs, if the event says so."""
    cause = cause_of("suspended" if event.stop else "held", event)

    def act(record: JobRecord) -> None:
        if record.hold is UNSET or event.stop:
            release_place(queue, record)
            queue.decide(f.HoldSet(record.id, cause))
        if event.stop:
            stop_attempt(queue, record, cause)

    return _each(queue, event.jobs, judge_suspend if event.stop else judge_hold, act)


def release(queue: QueueViews, event: m.ReleaseJobs) -> tuple[str, ...] | NotFound:
    """Let jobs start again."""
    return _each(
        queue, event.jobs, judge_release, lambda record: queue.decide(f.HoldSet(record.id, ""))
    )


def preempt(queue: QueueViews, event: m.PreemptJobs) -> tuple[str, ...] | NotFound:
    """Stop attempts at their checkpoints."""
    cause = cause_of("preempted", event)
    return _each(
        queue, event.jobs, judge_preempt, lambda record: stop_attempt(queue, record, cause)
    )


def requeue(queue: QueueViews, event: m.RequeueJobs) -> tuple[str, ...] | NotFound:
    """Try jobs anew: what runs stops at its checkpoint first."""
    cause = cause_of("requeued", event)

    def act(record: JobRecord) -> None:
        if record.plan is not None:
            stop_attempt(queue, record, cause)
        else:
            queue.decide(f.Requeued(record.id, cause))

    judge = partial(judge_requeue, tenants=queue.tenancy.ledger.tenants)
    return _each(queue, event.jobs, judge, act)


def edit(queue: QueueViews, event: m.EditJobs) -> tuple[str, ...] | NotFound:
    """Change what jobs ask for."""
    judge = partial(judge_edit, changes=event.changes)
    return _each(queue, event.jobs, judge, lambda record: queue.decide(f.Edited(record.id)))


def stop_attempt(queue: QueueViews, record: JobRecord, cause: str) -> None:
    """Stop the attempt of a job, if it has one, at its checkpoint."""
    if record.plan is not None and record.state is not JobState.PREEMPTING:
        stop = m.StopAttempt(record.id, record.epoch, Outcome.PREEMPTED, cause)
        queue.send(ids.placer(record.plan.region), stop)


def _each(
    queue: QueueViews,
    jobs: tuple[str, ...],
    judge: Callable[[JobRecord], Judgement],
    act: Callable[[JobRecord], None],
) -> tuple[str, ...] | NotFound:
    """Act on those of the jobs to which that does anything, and tell which these are.

    One that is not known spoils it.
    """
    missing = [job for job in jobs if job not in queue.jobs.records]
    if missing:
        return NotFound(f"no job '{missing[0]}'")
    done = []
    for record in [queue.jobs.records[job] for job in jobs]:
        if judge(record).effect is Effect.DONE:
            act(record)
            done.append(record.id)
    return tuple(done)


def _cancel_one(queue: QueueViews, record: JobRecord, cause: str) -> None:
    if record.plan is None:
        release_place(queue, record)
        queue.decide(f.Moved(record.id, JobState.CANCELLED, cause))
        return
    if record.state in HOLDING:
        queue.decide(f.Moved(record.id, JobState.CANCELLING, cause))
    queue.decide(f.CancelWanted(record.id, cause))
    stop = m.StopAttempt(record.id, record.epoch, Outcome.CANCELLED, cause)
    queue.send(ids.placer(record.plan.region), stop)


JUDGES: Mapping[str, Callable[[JobRecord], Judgement]] = {
    "cancel": judge_cancel,
    "hold": judge_hold,
    "release": judge_release,
    "suspend": judge_suspend,
    "resume": judge_release,
    "preempt": judge_preempt,
}
"""By verb; `judge_edit` asks for the changes too, and `judge_requeue` for the tenants."""
