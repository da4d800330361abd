"""Jobs that wait in no order, and are counted by what they ask for.

People hold them or have paused their tenant, or they depend on other jobs.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.job import JobSpec
from topmast.model.reason import PendingReason

Kind = tuple[object, ...]


class Aside:
    """The jobs that stand aside."""

    def __init__(self) -> None:
        self._kind_of: dict[str, Kind] = {}
        """By job."""
        self._sizes: dict[Kind, tuple[JobSpec, PendingReason, int]] = {}
        """One job of each kind, why it waits, and how many there are."""

    def add(self, record: JobRecord) -> None:
        """A job stands aside. O(groups)."""
        spec, reason = record.spec, PendingReason.WAITING_FOR_JOBS
        if record.hold is not UNSET:
            reason = PendingReason.HELD
        elif record.paused is not UNSET:
            reason = PendingReason.TENANT_PAUSED
        kind = (reason, spec.tenant, spec.band, *sorted(spec.gpus_by_model().items(), key=str))
        self._kind_of[record.id] = kind
        one, reason, size = self._sizes.get(kind, (spec, reason, 0))
        self._sizes[kind] = one, reason, size + 1

    def remove(self, job: str) -> None:
        """A job stands aside no more, if it did. O(1)."""
        kind = self._kind_of.pop(job, None)
        if kind is None:
            return
        one, reason, size = self._sizes.pop(kind)
        if size > 1:
            self._sizes[kind] = one, reason, size - 1

    def jobs(self) -> Iterator[str]:
        """All of them."""
        return iter(self._kind_of)

    def by_kind(self) -> Iterator[tuple[JobSpec, PendingReason, int]]:
        """One job of each reason, tenant, band and size, and how many are like it."""
        return iter(self._sizes.values())
