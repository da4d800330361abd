"""What a submission becomes: a sweep is a job for each of its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from topmast.model.ids import job_id, job_number, nth_job, place_in_submission, sweep_id
from topmast.model.job import JobSpec
from topmast.model.sweep import SweepPart


def size_of(specs: Sequence[JobSpec]) -> int:
    """How many jobs a submission becomes. O(jobs that it says)."""
    return sum([spec.sweep.size if spec.sweep else 1 for spec in specs])


def jobs_of(specs: Sequence[JobSpec], first_number: int) -> Iterator[JobSpec]:
    """The jobs that it becomes, numbered from ``first_number``. O(jobs)."""
    number = first_number
    for spec in specs:
        if not spec.sweep:
            yield _with_ids(spec, first_number) if spec.depends_on else spec
            number += 1
            continue
        sweep, name, size = spec.sweep, sweep_id(number), spec.sweep.size
        for index in range(size):
            part = SweepPart(name, index, size)
            envs = {**spec.envs, **sweep.setting(index), **part.variables()}
            yield replace(spec, envs=envs, sweep=UNSET, part=part)
        number += size


def with_places(spec: JobSpec, places: Mapping[str, int]) -> JobSpec:
    """A job that depends on jobs of its submission by name: by their places there instead."""
    if not spec.depends_on or not places:
        return spec
    after = {
        nth_job(places[job]) if job_number(job) < 0 and job in places else job: what
        for job, what in spec.depends_on.items()
    }
    return replace(spec, depends_on=after)


def _with_ids(spec: JobSpec, first_number: int) -> JobSpec:
    """A job that may depend on jobs of the same submission, which have ids now.

    Such a submission has no sweeps, so that places and numbers run alike.
    """
    after = {}
    for job, what in (spec.depends_on or {}).items():
        place = place_in_submission(job)
        after[job if place < 0 else job_id(first_number + place)] = what
    return replace(spec, depends_on=after)
