"""What a tenant may spend in a month, and what happens at the limit."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

from msgspec import Struct

NEAR, FULL = 80, 100
"""Per cent of a budget at which it is told of."""


class AtLimit(StrEnum):
    """What happens when a budget is used up."""

    WARN = "warn"
    """It is told of, and nothing else."""
    HOLD = "hold"
    """Nothing of the tenant starts until the month is over; what runs goes on."""
    DRAIN = "drain"
    """What runs stops, too, at its checkpoints, unless it may not be preempted."""


class Budget(Struct, frozen=True):
    """What a tenant and those below it may use in a calendar month, in UTC."""

    gpu_hours: float | None = None
    """GPU-hours held, of all models."""
    usd: float | None = None
    """Their cost, by the prices of the fleet."""
    at_limit: AtLimit = AtLimit.WARN

    def used_percent(self, gpu_hours: float, usd: float) -> float:
        """How much of it is used: of the one that is used most."""
        parts = [
            100.0 * used / limit
            for used, limit in ((gpu_hours, self.gpu_hours), (usd, self.usd))
            if limit is not None
        ]
        return max(parts, default=0.0)

    def text(self) -> str:
        """In words."""
        limits = [f"{self.gpu_hours:,g} GPU-hours"] if self.gpu_hours is not None else []
        limits += [f"{self.usd:,g} USD"] if self.usd is not None else []
        return " and ".join(limits)


def month_of(now_s: float) -> str:
    """The month of a time, as ``2030-01``."""
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m")


def month_s(now_s: float) -> tuple[float, float]:
    """When the month of a time began, and when it ends."""
    now = datetime.fromtimestamp(now_s, UTC)
    begin = datetime(now.year, now.month, 1, tzinfo=UTC)
    later = (now.year + 1, 1) if now.month == 12 else (now.year, now.month + 1)
    return begin.timestamp(), datetime(*later, 1, tzinfo=UTC).timestamp()


class BudgetView(Struct, frozen=True):
    """A tenant's budget, and what is used of it this month."""

    tenant: str
    month: str
    at_limit: str
    """``warn``, ``hold`` or ``drain``."""
    used_gpu_hours: float
    """By the tenant and those below it."""
    used_usd: float
    used_percent: float
    """Of the limit of which most is used."""
    until_s: float
    """When the month ends."""
    gpu_hours: float | None = None
    """The limit; None: there is none."""
    usd: float | None = None
    """The limit; None: there is none."""
    unpriced_gpu_hours: float = 0.0
    """Hours of GPUs without a price, which cost nothing here."""
