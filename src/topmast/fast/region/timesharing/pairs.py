"""Guests: a gang on the GPUs of another, its host, at the same time; the books count those once.

A guest takes CPUs and memory of its own and, in the columns, nothing of the GPUs: its seats bear 0
thousandths there. When its host ends, the GPUs are its own. Whatever leaves the placer has the
seats as they are. The question names the host; pairs are not chosen here.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import UNSET
from msgspec.structs import replace

from topmast.fast.region.inventory.allocation import Allocation, AllocationPhase
from topmast.fast.region.inventory.overlay import Overlay
from topmast.fast.region.inventory.pair_seats import to_external
from topmast.fast.region.state import RegionState
from topmast.model import messages as m
from topmast.model.plan import PlacementRequest, Plan, Seat
from topmast.model.reason import PendingReason

ABLE = (AllocationPhase.STARTING, AllocationPhase.RUNNING)
"""An attempt in another phase is about to leave its GPUs, or has not got them yet."""


def offer(placer: RegionState, ask: PlacementRequest, beside: str) -> m.Bid:
    """The place beside the job named, if the gang can have it now. O(attempts + seats)."""
    host = placer.state.allocations.get(beside)
    plan = None if host is None else _plan_on(placer, host, ask)
    if plan is None or _why_not(placer, plan, placer.columns.excluded(ask)):
        return m.Bid(ask.job, None, PendingReason.INSUFFICIENT_CAPACITY)
    trial = Overlay(placer.columns)
    needs = {group.name: group.resources for group in ask.groups}
    trial.take(plan.seats, needs, plan.in_slice)
    if any(trial.overdrawn(seat, needs[seat.group], plan.in_slice) for seat in plan.seats):
        return m.Bid(ask.job, None, PendingReason.INSUFFICIENT_CAPACITY)
    return m.Bid(ask.job, plan)


def _plan_on(placer: RegionState, host: Allocation, ask: PlacementRequest) -> Plan | None:
    """The seats of the host, rank by rank; None where the gangs are not of one form."""
    group, seats = ask.groups[0], host.plan.seats
    if len(ask.groups) != 1 or len(seats) != group.count:
        return None
    own = tuple(Seat(group.name, rank, s.host, s.slots, 0) for rank, s in enumerate(seats))
    return replace(
        host.plan, job=ask.job, seats=own, score=0.0, terms={}, victims=(), data_s=0.0,
        data_bytes=0, region_version=placer.state.version, beside=host.job,
    )  # fmt: skip


def why_not(placer: RegionState, plan: Plan) -> str:
    """Why a guest cannot have its place; empty if it can, or if it is no guest. O(attempts)."""
    return _why_not(placer, plan, ()) if plan.beside else ""


def _why_not(placer: RegionState, plan: Plan, excluded: Collection[int]) -> str:
    host = placer.state.allocations.get(plan.beside or "")
    if host is None or host.hold not in ABLE:
        return f"{plan.beside} does not run there"
    if host.plan.beside:
        return f"{plan.beside} is a guest itself"
    if any(a.plan.beside == host.job for a in placer.state.allocations.values()):
        return f"{plan.beside} shares its GPUs with another"
    if [(s.host, s.slots) for s in host.plan.seats] != [(s.host, s.slots) for s in plan.seats]:
        return f"{plan.beside} has other GPUs"
    if any(row in excluded for row in placer.columns.rows_of(plan.hosts)):
        return f"{plan.beside} is on a host that the job may not use"
    there = placer.columns.take_work(plan.hosts, plan.in_slice)
    return "" if there else f"a host of {plan.beside} takes no work"


def inherit(placer: RegionState, gone: str) -> None:
    """The guest of a gone job has the GPUs for itself: the same whenever it is replayed.

    O(attempts), where pairs are shared.
    """
    for guest in placer.state.allocations.values():
        if guest.plan.beside == gone:
            placer.columns.give_back(guest.plan.seats, guest.needs())
            guest.plan = replace(to_external(guest.plan), beside=UNSET)
            placer.columns.take(guest.plan.seats, guest.needs())
            return
