"""What will happen, in order of (time, priority, sequence)."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush
from math import floor
from typing import Any

TICKS_PER_S = 1e6
"""Times are whole microseconds, so that what happens at one instant by the trace does so here:
sums of decimal fractions, in binary, would miss one another by a hair.
"""
Entry = tuple[float, int, int, Callable[[Any], None], Any]


class Priority(IntEnum):
    """What comes first of all that happens at one instant."""

    NEWS = 0
    """What engines, movers and links bring: what ends frees room before it is asked for."""
    FAULT = 1
    ARRIVAL = 2
    WAKE = 3
    """Machines decide last, when they have heard all that happened at the instant."""


def instant(at_s: float) -> float:
    """The whole microsecond next to a time."""
    return floor(at_s * TICKS_PER_S + 0.5) / TICKS_PER_S


def not_before(at_s: float) -> float:
    """The first whole microsecond that is not before a time: a machine is never woken early."""
    near_s = instant(at_s)
    return near_s if near_s >= at_s else instant(near_s + 1.0 / TICKS_PER_S)


class EventHeap:
    """Entries come out by time, then priority, then the order in which they were put in."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        """A heap, to be read and taken from; `put` alone adds to it."""
        self._sequence = 0

    def __len__(self) -> int:
        return len(self.entries)

    def put(self, at_s: float, priority: int, do: Callable[[Any], None], what: Any) -> None:
        """Have ``do(what)`` called at the instant ``at_s``. O(log n)."""
        self._sequence = sequence = self._sequence + 1
        at_s = floor(at_s * TICKS_PER_S + 0.5) / TICKS_PER_S  # as `instant`, once for each entry
        heappush(self.entries, (at_s, priority, sequence, do, what))

    def next_s(self) -> float:
        """When the next entry is due; there must be one. O(1)."""
        return self.entries[0][0]

    def take(self) -> Entry:
        """Take out the next entry. O(log n)."""
        return heappop(self.entries)
