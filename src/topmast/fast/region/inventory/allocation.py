"""What a region has given away: one entry for every attempt that holds slots."""

from __future__ import annotations

from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType

from topmast.model.job import Band, JobSpec, Resources
from topmast.model.plan import Plan
from topmast.model.states import Outcome


class AllocationPhase(StrEnum):
    """Why the slots are held."""

    CLAIMED = "claimed"
    """Victims still use some of them."""
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class Allocation(Struct, gc=False):
    """An attempt's slots. ``band`` is the effective one; ``waiting_for`` lists victims by job.

    ``expected_s``: how long it is expected to run. ``start_s``: when the slots were taken; ``kept_until_s``: of the last checkpoint.
    ``paired``: who has the same GPUs at the same time, for that was tried.
    """

    plan: Plan
    epoch: int
    spec: JobSpec
    band: Band
    start_s: float
    time_left_s: float | None
    hold: AllocationPhase
    waiting_for: list[str]
    running_s: float | None = None
    kept_until_s: float | None = None
    why: Outcome | None = None
    expected_s: float | None = None
    paired: str | UnsetType = UNSET

    @property
    def job(self) -> str:
        """The job that holds the slots."""
        return self.plan.job

    def needs(self) -> dict[str, Resources]:
        """Resources of a task by group name."""
        return {group.name: group.resources for group in self.spec.groups}

    def kept_from_s(self) -> float | None:
        """Up to when its work is kept: the last checkpoint; None while it has not begun to run."""
        if self.running_s is None:
            return None
        return max(self.kept_until_s or self.running_s, self.running_s)

    def lost_s(self, now: float) -> float:
        """Seconds of work that stopping now would lose: all since the last checkpoint."""
        kept_s = self.kept_from_s()
        return 0.0 if kept_s is None else max(0.0, now - kept_s)
