"""When attempts last too long, the first in front; what no longer holds is skipped."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from topmast.fast.cluster.attempt import Attempt, AttemptPhase


class DeadlineHeap:
    """A heap of times and jobs. Each step is O(log attempts), amortised."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []

    def watch(self, attempt: Attempt) -> None:
        """Remember when an attempt's present phase, or all of it, will have lasted too long."""
        for at_s in _deadlines_of(attempt):
            heapq.heappush(self._heap, (at_s, attempt.job))

    def first_s(self, attempts: Mapping[str, Attempt]) -> float | None:
        """The earliest that still holds."""
        heap = self._heap
        while heap:
            at_s, job = heap[0]
            if job in attempts and at_s in _deadlines_of(attempts[job]):
                return at_s
            heapq.heappop(heap)
        return None

    def due(self, now: float) -> dict[str, bool]:
        """The jobs that may be due, forgotten from now on."""
        due: dict[str, bool] = {}
        while self._heap and self._heap[0][0] <= now:
            due[heapq.heappop(self._heap)[1]] = True
        return due


def _deadlines_of(attempt: Attempt) -> list[float]:
    times = [] if attempt.phase is AttemptPhase.RUNNING else [attempt.deadline_s]
    if attempt.time_left_s is None:
        return times
    limit_s = attempt.limit_s()
    if limit_s is not None and attempt.phase is not AttemptPhase.STOPPING:
        times.append(limit_s)
    return times
