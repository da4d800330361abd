"""Times at which something is due, one for each key."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """The times of some keys, the first in front. Ties go by a number."""

    def __init__(self) -> None:
        self._at_s: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        """All times that were set; those that hold no more are skipped."""

    def at_s(self, key: K) -> float | None:
        """The time of a key, if it has one. O(1)."""
        return self._at_s.get(key)

    def set(self, key: K, at_s: float | None, number: int = 0) -> None:
        """Give a key a time, or none, instead of the one that it had. O(log keys)."""
        if at_s is None:
            self.drop(key)
            return
        self._at_s[key] = at_s
        heapq.heappush(self._heap, (at_s, number, key))

    def drop(self, key: K) -> None:
        """A key has no time any more. O(1)."""
        self._at_s.pop(key, None)

    def next_s(self) -> float | None:
        """The first time. Amortised O(log keys)."""
        if not self._heap:
            return None  # as most often: it is asked after every event
        first = self.first()
        return None if first is None else first[0]

    def first(self) -> tuple[float, K] | None:
        """The first time and its key. Amortised O(log keys)."""
        heap = self._heap
        while heap and self._at_s.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return (heap[0][0], heap[0][2]) if heap else None

    def is_due(self, now: float) -> bool:
        """Whether any key is due. Amortised O(log keys)."""
        first_s = self.next_s()
        return first_s is not None and first_s <= now

    def take_due(self, now: float) -> list[K]:
        """The keys that are due, in order; they have no time any more. O(due x log keys)."""
        due: list[K] = []
        if not self._heap:
            return due  # as most often: it is asked at every wake
        while (first := self.first()) is not None and first[0] <= now:
            due.append(first[1])
            self.drop(first[1])
        return due
