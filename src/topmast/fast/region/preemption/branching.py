"""Branch and bound over attempts on several hosts, for mixed gangs.

For plain gangs `sections` does the same, compiled.

While such an attempt is undecided, each of its hosts in the domain is charged a part of its price;
the parts are never more than the whole. Then hosts are independent, and a knapsack over them gives
a bound from below, with seats. Where the hosts agree about every attempt, the bound is the score.
Where they do not, the search branches: once the attempt is stopped, once it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from topmast.fast.region.search.kernels import EPSILON, INFINITE
from topmast.model.plan import Plan

MOST_BRANCHES = 128
"""How often a request branches; exact if that suffices, else the best plan until then wins."""

UNDECIDED, PREEMPT, KEEP = 0, 1, 2

Decisions = Mapping[int, int]
"""By attempt, PREEMPT or KEEP; the others are undecided."""


class Offer(Struct, frozen=True):
    """What a domain costs under some decisions."""

    bound: float
    """Under these decisions no seats score lower."""
    plan: Plan
    """The seats found and the victims, with the score."""
    branch: int | None
    """The attempt to decide about next; None where the bound is the score."""


class BranchAndBound:
    """The best plan for one request so far, over all domains given to it."""

    def __init__(self) -> None:
        self.score: float = INFINITE
        self.plan: Plan | None = None
        self.branches_left = MOST_BRANCHES

    def look_at(self, offer_of: Callable[[Decisions], Offer | None]) -> None:
        """Find the best plan of a domain, if it is better than that known.

        ``offer_of``: what the domain offers under some decisions; None if that cannot be better.
        """
        stack: list[Decisions] = [{}]
        while stack:
            decisions = stack.pop()
            offer = offer_of(decisions)
            if offer is None or offer.bound >= self.score - EPSILON:
                continue
            if offer.plan.score < self.score - EPSILON:
                self.score, self.plan = offer.plan.score, offer.plan
            if offer.branch is None or self.branches_left == 0:
                continue
            if offer.bound < self.score - EPSILON:
                self.branches_left -= 1
                stack += [{**decisions, offer.branch: fate} for fate in (KEEP, PREEMPT)]
