"""What a region has given away: one entry for every attempt that holds slots."""

from __future__ import annotations

from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from topmast.model import messages as m
from topmast.model.job import MILLI, Band, JobSpec, Resources
from topmast.model.plan import Plan, Seat, needs_of
from topmast.model.states import Outcome


class AllocationPhase(StrEnum):
    """Why the slots are held."""

    CLAIMED = "claimed"
    """Victims still use some of them."""
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


GOING = (AllocationPhase.STARTING, AllocationPhase.RUNNING)
"""In another phase an attempt is about to leave its slots, or has not got them yet."""


class Allocation(Struct, gc=False, omit_defaults=True):
    """An attempt's slots."""

    plan: Plan
    epoch: int
    spec: JobSpec
    band: Band
    """The effective band."""
    start_s: float
    """When the slots were taken."""
    time_left_s: float | None
    hold: AllocationPhase
    waiting_for: list[str]
    """Victims, by job."""
    running_s: float | None = None
    kept_until_s: float | None = None
    """The time of the last checkpoint."""
    why: Outcome | None = None
    expected_s: float | None = None
    """The expected run time."""
    paired: str | UnsetType = UNSET
    """The job that shares its GPUs at the same time, after a trial."""

    @property
    def job(self) -> str:
        """The job that holds the slots."""
        return self.plan.job

    def needs(self) -> dict[str, Resources]:
        """Resources of a task by group name."""
        return needs_of(self.spec.groups)

    @property
    def may_stop(self) -> bool:
        """Whether it may be stopped for others, once it is old enough."""
        return self.spec.preemptible and self.hold in GOING

    def kept_from_s(self) -> float | None:
        """Up to when its work is kept: the last checkpoint; None while it has not begun to run."""
        if self.running_s is None:
            return None
        return max(self.kept_until_s or self.running_s, self.running_s)

    def lost_s(self, now: float) -> float:
        """Seconds of work that stopping now would lose: all since the last checkpoint."""
        kept_s = self.kept_from_s()
        return 0.0 if kept_s is None else max(0.0, now - kept_s)


OVERRUNS_S = (
    60.0,
    300.0,
    900.0,
    1_800.0,
    3_600.0,
    7_200.0,
    18_000.0,
    36_000.0,
    72_000.0,
    180_000.0,
)
"""An attempt that should be over is expected to overrun by the first of these that lies ahead: the
later it is, the less is known (Tsafrir et al., Backfilling using system-generated predictions)."""


def expected_end_s(allocation: Allocation, default_s: float, now: float) -> float:
    """When an attempt is expected to let go of its seats."""
    if allocation.hold is AllocationPhase.STOPPING:
        return now
    expected_s = default_s if allocation.expected_s is None else allocation.expected_s
    end_s = allocation.start_s + expected_s
    if end_s >= now:
        return end_s
    return next((end_s + more for more in OVERRUNS_S if end_s + more > now), now + OVERRUNS_S[-1])


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
