"""All jobs that the queue remembers, and the names that it has given to them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct

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
"""So many finished jobs are kept in memory, or a few more; older ones are in the audit tables."""
FINISHED_BYTES = 256 * 1024 * 1024
"""What finished jobs take in memory at most, after the step that ended them."""
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
        self.finished: list[str] = []
        """Jobs that are over, the oldest first."""
        self._over_now = 0
        """How many of them are over since `_over_at_s`: their rows may not have been made yet."""
        self._over_at_s = -math.inf
        self.next_number = 1
        self.keys: dict[str, Key] = {}
        """Submissions that may be repeated, by Idempotency-Key."""
        self.sweeps = Sweeps(self.weights)
        self.skipped: dict[str, int] = {}
        """Epochs of jobs that are taken, though this journal does not know by what."""

    def restore(self, records: dict[str, JobRecord], sweeps: dict[str, SweepRecord]) -> None:
        """Take up the records of a snapshot. O(jobs)."""
        for record in records.values():
            record.hold, record.cause = alike(record.hold), alike(record.cause)
        self.records = records
        self.tallies = Tallies(records)
        self.weights = Weights(records.values())
        self.sweeps = Sweeps(self.weights, sweeps)

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
        """A job that was over goes on. O(FINISHED_KEPT)."""
        record.finish_s = None
        self.weights.move(record, ended=False)
        self.sweeps.revived(record)
        self.finished.remove(record.id)

    def retire(self, record: JobRecord, finish_s: float, now: float) -> None:
        """A job is over; after a while it is forgotten, the oldest first. Amortised O(1).

        Never in the step that ended it, for its row is made after that, from its record.
        """
        self.skipped.pop(record.id, None)
        record.finish_s = finish_s
        self.weights.move(record, ended=True)
        self.sweeps.retired(record, finish_s)
        if now != self._over_at_s:
            self._over_now, self._over_at_s = 0, now
        self.finished.append(record.id)
        self._over_now += 1
        old = len(self.finished) - max(FINISHED_KEPT, self._over_now)
        if old >= FINISHED_KEPT // 10:
            self._forget(old)
        elif self.weights.ended_bytes > FINISHED_BYTES:
            self._forget(self._too_much())

    def _too_much(self) -> int:
        """How many of the oldest to forget until the rest takes three quarters of its room.

        Amortised O(1): where it is not enough, all that is left is of this step.
        """
        most, left_bytes = len(self.finished) - self._over_now, self.weights.ended_bytes
        for count, job in enumerate(self.finished[:most]):
            if left_bytes <= FINISHED_BYTES * 3 // 4:
                return count
            left_bytes -= bytes_of(self.records[job].spec) if job in self.records else 0
        return most

    def _forget(self, count: int) -> None:
        """Drop so many of the jobs that are over, the oldest first."""
        for job in self.finished[:count]:
            forgotten = self.records.pop(job, None)
            if forgotten is not None:
                self.tallies.leave(forgotten)
                self.weights.leave(forgotten, ended=True)
        del self.finished[:count]
