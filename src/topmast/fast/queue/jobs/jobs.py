"""All jobs that the queue remembers, and the names that it has given to them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct

from topmast.fast.queue.jobs.ended import Ended
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.jobs.sweeps import SweepRecord, Sweeps
from topmast.fast.queue.jobs.tallies import Tallies
from topmast.fast.queue.jobs.weights import Weights, bytes_of
from topmast.model import ids
from topmast.model.expansion import size_of
from topmast.model.job import JobSpec
from topmast.model.messages import SkipAttempts, SubmitJobs
from topmast.model.states import JobState

FINISHED_KEPT = 10_000
"""So many finished jobs are kept in memory, or a tenth more; others are in the audit tables."""
FINISHED_BYTES = 256 * 1024 * 1024
"""What they take in memory at most; a short one counts as so many that it is the bound for them."""
KEYS_KEPT = 200_000
T = TypeVar("T")


@lru_cache(1_000)
def alike(text: T) -> T:
    """The same object for equal texts: thousands of jobs have one reason, which may be long."""
    return text


class Key(Struct):
    """What was admitted under an Idempotency-Key."""

    digest: str
    first_number: int
    count: int


class Jobs:
    """Records by job, and what is known of jobs that have none (any more)."""

    def __init__(self) -> None:
        self.records: dict[str, JobRecord] = {}
        self.tallies = Tallies(self.records)
        self.weights = Weights()
        self.placed: dict[str, JobRecord] = {}
        """Jobs with a plan."""
        self.ended = Ended()
        """Jobs that are over, the oldest first."""
        self.next_number = 1
        self.keys: dict[str, Key] = {}
        """Submissions that may be repeated, by Idempotency-Key."""
        self.sweeps = Sweeps(self.weights)
        self.skipped: dict[str, int] = {}
        """Epochs of jobs that are taken, though this journal does not know by what."""

    def restore(
        self,
        records: dict[str, JobRecord],
        sweeps: dict[str, SweepRecord],
        ended: Iterable[str],
    ) -> None:
        """Take up the records of a snapshot, and which are over, the oldest first. O(jobs)."""
        for record in records.values():
            record.hold, record.cause = alike(record.hold), alike(record.cause)
        self.records = records
        self.tallies = Tallies(records)
        self.weights = Weights(records.values())
        self.sweeps = Sweeps(self.weights, sweeps)
        self.ended = Ended()
        for record in (records[job] for job in ended if job in records):
            self._has_ended(record, bytes_of(record.spec))

    def add(self, record: JobRecord) -> None:
        """A job is admitted."""
        self.note(record)
        self.tallies.enter(record)

    def note(self, record: JobRecord) -> None:
        """A job is admitted that the tallies are told of by themselves."""
        self.records[record.id] = record
        self.weights.enter(record)

    def move(self, record: JobRecord, to: JobState) -> None:
        """A job comes to another state."""
        self.tallies.leave(record)
        record.state = to
        self.tallies.enter(record)

    def change(self, record: JobRecord, spec: JobSpec) -> None:
        """A job asks for something else."""
        self.tallies.leave(record)
        self.weights.leave(record)
        record.spec = spec
        self.weights.enter(record)
        self.tallies.enter(record)

    @property
    def has_forgotten(self) -> bool:
        """Whether finished jobs have left memory."""
        return len(self.records) < self.next_number - 1

    def current(self, job: str, epoch: int) -> JobRecord | None:
        """The job of an attempt that is its latest, and not over."""
        record = self.records.get(job)
        if record is None or record.epoch != epoch or record.plan is None:
            return None
        return record

    def believable(self, event: SkipAttempts) -> tuple[int, dict[str, int]]:
        """The next number and the newest epochs, without those too far ahead of the journal.

        Also a journal may hold such, of a version that took whatever name a task had written.
        """
        is_near = event.next_job - self.next_number <= ids.AHEAD_MAX
        epochs = {
            job: epoch
            for job, epoch in event.epochs.items()
            if job in self.records and epoch - self.records[job].epoch <= ids.AHEAD_MAX
        }
        return max(self.next_number, event.next_job if is_near else 0), epochs

    def admitted(self, event: SubmitJobs, first_number: int) -> None:
        """The jobs of a submission have records. O(1)."""
        count = size_of(event.jobs)
        self.next_number = first_number + count
        if event.key:
            self.keys[event.key] = Key(event.digest, first_number, count)
            if len(self.keys) > KEYS_KEPT:
                del self.keys[next(iter(self.keys))]

    def revive(self, record: JobRecord) -> None:
        """A job that was over goes on. O(1)."""
        record.finish_s = None
        self.weights.move(record, ended=False)
        self.sweeps.revived(record)
        self.ended.remove(record.id)

    def retire(self, record: JobRecord, finish_s: float) -> None:
        """A job is over; it stays in memory until `too_many` names it. O(1)."""
        self.skipped.pop(record.id, None)
        record.finish_s = finish_s
        size_bytes = self.weights.move(record, ended=True)
        self.sweeps.retired(record, finish_s)
        self._has_ended(record, size_bytes)

    def _has_ended(self, record: JobRecord, size_bytes: int) -> None:
        counted_bytes = max(size_bytes, FINISHED_BYTES // FINISHED_KEPT)
        self.ended.add(record.id, record.spec.tenant, record.spec.user, counted_bytes)

    @property
    def are_too_many(self) -> bool:
        """Whether jobs or sweeps that are over are to leave memory. O(1)."""
        return self.ended.is_too_much(FINISHED_BYTES) or self.sweeps.are_too_many

    def too_many(self) -> list[str]:
        """The jobs to leave memory. As `Ended.excess`; O(1) if there are none."""
        too_much = self.ended.is_too_much(FINISHED_BYTES)
        return self.ended.excess(FINISHED_BYTES) if too_much else []

    def forget(self, jobs: Iterable[str]) -> None:
        """Jobs that are over leave memory. O(jobs)."""
        for job in jobs:
            record = self.records.pop(job)
            self.tallies.leave(record)
            self.weights.leave(record, ended=True)
            self.ended.remove(job)
