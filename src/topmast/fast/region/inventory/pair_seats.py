"""The seats of a secondary, on its primary's GPUs: here it takes none of them (see pairs)."""

from __future__ import annotations

from msgspec.structs import replace

from topmast.model import messages as m
from topmast.model.job import MILLI
from topmast.model.plan import Plan, Seat


def to_internal(plan: Plan) -> Plan:
    """A plan as the region keeps it. O(seats); the same plan for one that is no secondary's."""
    return _with_milli(plan, 0) if plan.colocated_with else plan


def to_external(plan: Plan) -> Plan:
    """A plan as it leaves the region. O(seats)."""
    return _with_milli(plan, MILLI) if plan.colocated_with else plan


def bid_to_external(bid: m.Bid) -> m.Bid:
    """A bid as it leaves the region."""
    if bid.plan is None or not bid.plan.colocated_with:
        return bid
    return replace(bid, plan=to_external(bid.plan))


def _with_milli(plan: Plan, milli: int) -> Plan:
    seats = tuple(Seat(s.group, s.rank, s.host, s.slots, milli) for s in plan.seats)
    return replace(plan, seats=seats)
