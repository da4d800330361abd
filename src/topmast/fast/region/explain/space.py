"""Whether a gang has any place in some columns: quicker than the search for its best one.

Explanations try many worlds that differ in one thing; there it only counts whether a plan exists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from topmast.fast.region.inventory.allocation import Allocation
from topmast.fast.region.inventory.columns import Columns, Ints
from topmast.fast.region.inventory.leaving import Leaving
from topmast.fast.region.inventory.room import tasks_per_host
from topmast.fast.region.search.packing import seat_gang
from topmast.fast.region.search.scoring import choices_of
from topmast.fast.region.search.search import Domain, domains
from topmast.model.bisection import fewest_that
from topmast.model.job import Resources
from topmast.model.plan import PlacementRequest

DOMAINS_SEATED = 8
"""Of a gang of several groups, so many domains are tried: in each it has to be seated."""


class Space:
    """Columns, without some rows, and what each host could take of tasks seen before."""

    def __init__(self, columns: Columns, without: Sequence[int] = ()) -> None:
        self.columns = columns.avoiding(without)
        self._room: dict[tuple[Resources, int], Ints] = {}

    def room(self, resources: Resources, choice: int) -> Ints:
        """Tasks that each host could take; none on hosts out of service. O(slots), then O(1)."""
        key = (resources, choice)
        if key not in self._room:
            tasks = tasks_per_host(self.columns, resources, choice)
            self._room[key] = np.where(self.columns.available, tasks, 0)
        return self._room[key]

    def place_for(self, ask: PlacementRequest) -> Domain | None:
        """A domain that takes the gang, the tightest; None if there is none.

        Exact for a gang of one group; of several, a domain may be missed. O(clusters x choices x
        levels x hosts), and for several groups the seating of `DOMAINS_SEATED` domains.
        """
        rooms = {c: [self.room(g.resources, c) for g in ask.groups] for c in choices_of(ask)}
        for tried, domain in enumerate(domains(self.columns, ask, rooms)):
            if len(ask.groups) == 1:
                return domain
            if tried == DOMAINS_SEATED:
                return None
            if seat_gang(self.columns, domain.rows, ask.groups, domain.choice) is not None:
                return domain
        return None


def emptied(columns: Columns, ask: PlacementRequest) -> Space:
    """The hosts that could ever run the gang, with nothing on them and all of them healthy."""
    return Space(columns.empty(), columns.unfit(ask))


def fewest_gone(
    columns: Columns, order: Sequence[Allocation], fits: Callable[[Columns], bool]
) -> int | None:
    """How many attempts must go, from the first on, until ``fits``; None if all are too few.

    O(attempts) givings back, O(log attempts) trials.
    """
    leaving = Leaving(columns, order)
    return fewest_that(lambda count: fits(leaving.after(count)), len(order))
