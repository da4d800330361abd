"""When priorities change by time alone: running jobs sink with service, starving jobs rise.

Only for orders that tell these times (`Drifting`). Working memory: made anew from the jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.timers import Timers
from topmast.model.states import WAITING
from topmast.policies.base import Drifting, OrderPolicy, QueueView


class PriorityTimers:
    """When the priority of each job changes next."""

    def __init__(self, order: OrderPolicy, interval_s: float) -> None:
        self._order = order if isinstance(order, Drifting) else None
        self._interval_s = interval_s
        """Changes within so much time are looked at together."""
        self._timers: Timers[str] = Timers()
        self._waits: dict[str, bool] = {}
        """By job, whether it waits until its time; else it runs."""
        self._last_s = -math.inf

    @property
    def drifts(self) -> bool:
        """Whether the order is one that changes by time alone."""
        return self._order is not None

    def note(
        self, record: JobRecord, view_of: Callable[[JobRecord, float], QueueView], now: float
    ) -> None:
        """A job begins to run or wait, or its priority changed: set its next time. O(log jobs)."""
        if self._order is None:
            return
        at_s = float(self._order.drifts_s(view_of(record, now))[0])
        if at_s == math.inf:
            self._timers.drop(record.id)
            self._waits.pop(record.id, None)
            return
        self._waits[record.id] = record.plan is None
        self._timers.set(record.id, at_s, record.number)

    def next_s(self, jobs: Mapping[str, JobRecord]) -> float | None:
        """When a priority changes next. Amortised O(log jobs)."""
        first = self._first(jobs)
        return None if first is None else max(first[0], self._last_s + self._interval_s)

    def take_due(self, jobs: Mapping[str, JobRecord], now: float) -> list[JobRecord]:
        """The jobs with a change of priority by ``now``; note each again. O(due x log jobs)."""
        due_s = self.next_s(jobs)
        if due_s is None or due_s > now:
            return []
        self._last_s = now
        due = []
        while (first := self._first(jobs)) is not None and first[0] <= now:
            due.append(jobs[first[1]])
            self._drop(first[1])
        return due

    def _first(self, jobs: Mapping[str, JobRecord]) -> tuple[float, str] | None:
        """The first time and its job, which still waits, or runs, as when the time was set."""
        while (first := self._timers.first()) is not None:
            record = jobs.get(first[1])
            if record is not None and self._is_as_before(record):
                return first
            self._drop(first[1])
        return None

    def _is_as_before(self, record: JobRecord) -> bool:
        if self._waits[record.id]:
            return record.plan is None and record.state in WAITING
        return record.plan is not None and record.start_s is not None

    def _drop(self, job: str) -> None:
        self._timers.drop(job)
        self._waits.pop(job, None)
