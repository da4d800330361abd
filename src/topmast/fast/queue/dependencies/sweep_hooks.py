"""The part that sweeps take in the queue: no more of their jobs under way than they may have."""

from __future__ import annotations

from topmast.fast.queue import facts as f
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.hooks import QueueHooks
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.jobs.sweeps import SweepRecord
from topmast.model.absent import given
from topmast.model.dependency import After


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
