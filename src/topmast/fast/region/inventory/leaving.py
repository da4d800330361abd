"""Attempts that let go one after the other, as when they end."""

from __future__ import annotations

from collections.abc import Sequence

from topmast.fast.region.inventory.allocation import Allocation
from topmast.fast.region.inventory.columns import Columns


class Leaving:
    """A copy of columns from which attempts go in order; what has gone may come back."""

    def __init__(self, columns: Columns, order: Sequence[Allocation]) -> None:
        self._columns, self._order, self._gone = columns.trial(), order, 0
        self._columns.watched = False  # nothing is stopped in it: entries need not be kept

    def after(self, count: int) -> Columns:
        """The columns once so many have gone: the same object each time. O(what changes)."""
        self._columns.release(self._order[self._gone : count])
        for allocation in self._order[count : self._gone]:
            plan = allocation.plan
            self._columns.take(plan.seats, allocation.needs(), plan.in_slice)
        self._gone = count
        return self._columns
