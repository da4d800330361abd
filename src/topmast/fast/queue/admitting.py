"""What changes when jobs are admitted: each has a record and waits."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from topmast.fast.queue import facts as f
from topmast.fast.queue.cycle.state import QueueState
from topmast.fast.queue.jobs.dependencies import outstanding
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.absent import given
from topmast.model.expansion import jobs_of
from topmast.model.job import JobSpec


def admitted(queue: QueueState, fact: f.Admitted, event: m.SubmitJobs) -> None:
    """O(what jobs ask for) for each; little for one that is like another, if that is known."""
    first_number = fact.first_number
    if event.kinds and queue.may_admit_alike:
        _alike_admitted(queue, first_number, event.jobs, event.kinds)
    elif _are_alike(event.jobs) and queue.may_admit_alike:
        queue.jobs.sweeps.admitted(event.jobs, first_number, queue.now)
        jobs = tuple(jobs_of(event.jobs, first_number))
        _alike_admitted(queue, first_number, jobs, (0,) * len(jobs))
    else:
        _each_admitted(queue, fact, event)
    queue.jobs.admitted(event, first_number)


def _are_alike(specs: Sequence[JobSpec]) -> bool:
    """Whether it is one sweep, the jobs of which wait for no others: variables alone differ."""
    if len(specs) != 1 or specs[0].depends_on or not (sweep := specs[0].sweep):
        return False
    return sweep.max_parallel is None


def _alike_admitted(
    queue: QueueState, first_number: int, jobs: Sequence[JobSpec], kinds: Sequence[int]
) -> None:
    """Of the jobs of a kind the first is looked at."""
    now, by_kind = queue.now, dict[int, list[JobRecord]]()
    for number, (spec, kind) in enumerate(zip(jobs, kinds, strict=True), first_number):
        record = JobRecord(ids.job_id(number), number, spec, now)
        by_kind.setdefault(kind, []).append(record)
        queue.jobs.note(record)
    queue.backlog.mix.saw(jobs, kinds)
    for records in by_kind.values():
        if paused := queue.tenancy.paused_by(records[0].spec.tenant):
            for record in records:
                record.paused = paused
        queue.jobs.tallies.enter_alike(records)
        queue.enqueue_alike(records)


def _each_admitted(queue: QueueState, fact: f.Admitted, event: m.SubmitJobs) -> None:
    queue.jobs.sweeps.admitted(event.jobs, fact.first_number, queue.now)
    for offset, spec in enumerate(jobs_of(event.jobs, fact.first_number)):
        number = fact.first_number + offset
        record = JobRecord(ids.job_id(number), number, spec, queue.now)
        if spec.depends_on or spec.part:
            ended, turn = given(event.ended, {}), queue.jobs.sweeps.turn_of(spec)
            record.awaits = {**outstanding(spec, queue.jobs, ended), **turn} or UNSET
        record.paused = queue.tenancy.paused_by(spec.tenant) or UNSET
        queue.jobs.add(record)
        if fact.places:
            record.bound, record.bindings = fact.places[offset], 1
            queue.cycle.binding.note(record, queue.now)
        queue.backlog.mix.saw([spec])
        queue.backlog.durations.submitted(record)
        queue.enqueue(record)
