"""When priorities change by time alone: running jobs sink with service, starving jobs rise.

Only for orders that tell these times (`Drifting`). Working memory: made anew from the jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.timers import Timers
from topmast.policies.base import Drifting, OrderPolicy, QueueView


class PriorityTimers:
    """When the priority of each job changes next."""

    def __init__(self, order: OrderPolicy, interval_s: float) -> None:
        self._order = order if isinstance(order, Drifting) else None
        self._interval_s = interval_s
        """Changes within so much time are looked at together."""
        self._timers: Timers[str] = Timers()
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
        self._timers.set(record.id, None if at_s == math.inf else at_s, record.number)

    def drop(self, job: str) -> None:
        """A job waits no more, or runs no more. O(1)."""
        self._timers.drop(job)

    def next_s(self) -> float | None:
        """When a priority changes next. Amortised O(log jobs)."""
        first_s = self._timers.next_s()
        return None if first_s is None else max(first_s, self._last_s + self._interval_s)

    def take_due(self, now: float) -> list[str]:
        """The jobs with a change of priority by ``now``; note each again. O(due x log jobs)."""
        due_s = self.next_s()
        if due_s is None or due_s > now:
            return []
        self._last_s = now
        return self._timers.take_due(now)
