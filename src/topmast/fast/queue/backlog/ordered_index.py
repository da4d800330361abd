"""The rows of all waiting jobs in one order, and those of them that are passed over.

Rows that were sorted stand in `base`, those that came later beside them. The jobs of a blocked job
class, or placement class, are passed over, many at a time.
"""

from __future__ import annotations

import bisect
import math
from array import array

import numpy as np
from numpy.typing import NDArray

from topmast.policies.base import Floats, Ints

Key = tuple[float, ...]
"""A place in the order: band (where it counts), the policy's keys, submission time, number, row."""

FIRST_CAPACITY = 1 << 10


JOB_CLASS, PLACEMENT = 0, 1
"""What is blocked: the jobs of a job class, or those of a placement class."""


class OrderedIndex:
    """The rows in one order, what of them is passed over, and how far the search has come."""

    def __init__(self) -> None:
        self.base: Ints = np.empty(0, dtype=np.int64)
        """The sorted rows."""
        self.late: list[Key] = []
        """The keys of rows that came later, in order."""
        self._late_rows = array("q")
        self.from_s: Floats = np.full((2, FIRST_CAPACITY), np.inf)
        """(2 x classes) The expected time left from which on jobs of a class are passed over."""
        self._own_s, self._shared_s = self.from_s
        """Its two rows."""
        self.blocked = 0
        """Classes of which some jobs are passed over."""
        self.placement_of: Ints = np.zeros(FIRST_CAPACITY, np.int64)
        """By job class, the number of its placement class."""
        self.cursor, self.late_cursor = 0, 0
        self.head: Key | None = None
        self.knows_head = False
        """Whether `head` is the first row that is not passed over, unless it left. None: no row."""

    def add(self, kind: int, number: int) -> None:
        """There is a class of this number; it begins unblocked. Amortised O(1)."""
        before = len(self.placement_of)
        if number >= before:
            more = max(before, number)
            self.placement_of = np.concatenate([self.placement_of, np.zeros(more, np.int64)])
            self.from_s = np.concatenate([self.from_s, np.full((2, more), np.inf)], axis=1)
            self._own_s, self._shared_s = self.from_s
        self.unblock(kind, number)

    def block(self, kind: int, number: int, from_s: float) -> None:
        """Pass over the jobs of a class that need ``from_s`` or more. O(1)."""
        before = self.from_s.item(kind, number)
        self.knows_head = False
        self.blocked += before == math.inf
        self.from_s[kind, number] = min(before, from_s)

    def unblock(self, kind: int, number: int) -> bool:
        """Pass over no job of a class; whether any was. O(1)."""
        was_blocked = self.from_s.item(kind, number) != math.inf
        self.blocked -= was_blocked
        self.from_s[kind, number] = np.inf
        return was_blocked

    def unblock_all(self) -> None:
        """Pass over no job, and search from the head again. O(classes), in numpy."""
        self.from_s.fill(np.inf)
        self.blocked = 0
        self.rewind()

    def blocked_from_s(self, job_class: int) -> float:
        """The expected time left from which on jobs of a job class are passed over. O(1)."""
        placement = self.placement_of.item(job_class)
        return min(self.from_s.item(JOB_CLASS, job_class), self.from_s.item(PLACEMENT, placement))

    def insert(self, key: Key, row: int) -> bool:
        """Let a row in; whether the search has passed its place. O(late).

        Then the search has to `step_back`, unless the row is passed over.
        """
        at = bisect.bisect(self.late, key)
        self.late.insert(at, key)
        self._late_rows.insert(at, row)
        passed = at <= self.late_cursor
        self.late_cursor += passed
        return passed

    def step_back(self, key: Key) -> None:
        """Search on from a late insert that is not passed over. O(log late)."""
        self.late_cursor = bisect.bisect_left(self.late, key)
        if self.head is None or key < self.head:
            self.head = key

    @property
    def late_rows(self) -> Ints:
        """The rows of the late inserts, in order; to be dropped before the next insert."""
        return np.frombuffer(self._late_rows, np.int64)

    def are_unblocked(self, job_classes: Ints, left_s: Floats) -> NDArray[np.bool_]:
        """Which jobs, of these classes and with so much time left, are not passed over. O(jobs)."""
        # `take` is faster than an index, and this is where a long queue spends its time.
        from_s: Floats = self._own_s.take(job_classes)
        placement = self.placement_of.take(job_classes)
        np.minimum(from_s, self._shared_s.take(placement), out=from_s)
        return left_s < from_s

    def rewind(self) -> None:
        """Search from the head again. O(1)."""
        self.cursor, self.late_cursor = 0, 0
        self.knows_head = False

    def reset(self, base: Ints) -> None:
        """Take up newly sorted rows."""
        self.base = base
        self.late, self._late_rows = [], array("q")
        self.rewind()
