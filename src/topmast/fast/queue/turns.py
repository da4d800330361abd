"""When the order changes by time alone: running jobs sink as they get service, waiting ones rise as they starve.

Only for orders that tell these times (`Turning`). Working memory: made anew from the jobs that there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import NamedTuple

from topmast.fast.queue.pending import Pending
from topmast.fast.queue.record import JobRecord
from topmast.model.states import WAITING
from topmast.policies.base import Order, Turning


class _Turn(NamedTuple):
    at_s: float
    number: int
    epoch: int
    waits: bool
    job: str


class Turns:
    """The next turn of every job; what has become of a job since makes its turn void.

    ``interval_s``: jobs that turn within so much time are looked at together.
    """

    def __init__(self, order: Order, interval_s: float) -> None:
        self._order = order if isinstance(order, Turning) else None
        self._interval_s = interval_s
        self._heap: list[_Turn] = []
        self._last_s = -interval_s

    def note(self, pending: Pending, record: JobRecord, now: float) -> None:
        """A job begins to run or to wait, or it turned: when does it turn next? O(log jobs)."""
        if self._order is None:
            return
        at_s = float(self._order.turns_s(pending.view_of(record, now))[0])
        if at_s < float("inf"):
            turn = _Turn(at_s, record.number, record.epoch, record.plan is None, record.id)
            heapq.heappush(self._heap, turn)

    def next_s(self, jobs: Mapping[str, JobRecord]) -> float | None:
        """When somebody turns next. Amortised O(log jobs)."""
        while self._heap and not _holds(self._heap[0], jobs):
            heapq.heappop(self._heap)
        return max(self._heap[0].at_s, self._last_s + self._interval_s) if self._heap else None

    def take_due(self, jobs: Mapping[str, JobRecord], now: float) -> list[JobRecord]:
        """The jobs that turn by ``now``; each has to be noted again. O(due x log jobs)."""
        due_s = self.next_s(jobs)
        if due_s is None or due_s > now:
            return []
        self._last_s = now
        due = []
        while self._heap and self._heap[0].at_s <= now:
            turn = heapq.heappop(self._heap)
            if _holds(turn, jobs):
                due.append(jobs[turn.job])
        return due


def _holds(turn: _Turn, jobs: Mapping[str, JobRecord]) -> bool:
    """Whether the job still runs, or waits, as it did when its turn was reckoned."""
    record = jobs.get(turn.job)
    if record is None or record.epoch != turn.epoch or (record.plan is None) != turn.waits:
        return False
    return record.state in WAITING if turn.waits else record.start_s is not None
