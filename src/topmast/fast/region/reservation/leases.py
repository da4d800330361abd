"""Seats that are spoken for: offered over a network, and kept until a commit, a refusal, or a time.

Working memory. A commit validates its plan against the books whether or not a lease is left, so
that nothing is lost with a lease but the certainty that the plan will still fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.inventory.overlay import Overlay
from topmast.model.job import Resources
from topmast.model.plan import PlacementRequest, Plan, needs_of


class _Held(Struct, frozen=True):
    plan: Plan
    needs: dict[str, Resources]
    expires_s: float


class OfferLeases:
    """By lease, the plan that was offered. The columns count its seats as taken.

    All leases last equally long, so the first is the first to expire.
    """

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._stopping: dict[str, Plan] = {}
        """Those with victims."""

    def __len__(self) -> int:
        return len(self._held)

    def take(
        self, columns: Columns, lease: str, ask: PlacementRequest, plan: Plan, expires_s: float
    ) -> None:
        """Keep the seats of a plan until ``expires_s``. O(slots)."""
        self.drop(columns, lease)
        held = self._held[lease] = _Held(plan, needs_of(ask.groups), expires_s)
        if plan.victims:
            self._stopping[lease] = plan
        columns.take(plan.seats, held.needs, plan.in_slice)

    def drop(self, columns: Columns, lease: str) -> Plan | None:
        """Let go of a lease; returns what it held, if it was there. O(slots)."""
        held = self._held.pop(lease, None)
        if held is None:
            return None
        self._stopping.pop(lease, None)
        columns.give_back(held.plan.seats, held.needs, held.plan.in_slice)
        return held.plan

    def drop_due(self, columns: Columns, now: float) -> None:
        """Let go of what has expired. O(leases)."""
        for lease in [name for name, held in self._held.items() if held.expires_s <= now]:
            self.drop(columns, lease)

    @contextmanager
    def aside(self, columns: Columns) -> Iterator[None]:
        """Look at the columns as if nothing were offered. O(leases x slots)."""
        leases, self._held = self._held, {}
        stopping, self._stopping = self._stopping, {}
        for held in leases.values():
            columns.give_back(held.plan.seats, held.needs, held.plan.in_slice)
        try:
            yield
        finally:
            for held in leases.values():
                columns.take(held.plan.seats, held.needs, held.plan.in_slice)
            self._held, self._stopping = leases, stopping

    def yield_to(self, columns: Columns, plan: Plan, needs: dict[str, Resources]) -> list[str]:
        """Let go of leases until a plan fits that was found without them; returns these.

        The last in the line go first. O(leases x slots).
        """
        victims, hosts = {victim.job for victim in plan.victims}, frozenset(plan.hosts)
        gone = []
        for lease, held in reversed(list(self._held.items())):
            shares = any(victim.job in victims for victim in held.plan.victims)
            if shares or (hosts.intersection(held.plan.hosts) and not _fits(columns, plan, needs)):
                self.drop(columns, lease)
                gone.append(lease)
        return gone

    def forget(self) -> None:
        """The columns are made anew: they know of no lease."""
        self._held.clear()
        self._stopping.clear()

    def victims(self) -> frozenset[str]:
        """Running jobs that an offer may stop: no other offer may count on them. O(those)."""
        return frozenset(v.job for plan in self._stopping.values() for v in plan.victims)

    def next_expiry_s(self) -> float | None:
        """When the first lease expires. O(1)."""
        return next((held.expires_s for held in self._held.values()), None)


def _fits(columns: Columns, plan: Plan, needs: dict[str, Resources]) -> bool:
    """Whether the seats are free beside all leases; those of victims come free. O(slots)."""
    if plan.victims:
        return False  # what its victims hold is counted at the commit
    trial = Overlay(columns)
    trial.take(plan.seats, needs, plan.in_slice)
    return not trial.is_overdrawn(plan.seats, needs, plan.in_slice)
