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
        for job, after in given(record.awaits, {}).items():
            if after is After.TURN:
                continue
            self._dependents.setdefault(job, {})[record.id] = None
            self._news[job] = None  # what it waits for may have come already

    def on_moved(self, record: JobRecord) -> None:
        """Others may wait for this. O(1)."""
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
