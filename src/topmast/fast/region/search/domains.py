"""Domains that might hold a gang, by sums over hosts: quicker than a search for the best place.

Explanations try many worlds that differ in one thing; there it only counts whether a place exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from topmast.fast.region.inventory.columns import Columns, Ints
from topmast.fast.region.inventory.room import tasks_per_host
from topmast.fast.region.search.packing import Seated, seat_gang
from topmast.fast.region.search.scoring import choices_of
from topmast.model.job import Level, Resources
from topmast.model.plan import PlacementRequest, Seat

DOMAINS_SEATED = 8
"""Of a gang of several groups, so many domains are tried: in each it has to be seated."""


class Domain(Struct, frozen=True):
    """A place that might hold the gang: a domain of one level in one cluster, for one model."""

    cluster: str
    level: Level
    rows: Ints
    choice: int
    time_slice: int

    def seated(self, seats: tuple[Seat, ...]) -> Seated:
        """The gang with its seats there."""
        return Seated(self.cluster, self.choice, self.level, seats, self.time_slice)


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
        for tried, domain in enumerate(domains(self, ask)):
            if len(ask.groups) == 1:
                return domain
            if tried == DOMAINS_SEATED:
                return None
            if seat_gang(self.columns, domain.rows, ask.groups, domain.choice) is not None:
                return domain
        return None


def levels_of(ask: PlacementRequest) -> tuple[Level, ...]:
    """The levels a plan may span, tightest first; `required` caps them."""
    required = Level.CLUSTER if ask.topology.required is None else ask.topology.required
    return tuple(level for level in Level if level <= required)


def domains(space: Space, ask: PlacementRequest) -> Iterator[Domain]:
    """Every domain with hosts that could together take each group; tightest level first.

    Summing by domain is vectorised: O(clusters x choices x levels x hosts).
    """
    columns = space.columns
    for cluster, time_slice in columns.parts:
        rows = columns.rows_in(cluster, time_slice)
        for choice in choices_of(ask) if len(rows) else ():
            for level in levels_of(ask):
                numbers = columns.domain[level][rows]
                low = int(numbers.min())
                enough = np.ones(int(numbers.max()) - low + 1, dtype=np.bool_)
                for group in ask.groups:
                    room = space.room(group.resources, choice)[rows]
                    enough &= np.bincount(numbers - low, weights=room) >= group.count
                for number in np.flatnonzero(enough).tolist():
                    here = rows[numbers == number + low]
                    yield Domain(cluster, level, here, choice, time_slice)
