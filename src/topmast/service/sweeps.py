"""Sweeps as people see them, and the jobs that their names stand for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator

from topmast.fast.queue import GlobalQueue, JobRecord, SweepRecord
from topmast.model import ids
from topmast.model.absent import given
from topmast.model.job import MILLI
from topmast.model.states import JobState
from topmast.model.sweep_views import SweepView

_ALMOST = re.compile(r"J?(0|[1-9][0-9]{0,14})")
"""The id of a job, but for its letter."""


def views_of(queue: GlobalQueue, sweeps: Iterable[SweepRecord]) -> tuple[SweepView, ...]:
    """Sweeps as they stand, the newest first. O(jobs of those that have not ended)."""
    found = [_view(sweep, _live(queue, sweep)) for sweep in sweeps]
    return tuple(sorted(found, key=lambda view: -ids.sweep_number(view.id)))


def _live(queue: GlobalQueue, sweep: SweepRecord) -> list[JobRecord]:
    """Its jobs that have not ended."""
    known = () if sweep.has_ended else map(sweep.job, range(sweep.size))
    records = (queue.jobs.records.get(job) for job in known)
    return [record for record in records if record is not None and not record.finished]


def _view(sweep: SweepRecord, live: list[JobRecord]) -> SweepView:
    spec, definition = sweep.spec, sweep.spec.sweep
    assert definition
    ended = {state.value: count for state, count in sweep.ended.items() if count}
    counts = {**Counter(record.state.value for record in live), **ended}
    gpus_milli = sum(record.plan.gpus_milli for record in live if record.plan)
    return SweepView(
        id=sweep.id,
        name=spec.name,
        tenant=spec.tenant,
        user=spec.user,
        band=spec.band.name.lower(),
        jobs=sweep.size,
        first_job=sweep.job(0),
        variables=tuple(definition.setting(0)),
        states={state.value: counts[state.value] for state in JobState if state.value in counts},
        done=sum(ended.values()) / sweep.size,
        gpus=gpus_milli / MILLI,
        max_parallel=definition.max_parallel,
        submit_s=sweep.submit_s,
        finish_s=sweep.finish_s,
        labels=given(spec.labels, {}),
        held=sum(record.is_held for record in live),
    )


def jobs_named(
    queue: GlobalQueue,
    names: Iterable[str],
    sees: Callable[[str], bool],
    takes: Callable[[JobRecord], bool],
) -> Iterator[str]:
    """The jobs that names stand for: ``s7`` for those of a sweep, ``s7[3]`` for one of them.

    Of a sweep only those in memory that it ``takes``. A sweep of a tenant that the caller does not
    see stands for itself. O(jobs named).
    """
    records = queue.jobs.records
    for name in names:
        sweep = queue.jobs.sweeps.records.get(name)
        if sweep is None or not sees(sweep.spec.tenant):
            yield job_named(queue, name, sees) or name
            continue
        for index in range(sweep.size):
            record = records.get(sweep.job(index))
            if record is not None and takes(record):
                yield record.id


def size_named(queue: GlobalQueue, names: Iterable[str], sees: Callable[[str], bool]) -> int:
    """How many jobs names stand for, all of a sweep among them. O(names)."""
    sweeps = map(queue.jobs.sweeps.records.get, names)
    return sum(sweep.size if sweep and sees(sweep.spec.tenant) else 1 for sweep in sweeps)


def too_old(
    queue: GlobalQueue, sweeps: Iterable[SweepRecord], states: Collection[JobState]
) -> Iterator[tuple[SweepRecord, str]]:
    """Sweeps with jobs that ended in some states and have left memory, and what to say of that.

    O(jobs of the sweeps).
    """
    records = queue.jobs.records
    for sweep in sweeps:
        old = sum(sweep.ended.get(state, 0) for state in states)
        for index in range(sweep.size if old else 0):
            record = records.get(sweep.job(index))
            old -= record is not None and record.state in states
        if old:
            yield sweep, f"{old:,} of its jobs ended too long ago to be tried anew: submit them"


def job_named(queue: GlobalQueue, name: str, sees: Callable[[str], bool]) -> str | None:
    """The job that ``s7[3]`` stands for; None for any other name. O(1).

    None, too, where the caller does not see the tenant: the id of a job tells that there is one.
    """
    found, sweep = ids.job_in_sweep(name), sweep_of(queue, name)
    if found is None or sweep is None or not sees(sweep.spec.tenant):
        return None
    return sweep.job(found[1]) if found[1] < sweep.size else None


def sweep_of(queue: GlobalQueue, name: str) -> SweepRecord | None:
    """The sweep that ``s7`` or ``s7[3]`` names. O(1)."""
    found = ids.job_in_sweep(name)
    return queue.jobs.sweeps.records.get(found[0] if found else name)


def no_job(queue: GlobalQueue, name: str, sees: Callable[[str], bool]) -> str:
    """What is said of a name that no job has, or none that the caller sees. O(1)."""
    sweep = sweep_of(queue, name)
    if sweep is not None and sees(sweep.spec.tenant):
        if name == sweep.id:
            return f"no job '{name}': that is a sweep, and its first job is {name}[0]"
        return f"no job '{name}': those of {sweep.id} are {sweep.id}[0] to [{sweep.size - 1}]"
    if ids.sweep_number(name) >= 0:
        return f"no sweep '{name}'"
    if name in ("all", "*"):
        return f"no job '{name}': the selector state=active means all that have not ended"
    near = _ALMOST.fullmatch(name)
    return f"no job '{name}'" + (f" (did you mean 'j{near[1]}'?)" if near else "")


def seen_by(sweeps: Iterable[SweepRecord], seen: Collection[str] | None) -> list[SweepRecord]:
    """Those of tenants that a caller may see."""
    return [sweep for sweep in sweeps if seen is None or sweep.spec.tenant in seen]
