"""What was read, day by day: the columns that forecasts are made from."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from topmast.slow.arrays import Bools, Floats, Ints

DAYS_OF_WEEK = 7


class History(Struct, frozen=True):
    """Accesses (n) to items (i) over ``days`` days, numbered from 0, the oldest.

    An item is what is forecast: a table, or tables read together. Items of one ``namespace`` [i]
    are alike: one with a short history is taken to be like the others. Item i exists from
    ``first_day`` [i] on (``days``: it is new now) until ``gone_day`` [i]. Of each access ``day``
    [n], ``item`` [n], ``model`` [n] and ``gpu_s`` [n], the GPU-seconds that it took. Day 0 is a
    day of the week like day 7.
    """

    days: int
    namespace: Ints
    first_day: Ints
    gone_day: Ints
    day: Ints
    item: Ints
    model: Ints
    gpu_s: Floats
    models: int

    @property
    def items(self) -> int:
        """How many items there are."""
        return len(self.namespace)

    def before(self, day: int) -> History:
        """What was known when ``day`` began: earlier accesses, all items. O(n)."""
        known = self.day < day
        return replace(
            self,
            days=day,
            day=self.day[known],
            item=self.item[known],
            model=self.model[known],
            gpu_s=self.gpu_s[known],
        )

    def exists_on(self, day: int) -> Bools:
        """The items [i] that there are on a day."""
        there: Bools = (self.first_day <= day) & (day < self.gone_day)
        return there

    def counts_on(self, day: int) -> Floats:
        """Accesses [i] on one day. O(n)."""
        there = self.day == day
        return sums(self.item[there], None, self.items)

    def demand_on(self, day: int) -> Floats:
        """GPU-seconds [i, g] of one day. O(n)."""
        there = self.day == day
        return by_item_and_model(self, self.gpu_s[there], self.item[there], self.model[there])


def by_item_and_model(history: History, amount: Floats, item: Ints, model: Ints) -> Floats:
    """The sums [i, g] of ``amount`` over accesses. O(n + i g)."""
    shape = history.items, history.models
    cells = item * history.models + model
    return sums(cells, amount, shape[0] * shape[1]).reshape(shape)


def sums(index: Ints, amount: Floats | None, count: int) -> Floats:
    """The sum [count] of ``amount`` (None: how many) over each index. O(n + count)."""
    return np.bincount(index, amount, minlength=count).astype(np.float64)
