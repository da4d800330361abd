"""When the order changes by time alone: running jobs sink as they get service, waiting ones rise as they starve.

Only for orders that tell these times (`Drifting`). Working memory: made anew from the jobs that there are.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

from topmast.fast.queue.backlog.backlog import Backlog
from topmast.fast.queue.record import JobRecord
from topmast.model.states import WAITING
from topmast.policies.base import Drifting, OrderPolicy

_Drift = tuple[float, int, str]
"""When, the job's number, the job."""


class Drifts:
    """When each job drifts next: gets into another place. ``interval_s``: those within so much time are looked at together."""

    def __init__(self, order: OrderPolicy, interval_s: float) -> None:
        self._order = order if isinstance(order, Drifting) else None
        self._interval_s = interval_s
        self._heap: list[_Drift] = []
        self._next: dict[str, tuple[float, bool]] = {}
        """By job: when it drifts next, and whether it waits till then; other entries of the heap are void."""
        self._last_s = -math.inf

    def note(self, pending: Backlog, record: JobRecord, now: float) -> None:
        """A job begins to run or to wait, or it drifted: when does it next? O(log jobs)."""
        if self._order is None:
            return
        at_s = float(self._order.drifts_s(pending.view_of(record, now))[0])
        if at_s == math.inf:
            self._next.pop(record.id, None)
            return
        self._next[record.id] = at_s, record.plan is None
        heapq.heappush(self._heap, (at_s, record.number, record.id))

    def next_s(self, jobs: Mapping[str, JobRecord]) -> float | None:
        """When somebody drifts next. Amortised O(log jobs)."""
        while self._heap and not self._holds(self._heap[0], jobs):
            heapq.heappop(self._heap)
        return max(self._heap[0][0], self._last_s + self._interval_s) if self._heap else None

    def take_due(self, jobs: Mapping[str, JobRecord], now: float) -> list[JobRecord]:
        """The jobs that drift by ``now``; each has to be noted again. O(due x log jobs)."""
        due_s = self.next_s(jobs)
        if due_s is None or due_s > now:
            return []
        self._last_s = now
        due = []
        while self._heap and self._heap[0][0] <= now:
            drift = heapq.heappop(self._heap)
            if self._holds(drift, jobs):
                due.append(jobs[drift[2]])
                del self._next[drift[2]]
        return due

    def _holds(self, drift: _Drift, jobs: Mapping[str, JobRecord]) -> bool:
        """Whether the job still runs, or waits, as it did when that was reckoned."""
        at_s, _, job = drift
        record, known = jobs.get(job), self._next.get(job)
        if known is None or known[0] != at_s:
            return False
        waits = record is not None and record.plan is None and record.state in WAITING
        runs = record is not None and record.plan is not None and record.start_s is not None
        if waits if known[1] else runs:
            return True
        del self._next[job]
        return False
