"""The part that dependencies take in the queue: which jobs wait for a job, and what its news mean.

The appliers only note which jobs have news. What follows from it is decided at the next wake, as
facts of its own, so that a process that dies in between decides it when it comes back.
"""

from __future__ import annotations

from topmast.fast.queue import facts as f
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.hooks import QueueHooks
from topmast.fast.queue.jobs.dependencies import looked_up, outcome_of
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.jobs.sweeps import SweepRecord
from topmast.model.absent import given
from topmast.model.dependency import After, never
from topmast.model.states import JobState


class DependencyHooks(QueueHooks):
    """Lets jobs go on when those before them have come far enough, and ends those that cannot."""

    def __init__(self, queue: QueueViews) -> None:
        self._queue = queue
        self._dependents: dict[str, dict[str, None]] = {}
        """Jobs that wait for a job, by that job."""
        self._news: dict[str, None] = {}
        """Jobs that others wait for, and that have come further."""

    def on_restored(self) -> None:
        """Everything is found again in the records. O(jobs)."""
        self._dependents, self._news = {}, {}
        for record in self._queue.jobs.records.values():
            if not record.finished:
                self.on_enqueued(record)

    def on_enqueued(self, record: JobRecord) -> None:
        """A job may have to wait for others. O(its dependencies)."""
        for job, after in (record.awaits or {}).items():
            if after is After.TURN:
                continue
            self._dependents.setdefault(job, {})[record.id] = None
            self._news[job] = None  # what it waits for may have come already

    def on_moved(self, record: JobRecord) -> None:
        """Others may wait for this. O(1)."""
        if not self._dependents:
            return
        for name in (record.id, record.spec.in_sweep):
            if name in self._dependents:
                self._news[name] = None

    def on_wake(self) -> None:
        """Look at the jobs that wait for one with news. O(dependents)."""
        while self._news:  # a job that ends here may end others
            job = next(iter(self._news))
            del self._news[job]
            self._settle(job)

    def _settle(self, job: str) -> None:
        queue, records = self._queue, self._queue.jobs.records
        dependents = self._dependents.pop(job, {})
        for record in [records[name] for name in dependents if name in records]:
            after = given(record.awaits, {}).get(job)
            if after is None or record.finished:
                continue
            known = job in records or job in queue.jobs.sweeps.records
            met = known and looked_up(job, after, queue.jobs, {})
            if met is None:
                self._dependents.setdefault(job, {})[record.id] = None
            elif met:
                queue.decide(f.DependencyMet(record.id, job))
            else:
                cause = f"never started: {never(job, outcome_of(job, queue.jobs, {}))}"
                queue.decide(f.Moved(record.id, JobState.CANCELLED, cause))

    def next_s(self) -> float | None:
        """At once while there are news."""
        return 0.0 if self._news else None


class SweepHooks(QueueHooks):
    """Lets the next job of a sweep go when one has ended, in the order of their places."""

    def __init__(self, queue: QueueViews) -> None:
        self._queue = queue
        self._next: dict[str, int] = {}
        """The first place that may have a job that waits, by sweep with a limit."""
        self._news: dict[str, None] = {}
        """Sweeps of which a job has ended."""

    def on_restored(self) -> None:
        """Everything is found again in the records. O(sweeps)."""
        sweeps = self._queue.jobs.sweeps.records
        self._next = {}
        self._news = {
            name: None for name, one in sweeps.items() if one.room is not None and not one.has_ended
        }

    def on_enqueued(self, record: JobRecord) -> None:
        """A job may wait for its turn, perhaps again. O(1)."""
        part = record.spec.part
        if part and given(record.awaits, {}).get(part.sweep) is After.TURN:
            self._next[part.sweep] = min(self._next.get(part.sweep, part.index), part.index)
            self._news[part.sweep] = None

    def on_moved(self, record: JobRecord) -> None:
        """Another may have its turn. O(1)."""
        if record.spec.part and record.finished and self._queue.jobs.sweeps.of(record):
            self._news[record.spec.in_sweep] = None

    def on_wake(self) -> None:
        """Let jobs go. O(jobs that are let go, and those passed over)."""
        for name in list(self._news):
            sweep = self._queue.jobs.sweeps.records.get(name)
            if sweep is not None and sweep.room is not None:
                self._fill(sweep)
        self._news = {}

    def _fill(self, sweep: SweepRecord) -> None:
        index, records = self._next.get(sweep.id, 0), self._queue.jobs.records
        while (sweep.room or 0) > 0 and index < sweep.size:
            record = records.get(sweep.job(index))
            if record is not None and not record.finished and sweep.id in given(record.awaits, {}):
                self._queue.decide(f.DependencyMet(record.id, sweep.id))
            index += 1
        self._next[sweep.id] = index

    def next_s(self) -> float | None:
        """At once while there are news."""
        return 0.0 if self._news else None
