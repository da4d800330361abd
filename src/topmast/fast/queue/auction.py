"""The auction: the regions' offers for one job, and which plan wins."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from topmast.fast.queue.catalogue import DataCost
from topmast.fast.queue.pending import Candidate
from topmast.model.messages import Offer
from topmast.model.plan import Plan, Reservation
from topmast.model.reason import PRECEDENCE, PendingReason, Rejection


class Nearby(Struct, frozen=True):
    """What regions that have a job's data expect: whether any could ever hold it, and when the first has room."""

    could: bool
    room_s: float | None


class Asking(Struct, gc=False):
    """One job being asked about. ``free_best``: the best plan that needs no victims, if any.

    ``changes`` counts what had changed when it was asked about; ``held`` is the reservation of
    another job that it had to respect. ``moves``: others might be moved for it; ``shrinks``: made smaller.
    ``copies``: there is room away from its data, and the regions that have it are asked whether they have some too, or
    when; ``nearby`` is what they said.
    """

    batch: int
    candidate: Candidate
    choices: tuple[int, ...]
    preempt: bool
    awaited: list[str]
    deadline_s: float
    costs: dict[str, DataCost]
    changes: int
    held: Reservation | None = None
    offers: dict[str, Offer] = {}
    free_best: Plan | None = None
    silent: tuple[str, ...] = ()
    moves: bool = False
    copies: bool = False
    nearby: Nearby | None = None
    shrinks: bool = False


def winner(plans: Iterable[Plan | None], elastic: bool = False) -> Plan | None:
    """The plan with the lowest score; ties by region, then cluster name.

    Of an ``elastic`` gang that with the most tasks, unless data has to come first.
    """
    there = [plan for plan in plans if plan is not None]
    if len(there) < 2:
        return there[0] if there else None
    if elastic:
        return min(there, key=_roomiest)
    return min(there, key=lambda p: (p.score, p.region, p.cluster), default=None)


def _roomiest(plan: Plan) -> tuple[bool, int, float, str, str]:
    waits = plan.data_bytes > 0 or plan.data_s > 0
    return (waits, -len(plan.seats), plan.score, plan.region, plan.cluster)


def most_hopeful(reasons: Iterable[PendingReason | None]) -> PendingReason:
    """Of the regions' reasons the one nearest to a start: if one could hold the job, that decides."""
    there = [reason for reason in reasons if reason is not None]
    return max(there, key=PRECEDENCE.index, default=PendingReason.NO_MATCHING_HARDWARE)


def no_region(costs: Iterable[DataCost]) -> PendingReason:
    """Why no region may be asked: one that could be is out of reach, or the data is elsewhere."""
    if any(cost.barred is Rejection.UNREACHABLE for cost in costs):
        return PendingReason.INSUFFICIENT_CAPACITY
    return PendingReason.WAITING_FOR_DATA


def earliest(times_s: Iterable[float | None]) -> float | None:
    """The first of some times, if any."""
    first_s: float | None = None
    for at_s in times_s:
        if at_s is not None and (first_s is None or at_s < first_s):
            first_s = at_s
    return first_s
