"""What people do to jobs: what an act would do to each, and how it is done.

One function judges each job. The queue asks it before it acts, and the service asks it for people
that want to know first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from msgspec import UNSET, Struct

from topmast.fast.queue import facts as f
from topmast.fast.queue.cycle.requests import release_place
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import NotFound
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


def _unchanged(why: str) -> Judgement:
    return Judgement(Effect.UNCHANGED, why)


def _refused(why: str) -> Judgement:
    return Judgement(Effect.REFUSED, why)


def judge_cancel(record: JobRecord) -> Judgement:
    """Whether a job may still be ended."""
    if record.finished:
        return _unchanged(f"has ended: {record.state.value}")
    return _unchanged("is being cancelled") if record.cancelling else _DONE


def cause_of(done: str, event: m.CancelJobs) -> str:
    """The cause that the history gives for an act: ``cancelled by ann: it diverged``."""
    reason = "" if event.reason is UNSET else f": {event.reason}"
    return f"{done} by {event.by or 'its user'}{reason}"


def cancel(queue: QueueViews, event: m.CancelJobs) -> tuple[str, ...] | NotFound:
    """End jobs for good, each as far as it has come."""
    cause = cause_of("cancelled", event)
    return _each(queue, event.jobs, judge_cancel, lambda record: _cancel_one(queue, record, cause))


def _each(
    queue: QueueViews,
    jobs: tuple[str, ...],
    judge: Callable[[JobRecord], Judgement],
    act: Callable[[JobRecord], None],
) -> tuple[str, ...] | NotFound:
    """Act on those of the jobs to which that does anything; one that is not known spoils it."""
    missing = [job for job in jobs if job not in queue.jobs.records]
    if missing:
        return NotFound(f"no job '{missing[0]}'")
    for record in [queue.jobs.records[job] for job in jobs]:
        if judge(record).effect is Effect.DONE:
            act(record)
    return jobs


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


JUDGES: Mapping[str, Callable[[JobRecord], Judgement]] = {"cancel": judge_cancel}
"""By verb."""
