"""The auction: a pending decision, the bids of the regions, which plan wins, and why.

Nothing here changes the queue: the cycle acts on it, and `explain` tells from it what the cycle
would do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType

from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.data.catalogue import DataCost
from topmast.model.decided import Decided, Rival, Rule
from topmast.model.messages import Bid
from topmast.model.plan import Binding, PlacementRequest, Plan, Reservation
from topmast.model.reason import PRECEDENCE, PendingReason, Rejection


class Phase(StrEnum):
    """A stage between a candidate and the decision about it; `pipeline` says when each applies."""

    COLOCATE = "colocate"
    FREE = "free"
    NEAR_DATA = "near-data"
    MOVE = "move"
    SHRINK = "shrink"
    PREEMPT = "preempt"
    COPY_OR_WAIT = "copy-or-wait"
    RESERVE = "reserve"


class Nearby(Struct, frozen=True):
    """What regions that have a job's data expect."""

    could: bool
    """Whether any of them could ever hold the job."""
    room_s: float | None
    """When the first of them expects room."""


class PendingDecision(Struct, gc=False):
    """One job on its way through the pipeline."""

    candidate: Candidate
    by_mode: dict[bool, tuple[int, ...]]
    """By mode, the accelerators that its quota allows."""
    colocated_with: str = ""
    """The job that it is to share GPUs with in this round."""

    # What the checks of `admission` find:
    choices: tuple[int, ...] = ()
    """The accelerators that it may use."""
    costs: dict[str, DataCost] = {}
    """By region, what it takes to have its data there."""
    regions: list[str] = []
    """Where it may be placed."""

    changes: int = 0
    """How much had changed in the backlog when its turn came: what changes while regions search may
    help it, though none of the later phases asks about that."""

    # What the phases of `pipeline` find:
    phase: Phase = Phase.FREE
    best: Plan | None = None
    """The best plan of earlier phases."""
    found_in: Phase = Phase.FREE
    """The phase that found it."""
    lease: str = ""
    """Under which it is kept in a region apart."""
    nearby: Nearby | None = None
    """What regions near its data said, once they were asked."""
    refused: dict[str, PendingReason] = {}
    """Why regions had no place in earlier phases, some of which are not asked in later ones."""

    # The request of this phase:
    batch: int = 0
    awaited: list[str] = []
    deadline_s: float = 0.0
    kind: PlacementRequest | None = None
    """What regions apart are asked, as other jobs may ask it."""
    held: Reservation | None = None
    """The reservation of another job that had to be respected."""
    bids: dict[str, Bid] = {}
    silent: tuple[str, ...] = ()

    def reasons(self) -> dict[str, PendingReason]:
        """By region, why it had no place when it was asked last. O(regions)."""
        if not self.bids:
            return self.refused
        last = {region: bid.reason for region, bid in self.bids.items()}
        return self.refused | {region: why for region, why in last.items() if why is not None}

    def plans(self) -> list[Plan]:
        """All plans that are known for the job."""
        found = [] if self.best is None else [self.best]
        for bid in self.bids.values():
            if bid.plan is not None:
                found.append(bid.plan)  # noqa: PERF401  (most often there is one)
        return found

    def carry(self, elastic: bool) -> None:
        """A phase decided nothing: keep its best plan, and what regions near the data said."""
        best = winner(self.plans(), elastic)
        if best is not self.best:
            self.best, self.found_in, self.lease = best, self.phase, self.lease_of(best)
        if self.phase is Phase.NEAR_DATA:
            self.nearby = self._nearby()

    def _nearby(self) -> Nearby:
        busy = PendingReason.INSUFFICIENT_CAPACITY
        could = [bid for bid in self.bids.values() if bid.reason is busy]
        kept = (bid.reservation for bid in could)
        return Nearby(bool(could), earliest(held.from_s for held in kept if held is not None))

    def lease_of(self, plan: Plan | None) -> str:
        """Under which a plan is kept in a region apart; empty if it is not."""
        if plan is None or plan is self.best:
            return self.lease
        bid = self.bids[plan.region]
        return "" if bid.hold is None else bid.hold.id


def decided_by(
    decision: PendingDecision,
    plan: Plan,
    *,
    elastic: bool,
    bound: Binding | None = None,
    absent: Collection[str] = (),
) -> Decided:
    """Why a plan was chosen: the rule, and the best of the others.

    ``absent``: regions that could not be asked.
    """
    others = [other for other in decision.plans() if other is not plan]
    best = winner(others, elastic) if others else None
    rival: Rival | UnsetType = UNSET
    if best is not None:
        copies = bool(decision.costs[best.region].missing)
        rival = Rival(best.region, best.cluster, best.score, copies, bool(best.victims))
    silent: tuple[str, ...] = ()
    if not bound and (decision.silent or absent):
        silent = tuple(sorted({*decision.silent, *absent}))
    rule = _rule(decision, plan, others, elastic)
    return Decided(rule, rival, bound or UNSET, silent or UNSET)


RULE_OF = {
    Phase.COLOCATE: Rule.SHARED_GPUS,
    Phase.MOVE: Rule.MOVES_JOBS,
    Phase.SHRINK: Rule.SHRINKS_JOBS,
    Phase.PREEMPT: Rule.STOPS_JOBS,
}
"""Phases that choose a plan for what makes it possible."""


def _rule(decision: PendingDecision, plan: Plan, others: list[Plan], elastic: bool) -> Rule:
    bid = decision.bids.get(plan.region)
    if bid is not None and bid.plan is plan and bid.kept:
        return Rule.KEPT_PLACE
    phase = decision.found_in if plan is decision.best else decision.phase
    rule = RULE_OF.get(phase)
    if rule is not None and (plan.victims or plan.colocated_with):
        return rule
    if others and winner([plan, *others], elastic) is not plan:
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
    """The reason nearest to a start: if one region could hold the job, that decides."""
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
