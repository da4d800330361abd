"""Job pairs: a secondary on the GPUs of its primary, at the same time; the books count those once.

A secondary takes CPUs and memory of its own and, in the columns, nothing of the GPUs: its seats
bear 0 thousandths there. When its primary ends, the GPUs are its own. Whatever leaves the placer
has the seats as they are. The request names the primary; pairs are not chosen here.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import UNSET
from msgspec.structs import replace

from topmast.fast.region.hooks import SharingHooks
from topmast.fast.region.inventory.allocation import GOING, Allocation, to_external
from topmast.fast.region.inventory.overlay import Overlay
from topmast.fast.region.state import RegionState
from topmast.model import messages as m
from topmast.model.plan import PlacementRequest, Plan, Seat, needs_of


class PairHooks(SharingHooks):
    """The part that pairs take in a region."""

    def __init__(self, placer: RegionState) -> None:
        self._placer = placer

    def colocate(self, ask: PlacementRequest, job: str) -> m.Bid:
        """The place on the GPUs of the job, if the gang can have it now. O(attempts + seats)."""
        columns = self._placer.columns
        primary = self._placer.state.allocations.get(job)
        plan = None if primary is None else self._plan_on(primary, ask)
        if plan is not None and not self._why_not(plan, columns.excluded(ask)):
            trial, needs = Overlay(columns), needs_of(ask.groups)
            trial.take(plan.seats, needs, plan.in_slice)
            if not trial.is_overdrawn(plan.seats, needs, plan.in_slice):
                return m.Bid(ask.job, plan)
        return super().colocate(ask, job)

    def _plan_on(self, primary: Allocation, ask: PlacementRequest) -> Plan | None:
        """The seats of the primary, rank by rank; None where the gangs are not of one form."""
        group, seats = ask.groups[0], primary.plan.seats
        if len(ask.groups) != 1 or len(seats) != group.count:
            return None
        own = tuple(Seat(group.name, rank, s.host, s.slots, 0) for rank, s in enumerate(seats))
        return replace(
            primary.plan, job=ask.job, seats=own, score=0.0, terms={}, victims=(), data_s=0.0,
            data_bytes=0, region_version=self._placer.state.version, colocated_with=primary.job,
        )  # fmt: skip

    def why_not(self, plan: Plan) -> str:
        """Why a secondary cannot have its place; empty if it can, or for any other. O(attempts)."""
        return self._why_not(plan, ()) if plan.colocated_with else ""

    def _why_not(self, plan: Plan, excluded: Collection[int]) -> str:
        job, columns = plan.colocated_with or "", self._placer.columns
        held = self._placer.state.allocations
        primary = held.get(job)
        if primary is None or primary.hold not in GOING:
            return f"{job} does not run there"
        if primary.plan.colocated_with:
            return f"{job} is the secondary of a pair itself"
        if any(a.plan.colocated_with == job for a in held.values()):
            return f"{job} shares its GPUs with another"
        one, two = ([(s.host, s.slots) for s in p.seats] for p in (primary.plan, plan))
        if one != two:
            return f"{job} has other GPUs"
        if any(row in excluded for row in columns.rows_of(plan.hosts)):
            return f"{job} is on a host that this job may not use"
        there = columns.take_work(plan.hosts, plan.in_slice)
        return "" if there else f"a host of {job} takes no work"

    def on_freed(self, job: str) -> None:
        """The secondary of a gone job has the GPUs for itself: the same whenever it is replayed.

        O(attempts), where pairs are shared.
        """
        columns = self._placer.columns
        for secondary in self._placer.state.allocations.values():
            if secondary.plan.colocated_with == job:
                columns.give_back(secondary.plan.seats, secondary.needs())
                secondary.plan = replace(to_external(secondary.plan), colocated_with=UNSET)
                columns.take(secondary.plan.seats, secondary.needs())
                return
