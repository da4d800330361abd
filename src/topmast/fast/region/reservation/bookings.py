"""Places kept for attempts that are being moved, until they start there or the time is up.

A place is booked in the columns like an attempt that holds it, so that no search gives it away. It
is a courtesy: if it is gone, or does not suit any more, the job is placed like any other.
"""

from __future__ import annotations

from msgspec import Struct

from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.inventory.overlay import Overlay
from topmast.fast.region.search.scoring import accelerators_of, choices_of
from topmast.model.job import Resources
from topmast.model.plan import PlacementRequest, Plan, Reservation


class Booking(Struct):
    """Seats kept for a job, and what its tasks need, by group."""

    plan: Plan
    needs: dict[str, Resources]
    until_s: float


def suits(place: Booking, ask: PlacementRequest, columns: Columns) -> bool:
    """Whether a job can have the place that is kept for it. O(its seats)."""
    plan = place.plan
    if not columns.take_work(plan.hosts, plan.in_slice):
        return False
    excluded = set(columns.excluded(ask))
    if not excluded.isdisjoint(columns.rows_of(plan.hosts)) or not _may_use(ask, plan.model):
        return False
    if ask.held is not None and _overlap(ask.held, plan):
        return False
    trial = Overlay(columns)
    needs, at = place.needs, plan.in_slice
    trial.give_back(plan.seats, needs, at)
    trial.take(plan.seats, needs, at)
    return not trial.is_overdrawn(plan.seats, needs, at)


def _may_use(ask: PlacementRequest, model: str) -> bool:
    """Whether the queue lets the job have this GPU model now."""
    listed = accelerators_of(ask)
    return not listed or any(listed[choice].model in (None, model) for choice in choices_of(ask))


def _overlap(held: Reservation, plan: Plan) -> bool:
    """Whether some seat lies where room is reserved for another job."""
    if held.region != plan.region:
        return False
    kept = {(seat.host, slot) for seat in held.seats for slot in seat.slots}
    return any((seat.host, slot) in kept for seat in plan.seats for slot in seat.slots)
