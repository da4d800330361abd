"""Victims for gangs too large for an exact search: a set that makes room in one domain."""

from __future__ import annotations

from collections.abc import Sequence

from topmast.fast.region.inventory.allocation import Allocation
from topmast.fast.region.inventory.columns import Columns, Ints
from topmast.fast.region.search.packing import seat_gang
from topmast.model.bisection import fewest_with
from topmast.model.plan import GroupRequest, Seat, Victim, needs_of

SPARED_ANEW = 32
"""For so many of a set of victims the gang is seated once more, to see whether they could stay."""


class Chooser:
    """Chooses victims for gangs too large for an exact search; made once for a question."""

    def __init__(
        self,
        columns: Columns,
        victims: Sequence[Allocation],
        costs: Sequence[float],
        *,
        by_band: bool,
    ) -> None:
        """``by_band``: those of lower bands go first, whatever they cost."""
        self.columns = columns
        pairs = sorted(zip(victims, costs, strict=True), key=lambda pair: pair[0].job)
        self.victims = [victim for victim, _ in pairs]
        self.cost = [cost for _, cost in pairs]
        self.by_band = by_band
        self.held: list[dict[int, int]] = [_held_milli(columns, v) for v in self.victims]
        """By victim: thousandths of GPUs on each of its hosts."""
        self.on_host: dict[int, list[int]] = {}
        for number, held in enumerate(self.held):
            for row in held:
                self.on_host.setdefault(row, []).append(number)

    def choose(
        self, rows: Ints, groups: tuple[GroupRequest, ...], choice: int
    ) -> tuple[tuple[Seat, ...], tuple[Victim, ...]] | None:
        """Seats on ``rows`` and the victims that free them, or None.

        As few as will do, in the order of band and cost per GPU freed on these hosts; then spares
        those not needed, dearest first: often not the set of least cost.
        O(log victims + SPARED_ANEW) seatings of the gang.
        """
        here = self._in_order(rows)

        def seats_without(count: int) -> tuple[Seat, ...] | None:
            return seat_gang(self._without(here[:count]), rows, groups, choice)

        seats = seats_without(0)
        if seats is not None:
            return seats, ()
        found = fewest_with(seats_without, len(here))
        if found is None:
            return None
        gone, seats = self._spare(here[: found[0]], found[1], rows, groups, choice)
        stopped = [(self.victims[n], self.cost[n]) for n in sorted(gone)]
        return seats, tuple(Victim(a.job, a.epoch, cost) for a, cost in stopped)

    def _in_order(self, rows: Ints) -> list[int]:
        """Victims that hold something on these hosts, by band and cost per GPU held there."""
        freed: dict[int, int] = {}
        for row in rows.tolist():
            for number in self.on_host.get(row, ()):
                freed[number] = freed.get(number, 0) + self.held[number][row]
        return sorted(
            freed,
            key=lambda n: (
                int(self.victims[n].band) if self.by_band else 0,
                self.cost[n] / max(freed[n], 1),
                n,
            ),
        )

    def _without(self, gone: Sequence[int]) -> Columns:
        return self.columns.without(self.victims[number] for number in gone)

    def _spare(
        self,
        gone: list[int],
        seats: tuple[Seat, ...],
        rows: Ints,
        groups: tuple[GroupRequest, ...],
        choice: int,
    ) -> tuple[list[int], tuple[Seat, ...]]:
        """Spare unused victims; of the others, try the dearest with the gang seated anew."""
        trial = self._without(gone)
        at = int(rows[0]) // trial.places
        trial.take(seats, needs_of(groups), at)
        for number in sorted(gone, key=lambda n: (-self.cost[n], n)):
            needs = self.victims[number].needs()
            held, own = self.victims[number].plan.seats, self.victims[number].plan.in_slice
            trial.take(held, needs, own)
            here = [seat for seat in held if trial.find(seat.host, own) is not None]
            if trial.is_overdrawn(here, needs, own):
                trial.give_back(held, needs, own)
            else:
                gone = [other for other in gone if other != number]
        for number in sorted(gone, key=lambda n: (-self.cost[n], n))[:SPARED_ANEW]:
            fewer = [other for other in gone if other != number]
            anew = seat_gang(self._without(fewer), rows, groups, choice)
            if anew is not None:
                gone, seats = fewer, anew
        return gone, seats


def _held_milli(columns: Columns, allocation: Allocation) -> dict[int, int]:
    held: dict[int, int] = {}
    for seat in allocation.plan.seats:
        row = columns.find(seat.host, allocation.plan.in_slice)
        if row is not None:
            held[row] = held.get(row, 0) + len(seat.slots) * seat.slot_milli
    return held
