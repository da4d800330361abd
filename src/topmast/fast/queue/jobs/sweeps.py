"""Sweeps as the queue keeps them: what they are, and how their jobs ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import UNSET, Struct

from topmast.fast.queue.jobs.ended import Ended
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.jobs.weights import Weights, said_bytes
from topmast.model import ids
from topmast.model.absent import given
from topmast.model.dependency import After
from topmast.model.job import JobSpec
from topmast.model.states import JobState

SWEEPS_KEPT = 10_000
"""So many sweeps that have ended are kept in memory, or a tenth more."""
ENDED_BYTES = 64 * 1024 * 1024
"""What they take in memory at most, roughly; a short one counts as the bound for them says."""


class SweepRecord(Struct, gc=False):
    """One sweep. Its jobs have records of their own."""

    id: str
    first_number: int
    spec: JobSpec
    """As submitted."""
    submit_s: float
    ended: dict[JobState, int] = {}
    """How many of its jobs are in each state that ends a job."""
    let_go: int = 0
    """Jobs that may be in the queue or run, or that have ended after they might."""
    over: int = 0
    """How many of these have ended."""
    finish_s: float | None = None

    @property
    def size(self) -> int:
        """How many jobs it has."""
        return self.spec.sweep.size if self.spec.sweep else 0

    @property
    def room(self) -> int | None:
        """How many more of its jobs it may let go; None: no limit."""
        limit = self.spec.sweep.max_parallel if self.spec.sweep else None
        return None if limit is None else limit - (self.let_go - self.over)

    @property
    def has_ended(self) -> bool:
        """Whether all of its jobs have."""
        return sum(self.ended.values()) == self.size

    def job(self, index: int) -> str:
        """The id of one of its jobs."""
        return ids.job_id(self.first_number + index)


class Sweeps:
    """Sweeps by id. Changed by facts alone."""

    def __init__(self, weights: Weights, records: dict[str, SweepRecord] | None = None) -> None:
        """``weights``: where one that has not ended counts for its user, beside its jobs."""
        self.records = records or {}
        self.ended = Ended()
        self._weights = weights
        for record in self.records.values():
            self._count(record)

    def admitted(self, specs: Sequence[JobSpec], first_number: int, now: float) -> None:
        """Note the sweeps of a submission. O(jobs that it says)."""
        number = first_number
        for spec in specs:
            if spec.sweep:
                record = SweepRecord(ids.sweep_id(number), number, spec, now)
                limit = spec.sweep.max_parallel
                record.let_go = record.size if limit is None else min(limit, record.size)
                self.records[record.id] = record
                self._count(record)
                number += record.size
            else:
                number += 1

    def _count(self, record: SweepRecord) -> None:
        """Count what was submitted: for its user, or as ended. O(what it says)."""
        size_bytes, spec = said_bytes(record.spec), record.spec
        if record.has_ended:
            counted_bytes = max(size_bytes, ENDED_BYTES // SWEEPS_KEPT)
            self.ended.add(record.id, spec.tenant, spec.user, counted_bytes)
        else:
            self._weights.add(spec, size_bytes)

    def _discount(self, record: SweepRecord) -> None:
        """Count it no more. O(what it says)."""
        if record.has_ended:
            self.ended.remove(record.id)
        else:
            self._weights.add(record.spec, -said_bytes(record.spec))

    @property
    def are_too_many(self) -> bool:
        """Whether sweeps that have ended are to leave memory. O(1)."""
        return self.ended.is_too_much(ENDED_BYTES)

    def too_many(self) -> list[str]:
        """These sweeps. As `Ended.excess`; O(1) if there are none."""
        if not self.are_too_many:
            return []
        return self.ended.excess(ENDED_BYTES, lambda name: self.records[name].first_number)

    def forget(self, sweeps: Iterable[str]) -> None:
        """Sweeps that have ended leave memory; their jobs do not. O(sweeps)."""
        for name in sweeps:
            self._discount(self.records.pop(name))

    def of(self, record: JobRecord) -> SweepRecord | None:
        """The sweep of a job, if it has one that is known."""
        return self.records.get(record.spec.in_sweep) if record.spec.part else None

    def turn_of(self, spec: JobSpec) -> dict[str, After]:
        """What a job that is submitted now waits for as a part of its sweep."""
        sweep = self.records.get(spec.in_sweep)
        waits = sweep is not None and spec.part and spec.part.index >= sweep.let_go
        return {spec.in_sweep: After.TURN} if waits else {}

    def retired(self, record: JobRecord, finish_s: float) -> None:
        """A job is over. O(states)."""
        sweep = self.of(record)
        if sweep is not None:
            is_last = sum(sweep.ended.values()) + 1 == sweep.size
            if is_last:
                self._discount(sweep)
            sweep.ended[record.state] = sweep.ended.get(record.state, 0) + 1
            sweep.over += not _waits_its_turn(record)
            if is_last:
                sweep.finish_s = finish_s
                self._count(sweep)

    def revived(self, record: JobRecord) -> None:
        """A job that was over goes on; it has its old state still."""
        sweep = self.of(record)
        if sweep is not None:
            goes_on = sweep.has_ended
            if goes_on:
                self._discount(sweep)
            sweep.ended[record.state] -= 1
            sweep.over -= not _waits_its_turn(record)
            sweep.finish_s = None
            if goes_on:
                self._count(sweep)


def _waits_its_turn(record: JobRecord) -> bool:
    return record.awaits is not UNSET and record.spec.in_sweep in given(record.awaits, {})
