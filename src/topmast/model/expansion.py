"""What a submission becomes: a sweep is a job for each of its settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from topmast.model.ids import sweep_id
from topmast.model.job import JobSpec
from topmast.model.sweep import SweepPart


def size_of(specs: Sequence[JobSpec]) -> int:
    """How many jobs a submission becomes. O(jobs that it says)."""
    return sum(spec.sweep.size if spec.sweep else 1 for spec in specs)


def jobs_of(specs: Sequence[JobSpec], first_number: int) -> Iterator[JobSpec]:
    """The jobs that it becomes, numbered from ``first_number``. O(jobs)."""
    number = first_number
    for spec in specs:
        if not spec.sweep:
            yield spec
            number += 1
            continue
        sweep, name = spec.sweep, sweep_id(number)
        for index in range(sweep.size):
            part = SweepPart(name, index, sweep.size)
            envs = {**spec.envs, **sweep.setting(index), **part.variables()}
            yield replace(spec, envs=envs, sweep=UNSET, part=part)
        number += sweep.size
