"""Jobs that people hold: they wait in no order, and are counted by what they ask for."""

from __future__ import annotations

from collections.abc import Iterator

from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.job import JobSpec

Kind = tuple[object, ...]


class Held:
    """The jobs that are held."""

    def __init__(self) -> None:
        self._kind_of: dict[str, Kind] = {}
        """By job."""
        self._sizes: dict[Kind, tuple[JobSpec, int]] = {}
        """One job of each kind, and how many there are."""

    def add(self, record: JobRecord) -> None:
        """A job is held. O(groups)."""
        spec = record.spec
        kind = (spec.tenant, spec.band, *sorted(spec.gpus_by_model().items(), key=str))
        self._kind_of[record.id] = kind
        one, size = self._sizes.get(kind, (spec, 0))
        self._sizes[kind] = one, size + 1

    def remove(self, job: str) -> None:
        """A job is held no more, if it was. O(1)."""
        kind = self._kind_of.pop(job, None)
        if kind is None:
            return
        one, size = self._sizes.pop(kind)
        if size > 1:
            self._sizes[kind] = one, size - 1

    def by_kind(self) -> Iterator[tuple[JobSpec, int]]:
        """One job of each tenant, band and size, and how many are like it."""
        return iter(self._sizes.values())
