"""What jobs take of memory, roughly: a number does not tell, since scripts may be long."""

from __future__ import annotations

from collections.abc import Iterable

from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.job import JobSpec

JOB_BYTES = 2 * 1024
"""A job without its text; *measured*: 1.6 kB (docs/guides/sizing.md)."""
PART_BYTES = 200
"""Each variable, label, group and dependency of a job beside its text."""


class Weights:
    """Bytes of jobs that have not ended, by tenant and by user, and of those that have.

    Changed by `enter` and `leave` alone. A job without a user counts under an empty name.
    """

    def __init__(self, records: Iterable[JobRecord] = ()) -> None:
        """O(jobs)."""
        self.by_tenant: dict[str, int] = {}
        self.by_user: dict[str, int] = {}
        self.ended_bytes = 0
        for record in records:
            self.enter(record, ended=record.finished)

    def enter(self, record: JobRecord, *, ended: bool = False) -> None:
        """A job is in memory, and has or has not ended. O(its variables, labels and groups)."""
        self._add(record, ended, bytes_of(record.spec))

    def leave(self, record: JobRecord, *, ended: bool = False) -> None:
        """It is no longer there, or no longer what it was told to be."""
        self._add(record, ended, -bytes_of(record.spec))

    def _add(self, record: JobRecord, ended: bool, size_bytes: int) -> None:
        if ended:
            self.ended_bytes += size_bytes
            return
        spec = record.spec
        for sums, name in ((self.by_tenant, spec.tenant), (self.by_user, spec.user)):
            left_bytes = sums.get(name, 0) + size_bytes
            if left_bytes:
                sums[name] = left_bytes
            else:
                del sums[name]

    def text_bytes(self, jobs: int) -> int:
        """What all of so many jobs have beyond what each takes. O(tenants)."""
        return sum(self.by_tenant.values()) + self.ended_bytes - jobs * JOB_BYTES


def bytes_of(spec: JobSpec) -> int:
    """What one job takes of memory, roughly. O(variables, labels, groups and dependencies)."""
    size_bytes = JOB_BYTES - PART_BYTES
    for group in spec.groups:
        size_bytes += PART_BYTES + len(group.run) + len(group.setup)
    for texts in (spec.envs, spec.secrets, spec.labels):
        if texts:
            size_bytes += (
                len(texts) * PART_BYTES + len("".join(texts)) + len("".join(texts.values()))
            )
    if spec.depends_on:
        size_bytes += len(spec.depends_on) * PART_BYTES
    return size_bytes
