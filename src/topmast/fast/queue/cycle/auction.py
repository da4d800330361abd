"""The auction: the regions' offers for one job, which plan wins or what is asked next, and why.

Nothing here writes anything: the queue acts on the step, and `explain` follows the same steps to tell what
the queue would do.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

from msgspec import UNSET, Struct, UnsetType

from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.data.catalogue import DataCost
from topmast.model.decided import Decided, Rival, Rule
from topmast.model.messages import Bid
from topmast.model.plan import Binding, Plan, Reservation
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
    offers: dict[str, Bid] = {}
    free_best: Plan | None = None
    silent: tuple[str, ...] = ()
    moves: bool = False
    copies: bool = False
    nearby: Nearby | None = None
    shrinks: bool = False

    def plans(self) -> list[Plan]:
        """All plans that are known for the job."""
        known = (self.free_best, *(offer.plan for offer in self.offers.values()))
        return [plan for plan in known if plan is not None]

    def what_is_nearby(self) -> Nearby | None:
        """What is known of room near the data: told just now, or to an earlier question about the same job."""
        if not self.copies:
            return self.nearby
        busy = PendingReason.INSUFFICIENT_CAPACITY
        could = [offer for offer in self.offers.values() if offer.reason is busy]
        kept = (offer.reservation for offer in could)
        return Nearby(bool(could), earliest(held.from_s for held in kept if held is not None))


class Step(StrEnum):
    """What follows from the offers for a job."""

    COMMIT = "commit"
    ASK_NEAR = "ask where its data is"
    MOVE = "ask for moves"
    SHRINK = "ask for smaller jobs"
    STOP = "ask for victims"
    FETCH = "fetch data"
    REFUSE = "refuse"


class Options(Protocol):
    """What the queue may do for the job that is asked about. Each is looked up only where it matters."""

    @property
    def is_elastic(self) -> bool:
        """Whether more tasks are better."""
        ...

    def has_data_somewhere(self) -> bool:
        """Whether some region that can be asked has all its data."""
        ...

    def weighs_copies(self, region: str) -> bool:
        """Whether a copy to a region has to be worth it."""
        ...

    def may_move(self) -> bool:
        """Whether jobs may be moved for it."""
        ...

    def may_shrink(self) -> bool:
        """Whether elastic jobs may be made smaller for it."""
        ...

    def may_stop(self) -> bool:
        """Whether jobs may be stopped for it."""
        ...


def next_step(asking: Asking, may: Options) -> tuple[Step, Plan | None]:
    """What follows when all offers are in: commit the best plan, order its data, ask for more, or refuse.

    More is: with moves, if it waited long; with elastic jobs made smaller, which decides it if that makes room; and
    with preemption. The better of moves and preemption wins. Nothing is copied while a free place has the data.
    """
    best = winner(asking.plans(), may.is_elastic)
    stops = not asking.preempt and may.may_stop()
    has_data = best is not None and not asking.costs[best.region].missing
    if best is not None and has_data and (not best.victims or asking.shrinks or not stops):
        return Step.COMMIT, best
    if asking.copies:
        here = winner((o.plan for o in asking.offers.values()), may.is_elastic)
        if here is not None:
            return Step.COMMIT, here
    if may.has_data_somewhere():
        unknown = asking.what_is_nearby() is None
        if best is not None and not has_data and unknown and may.weighs_copies(best.region):
            return Step.ASK_NEAR, best
        if may.may_move():
            return Step.MOVE, best
        if may.may_shrink():
            return Step.SHRINK, best
    if stops:
        return Step.STOP, best
    return (Step.REFUSE, None) if best is None else (Step.FETCH, best)


def decided_by(
    asking: Asking,
    plan: Plan,
    *,
    elastic: bool,
    bound: Binding | None = None,
    absent: Iterable[str] = (),
) -> Decided:
    """Why a plan was chosen: the rule, and the best of the others. ``absent``: regions that could not be asked."""
    others = [other for other in asking.plans() if other is not plan]
    best = winner(others, elastic)
    rival: Rival | UnsetType = UNSET
    if best is not None:
        copies = bool(asking.costs[best.region].missing)
        rival = Rival(best.region, best.cluster, best.score, copies, bool(best.victims))
    silent = () if bound else tuple(sorted({*asking.silent, *absent}))
    rule = _rule(asking, plan, others, elastic)
    return Decided(rule, rival, bound or UNSET, silent or UNSET)


def _rule(asking: Asking, plan: Plan, others: list[Plan], elastic: bool) -> Rule:
    offer = asking.offers.get(plan.region)
    if offer is not None and offer.plan is plan and offer.kept:
        return Rule.KEPT_PLACE
    if plan.beside:
        return Rule.SHARED_GPUS
    if plan.victims:
        if asking.shrinks:
            return Rule.SHRINKS_JOBS
        moves = all(victim.to is not None for victim in plan.victims)
        return Rule.MOVES_JOBS if moves else Rule.STOPS_JOBS
    if winner([plan, *others], elastic) is not plan:
        return Rule.HAS_DATA  # for nothing else passes over a better plan
    return Rule.MOST_TASKS if elastic else Rule.LOWEST_SCORE


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
