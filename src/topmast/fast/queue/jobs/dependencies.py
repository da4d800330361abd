"""Which of the jobs that a job depends on have come to what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topmast.fast.queue.jobs.jobs import Jobs
from topmast.model.absent import given
from topmast.model.dependency import After, is_met, never
from topmast.model.errors import InvalidInput, NotFound, TopmastError
from topmast.model.ids import place_in_submission
from topmast.model.job import JobSpec
from topmast.model.states import JobState

Ended = Mapping[str, JobState]
"""How jobs ended that the queue has forgotten."""


def looked_up(job: str, after: After, jobs: Jobs, ended: Ended) -> bool | None:
    """Whether a job, or a sweep, has come to what is waited for; None: not yet. Raises KeyError."""
    sweep = jobs.sweeps.records.get(job)
    if sweep is not None:
        if not sweep.has_ended:
            return None
        return after is not After.OK or sweep.ended.get(JobState.SUCCEEDED, 0) == sweep.size
    record = jobs.records.get(job)
    if record is None:
        return is_met(after, ended[job], has_started=True)
    return is_met(after, record.state, record.first_start_s is not None)


def outstanding(spec: JobSpec, jobs: Jobs, ended: Ended) -> dict[str, After]:
    """What a job that is submitted now has to wait for. O(its dependencies)."""
    return {
        job: after
        for job, after in given(spec.depends_on, {}).items()
        if looked_up(job, after, jobs, ended) is not True
    }


def fault_of(specs: Sequence[JobSpec], jobs: Jobs, ended: Ended) -> TopmastError | None:
    """Why jobs cannot be admitted: one that they depend on is not known, or has failed it."""
    for place, spec in enumerate(specs):
        fault = _fault_of(place, spec, jobs, ended) if spec.depends_on else None
        if fault is not None:
            return fault
    return None


def _fault_of(place: int, spec: JobSpec, jobs: Jobs, ended: Ended) -> TopmastError | None:
    for job, after in given(spec.depends_on, {}).items():
        if 0 <= place_in_submission(job) < place:
            continue  # it is admitted with this one, and before it
        if job not in jobs.records and job not in jobs.sweeps.records and job not in ended:
            return NotFound(f"no job '{job}'")
        if looked_up(job, after, jobs, ended) is False:
            remedy = f"requeue {job} first, or depend on it with after: any"
            message = never(job, outcome_of(job, jobs, ended))
            return InvalidInput(message, field="depends_on", remedy=remedy)
    return None


def outcome_of(job: str, jobs: Jobs, ended: Ended) -> str:
    """How a job that did not succeed ended, in words."""
    if job in jobs.sweeps.records:
        return "jobs that did not succeed"
    if job in jobs.records:
        return jobs.records[job].state.value
    return ended[job].value if job in ended else "left the memory"
