"""The seats of guests, who have the GPUs of others at the same time: in the books they take none (see guests)."""

from __future__ import annotations

from msgspec.structs import replace

from topmast.model.job import MILLI
from topmast.model.plan import Plan, Seat


def booked(plan: Plan) -> Plan:
    """A plan as the books have it. O(seats); the same plan for one without a host."""
    return _with_milli(plan, 0) if plan.beside else plan


def shown(plan: Plan) -> Plan:
    """A plan as people know it. O(seats)."""
    return _with_milli(plan, MILLI) if plan.beside else plan


def _with_milli(plan: Plan, milli: int) -> Plan:
    seats = tuple(Seat(s.group, s.rank, s.host, s.slots, milli) for s in plan.seats)
    return replace(plan, seats=seats)
