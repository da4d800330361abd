"""Seats that are spoken for: offered over a network, and kept until a commit, a refusal, or a time.

Working memory. A commit validates its plan against the books whether or not a hold is left, so that
nothing is lost with a hold but the certainty that the plan will still fit.
"""

from __future__ import annotations

from msgspec import Struct

from topmast.fast.region.inventory.columns import Columns
from topmast.model.job import Resources
from topmast.model.plan import PlacementRequest, Plan, needs_of


class _Held(Struct, frozen=True):
    id: str
    plan: Plan
    needs: dict[str, Resources]
    victims: tuple[str, ...]
    expires_s: float


class OfferLeases:
    """At most one hold for a job. The columns count held seats as taken, with victims' seats."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self.denied = False
        """Whether a job found no place while anything was held."""

    def __len__(self) -> int:
        return len(self._held)

    def take(
        self, columns: Columns, hold_id: str, ask: PlacementRequest, plan: Plan, expires_s: float
    ) -> None:
        """Keep the seats of a plan for its job until ``expires_s``. O(slots)."""
        needs = needs_of(ask.groups)
        victims = tuple(victim.job for victim in plan.victims)
        self._held[ask.job] = _Held(hold_id, plan, needs, victims, expires_s)
        columns.take(plan.seats, needs, plan.in_slice)

    def drop(self, columns: Columns, job: str) -> str:
        """Let go of a job's hold; returns the hold's id, empty if there was none. O(slots)."""
        held = self._held.pop(job, None)
        if held is None:
            return ""
        columns.give_back(held.plan.seats, held.needs, held.plan.in_slice)
        return held.id

    def claim(self, columns: Columns, hold_id: str, job: str) -> str:
        """Let go of the hold that a job's commit names, perhaps another job's; else of its own.

        Returns the id of what was let go, empty if there was nothing. O(holds + slots).
        """
        if not self._held:
            return ""
        named = [owner for owner, held in self._held.items() if hold_id and held.id == hold_id]
        return self.drop(columns, named[0] if named else job)

    def drop_due(self, columns: Columns, now: float) -> bool:
        """Let go of what has expired; whether there was anything. O(holds)."""
        due = [job for job, held in self._held.items() if held.expires_s <= now]
        for job in due:
            self.drop(columns, job)
        return bool(due)

    def forget(self) -> None:
        """The columns are made anew: they know of no hold."""
        self._held.clear()

    def victims(self) -> frozenset[str]:
        """Running jobs that an offer may stop: no other offer may count on them. O(victims)."""
        return frozenset(job for held in self._held.values() for job in held.victims)

    def next_expiry_s(self) -> float | None:
        """When the first hold expires. O(holds)."""
        return min((held.expires_s for held in self._held.values()), default=None)
