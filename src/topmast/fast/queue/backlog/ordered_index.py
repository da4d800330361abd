"""The rows of all waiting jobs in one order, and who of them is passed over.

Rows that were sorted stand in `base`, those that came later beside them. A line, or a kin, for which
there is no room is closed, and its jobs are passed over, many at a time.
"""

from __future__ import annotations

import bisect
import math
from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topmast.policies.base import Floats, Ints

Key = tuple[float, ...]
"""A place in the order: band (where it counts), the policy's keys, time of submission, number, row."""

FIRST_CAPACITY = 1 << 10


class Lane:
    """The rows in one order: sorted ``base``, ``late`` inserts, and how far the search has come.

    ``closed_from_s`` (lines): jobs of the line with at least this expected time left are passed over;
    ``kin_closed_from_s`` (kin): the same for all lines of a kin, ``kin_of`` (lines) tells of which each is.
    """

    def __init__(self) -> None:
        self.base: Ints = np.empty(0, dtype=np.int64)
        self.late: list[Key] = []
        self._late_rows = array("q")
        self.closed_from_s: Floats = np.full(FIRST_CAPACITY, np.inf)
        self.kin_closed_from_s: Floats = np.full(FIRST_CAPACITY, np.inf)
        self.kin_of: Ints = np.zeros(FIRST_CAPACITY, np.int64)
        self.cursor, self.late_cursor = 0, 0
        self.closed = 0
        """Lines, and kin, of which some are passed over."""
        self.head: Key | None = None
        self.knows_head = False
        """Whether `head` is the first row that is looked at (None: there is none), unless it has left since."""

    def close(self, line: int, from_s: float) -> None:
        """Pass over those of a line who need ``from_s`` or more. O(1)."""
        before = self.closed_from_s.item(line)
        self.knows_head = False
        self.closed += before == math.inf
        self.closed_from_s[line] = min(before, from_s)

    def open(self, line: int) -> None:
        """Pass over nobody of a line. O(1)."""
        if self.closed_from_s.item(line) != math.inf:
            self.closed -= 1
            self.closed_from_s[line] = np.inf

    def close_kin(self, kin: int, from_s: float) -> None:
        """Pass over those of a kin who need ``from_s`` or more. O(1)."""
        before = self.kin_closed_from_s.item(kin)
        self.knows_head = False
        self.closed += before == math.inf
        self.kin_closed_from_s[kin] = min(before, from_s)

    def open_kin(self, kin: int) -> bool:
        """Pass over nobody because of his kin; whether anybody was. O(1)."""
        was_closed = self.kin_closed_from_s.item(kin) != math.inf
        self.closed -= was_closed
        self.kin_closed_from_s[kin] = np.inf
        return was_closed

    def open_all(self) -> None:
        """Pass over nobody, and search from the head again. O(lines), in numpy."""
        self.closed_from_s.fill(np.inf)
        self.kin_closed_from_s.fill(np.inf)
        self.closed = 0
        self.rewind()

    def insert(self, key: Key, row: int) -> bool:
        """Let a row in; whether the search has passed its place, and has to `step_back` if it is looked at. O(late)."""
        at = bisect.bisect(self.late, key)
        self.late.insert(at, key)
        self._late_rows.insert(at, row)
        passed = at <= self.late_cursor
        self.late_cursor += passed
        return passed

    def step_back(self, key: Key) -> None:
        """Search on from a late insert that is looked at. O(log late)."""
        self.late_cursor = bisect.bisect_left(self.late, key)
        if self.head is None or key < self.head:
            self.head = key

    @property
    def late_rows(self) -> Ints:
        """The rows of the late inserts, in order; to be dropped before the next insert."""
        return np.frombuffer(self._late_rows, np.int64)

    def are_open(self, lines: Ints, left_s: Floats) -> NDArray[np.bool_]:
        """Whether jobs of these lines, with so much time left, are looked at (jobs). O(jobs)."""
        closed_from_s = np.minimum(
            self.closed_from_s[lines], self.kin_closed_from_s[self.kin_of[lines]]
        )
        return left_s < closed_from_s

    def rewind(self) -> None:
        """Search from the head again. O(1)."""
        self.cursor, self.late_cursor = 0, 0
        self.knows_head = False

    def reset(self, base: Ints) -> None:
        """Take up newly sorted rows."""
        self.base = base
        self.late, self._late_rows = [], array("q")
        self.rewind()


def with_room_for(at: int, values: NDArray[Any], fill: float) -> NDArray[Any]:
    """The same values, with more after them if ``at`` is beyond the last. Amortised O(1)."""
    if at < len(values):
        return values
    return np.concatenate([values, np.full(max(len(values), at), fill, values.dtype)])
