"""Which of the jobs that a job depends on have come to what it waits for."""

from __future__ import annotations

from collections.abc import Mapping

from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.absent import given
from topmast.model.dependency import After, is_met, never
from topmast.model.errors import InvalidInput, NotFound, TopmastError
from topmast.model.job import JobSpec
from topmast.model.states import JobState

Records = Mapping[str, JobRecord]
Ended = Mapping[str, JobState]
"""How jobs ended that the queue has forgotten."""


def looked_up(job: str, after: After, records: Records, ended: Ended) -> bool | None:
    """Whether a job has come to what is waited for; None: not yet. Raises KeyError."""
    record = records.get(job)
    if record is None:
        return is_met(after, ended[job], has_started=True)
    return is_met(after, record.state, record.first_start_s is not None)


def outstanding(spec: JobSpec, records: Records, ended: Ended) -> dict[str, After]:
    """What a job that is submitted now has to wait for. O(its dependencies)."""
    return {
        job: after
        for job, after in given(spec.depends_on, {}).items()
        if looked_up(job, after, records, ended) is not True
    }


def fault_of(spec: JobSpec, records: Records, ended: Ended) -> TopmastError | None:
    """Why a job cannot be admitted: a job that it depends on is not known, or has failed it."""
    for job, after in given(spec.depends_on, {}).items():
        if job not in records and job not in ended:
            return NotFound(f"no job '{job}'")
        if looked_up(job, after, records, ended) is False:
            state = records[job].state if job in records else ended[job]
            remedy = f"requeue {job} first, or depend on it with after: any"
            return InvalidInput(never(job, state.value), field="depends_on", remedy=remedy)
    return None
