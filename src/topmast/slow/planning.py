"""What a plan of data and a plan of capacity have in common: it is asked for, solved, and applied.

A plan stays active until the next one is valid. The classes have no clock, no thread and no solver:
a cadence drives them (see `topmast.runtime.planning`).
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from msgspec import Struct


class PlanRequest(Struct, frozen=True):
    """What to ask the planner. A subclass adds the problem and what the problem was made from."""

    number: int
    """Counts the requests of this process, from 1."""
    asked_s: float
    """When the snapshot was taken that the problem was made from."""


class ActivePlan(Struct, frozen=True):
    """The plan that is carried out now. A subclass adds what the plan decides."""

    number: int
    """That of its request."""
    asked_s: float
    """When it was asked for."""
    applied_s: float
    """When it became active."""
    figures: dict[str, Any]
    """Status, objective, gap and time of the planner, for reports."""


class PlanFailure(Struct, frozen=True):
    """Why the last plan was not applied."""

    at_s: float
    why: str


Plan = TypeVar("Plan", bound=ActivePlan)


class Planning(Generic[Plan]):
    """The active plan and the last failure. For one thread."""

    def __init__(self) -> None:
        self.active: Plan | None = None
        """None until the first plan is applied."""
        self.failure: PlanFailure | None = None
        """None after a plan that was applied."""
        self._requests = 0

    def _next_number(self) -> int:
        self._requests += 1
        return self._requests

    def _activate(self, plan: Plan) -> None:
        self.active, self.failure = plan, None

    def failed(self, why: str, now_s: float) -> None:
        """A plan is not applied: the last one stays active."""
        self.failure = PlanFailure(now_s, why)
