"""Prefetch: places that regions in other processes have offered before they are needed.

A region is asked about the next candidates in one message, by what they ask for: so many places for
jobs like this. What it offers is kept there for a while, and any job that asks for the same may
have it. Regions are asked again before their offers are used up, so that a decision seldom waits
for an answer. An offer was made before other jobs got their places: it is tried, and the commit is
validated in the region (ADR: remote placers).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from topmast.fast.queue.backlog.backlog import Backlog
from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.cycle.liveness import HOLD_S
from topmast.model.messages import Bid
from topmast.model.plan import PlacementRequest

MOST_JOBS = 1_000
"""More would make a message too large, and a region too slow to answer in time."""
FIRST_JOBS = 8
"""The candidates in the first message to a region."""
SLACK = 1.25
"""How many more places a region is asked for than its share of the jobs: shares change."""
LEAST_SHARE = 2.0
"""In equal shares: a region that lost lately may win a whole row of jobs, and none is to wait."""
CLOSE = 0.01
"""A region that has to be asked again is not waited for if its dearest offer is better by less."""
GOOD_FOR_S = HOLD_S / 2
"""Half of the time that seats are held for is left to the commit on its way."""


class Wanted(Struct, frozen=True):
    """Places that are wanted in a region for jobs that ask for the same."""

    kind: PlacementRequest
    """What they have in common; of a job that is asked about alone, with its name."""
    job: str
    """The first of them."""
    count: int


class _Question(Struct):
    """A message to a region that has not been answered."""

    kinds: tuple[PlacementRequest, ...]
    wanted: dict[PlacementRequest, int]
    until_s: float
    alone: bool
    """It is about one job and this moment only: what is offered is for no other."""


class _Offer(Struct):
    bid: Bid
    until_s: float
    """Not to be used later."""


class RegionOffers:
    """What one region has offered and refused, by what was asked, and what it is being asked."""

    def __init__(self) -> None:
        self.offers: dict[PlacementRequest, deque[_Offer]] = {}
        """In the order in which the region made them."""
        self.refused: dict[PlacementRequest, _Offer] = {}
        self.questions: dict[int, _Question] = {}
        """By batch."""
        self.is_full = False
        """A job found no free room there lately: the next may have to stop others."""
        self.prices: dict[PlacementRequest, float] = {}
        """By what was asked, the highest score of its offers, without the balance of the region.

        The last one filled up a host, perhaps, and the next begins a new one.
        """
        self.won = 0.0
        """Its offers that were taken, the older ones counted less."""
        self._kinds: dict[str, PlacementRequest] = {}
        """By lease, what was asked."""
        self._loose: dict[str, None] = {}
        """Leases of offers that are for no other job."""

    def is_coming(self, kind: PlacementRequest) -> bool:
        """Whether the region is just being asked for such places. O(questions)."""
        return any(kind in question.wanted for question in self.questions.values())

    def count(self, kind: PlacementRequest) -> int:
        """Places that are there or asked for. O(questions)."""
        coming = sum([question.wanted.get(kind, 0) for question in self.questions.values()])
        return coming + len(self.offers.get(kind, ()))

    def hear(self, question: _Question, counts: Iterable[int], bids: Sequence[Bid]) -> None:
        """Keep the answers to a question. O(answers)."""
        self.is_full = any(bid.reason is not None for bid in bids)
        left = iter(bids)
        for kind, count in zip(question.kinds, counts, strict=False):
            for bid in islice(left, count):
                if bid.plan is None:
                    if bid.reason is not None:
                        self.refused[kind] = _Offer(bid, question.until_s)
                    continue
                self.offers.setdefault(kind, deque()).append(_Offer(bid, question.until_s))
                if bid.hold is not None:
                    self._kinds[bid.hold.id] = kind
                    score = bid.plan.score - bid.plan.terms.get("balance", 0.0)
                    self.prices[kind] = max(score, self.prices.get(kind, score))
                    if question.alone:
                        self._loose[bid.hold.id] = None

    def answer(self, kind: PlacementRequest, now: float) -> Bid | None:
        """The next place that is offered, or why there is none; None: not known. O(expired)."""
        offers = self.offers.get(kind)
        while offers and offers[0].until_s < now:
            self._let_go(offers.popleft())
        if offers:
            return offers[0].bid
        refused = self.refused.get(kind)
        return refused.bid if refused is not None and now <= refused.until_s else None

    def keep(self, jobs: Mapping[PlacementRequest, int]) -> None:
        """Let go of places beyond so many of each kind, the last first. O(offers)."""
        for kind, offers in list(self.offers.items()):
            while len(offers) > jobs.get(kind, 0):
                self._let_go(offers.pop())
            if not offers:
                del self.offers[kind]

    def _let_go(self, offer: _Offer) -> None:
        if offer.bid.hold is not None:
            del self._kinds[offer.bid.hold.id]
            self._loose[offer.bid.hold.id] = None

    def remove(self, lease: str) -> None:
        """An offer is taken, or is no more. O(offers of its kind before it)."""
        self._loose.pop(lease, None)
        kind = self._kinds.pop(lease, None)
        if kind is None:
            return
        offers = self.offers[kind]
        at = next(i for i, o in enumerate(offers) if o.bid.hold and o.bid.hold.id == lease)
        del offers[at]
        if not offers:
            del self.offers[kind]

    def take_loose(self) -> tuple[str, ...]:
        """The leases that nothing need be held under any more. O(those)."""
        loose, self._loose = tuple(self._loose), {}
        for lease in loose:
            self.remove(lease)
        return loose

    def leases(self) -> tuple[str, ...]:
        """All under which something is held. O(offers)."""
        return tuple({**self._kinds, **self._loose})


class Prefetch:
    """What all regions apart have offered. Working memory.

    ``most_jobs``: candidates that are looked at ahead, at most; 1: job by job.
    """

    def __init__(self, most_jobs: int) -> None:
        self.most_jobs = min(most_jobs, MOST_JOBS)
        self.questions = 0
        """Messages sent."""
        self._regions: dict[str, RegionOffers] = {}
        self._looked_ahead = 0
        """Candidates that regions were asked about and that have not come up yet."""
        self._jobs = min(FIRST_JOBS, self.most_jobs)
        self._enough = 0
        """While regions were asked about more candidates than that, no more are looked at."""

    def of(self, region: str) -> RegionOffers:
        """What one region has offered."""
        known = self._regions.get(region)
        if known is None:
            known = self._regions[region] = RegionOffers()
        return known

    # --- looking ahead ----------------------------------------------------------------------------

    def came_up(self) -> None:
        """The next candidate has its turn. O(1)."""
        self._looked_ahead = max(0, self._looked_ahead - 1)

    def to_look_at(self, *, at_once: bool, is_due: bool) -> int:
        """How many candidates to look at now; 0 while enough are known. O(regions).

        ``at_once``: some region has no more for the next; it is asked unless it is being asked.
        ``is_due``: the next waits for an answer. Those behind it are asked about in the same
        message: else the first that asks for the same would wait once more.
        """
        if self.most_jobs == 1:
            return 0
        is_asked = any(offers.questions for offers in self._regions.values())
        at_once = is_due or (at_once and not is_asked)
        return self._jobs if at_once or self._looked_ahead <= self._enough else 0

    def looked_ahead(self, found: int) -> None:
        """So many candidates were found: the next time twice as many are looked for.

        Where these are all, it is time for more when half of them have come up, as ever: else each
        of the last candidates would be a reason to ask again.
        """
        is_all = found < self._jobs
        self._looked_ahead = found
        self._jobs = min(2 * self._jobs, self.most_jobs)
        self._enough = (found if is_all else self._jobs) // 2
        for offers in self._regions.values():
            offers.won /= 2

    def places(self, region: str, kind: PlacementRequest, jobs: int, regions: int) -> int:
        """How many more places a region is asked for, for so many jobs. O(regions + questions).

        Each is asked for as many as it is likely to get, as far as one can tell from the last
        decisions. What is offered is kept from other jobs meanwhile.
        """
        offers = self.of(region)
        if kind in offers.refused:
            return 0
        won = sum([one.won for one in self._regions.values()])
        share = max((offers.won + 1.0) / (won + regions), LEAST_SHARE / regions)
        return min(jobs, math.ceil(SLACK * share * jobs)) - offers.count(kind)

    # --- questions and answers --------------------------------------------------------------------

    def ask(
        self, region: str, batch: int, wanted: Sequence[Wanted], now: float, *, alone: bool
    ) -> tuple[str, ...]:
        """A message goes out; returns the leases that nothing need be held under. O(batch)."""
        self.questions += 1
        kinds = tuple([one.kind for one in wanted])
        counts = {one.kind: one.count for one in wanted}
        offers = self.of(region)
        loose = offers.take_loose()
        for kind in kinds if alone else ():
            offers.refused.pop(kind, None)
        offers.questions[batch] = _Question(kinds, counts, now + GOOD_FOR_S, alone)
        return loose

    def hear(
        self, region: str, batch: int, counts: Sequence[int], bids: Sequence[Bid]
    ) -> tuple[str, ...]:
        """The answers to a message; returns the leases of those that come too late. O(batch)."""
        question = self.of(region).questions.pop(batch, None)
        if question is None:
            return tuple(bid.hold.id for bid in bids if bid.hold is not None)
        self.of(region).hear(question, counts or (1,) * len(bids), bids)
        return ()

    def lose(self, region: str, leases: Iterable[str]) -> None:
        """Offers of a region made way for a job that was due. O(those)."""
        for lease in leases:
            self.of(region).remove(lease)

    def take(self, region: str, lease: str) -> None:
        """A plan is committed in a region. O(refused kinds)."""
        offers = self._regions.get(region)
        if offers is None:
            return
        offers.won += 1
        offers.remove(lease)
        # What may be stopped depends on what runs.
        for kind in [kind for kind in offers.refused if kind.preempt]:
            del offers.refused[kind]

    def spoil(self, region: str) -> None:
        """There is more room in a region. O(1)."""
        if region in self._regions:
            self._regions[region].refused.clear()

    def forget(self, region: str) -> tuple[str, ...]:
        """A region is out of reach, or its offers are worth nothing: what it holds expires."""
        offers = self._regions.pop(region, None)
        return () if offers is None else offers.leases()

    def release(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """No candidate is left: by region, the leases that nothing need be held under."""
        regions, self._regions = self._regions, {}
        self._looked_ahead, self._jobs = 0, min(FIRST_JOBS, self.most_jobs)
        self._enough = 0
        for region, offers in regions.items():
            if leases := offers.leases():
                yield region, leases


def following(backlog: Backlog, first: Candidate, count: int) -> list[Candidate]:
    """The candidates behind one, if each were placed. O(count + rows passed over)."""
    upcoming = backlog.ranking.upcoming
    modes = [
        [Candidate(job, key, over) for key, job in upcoming(over, count + 1)]
        for over in backlog.modes()
    ]
    ordered = merge(*modes, key=lambda c: (c.key, c.over_quota))
    return list(islice((c for c in ordered if c.job != first.job), count))


def offer_to(job: str, bid: Bid, price: float, load: float) -> Bid:
    """The same place for another job with the same request, with its region as full as it is now.

    ``price``: of a unit of ``load``.
    """
    plan = bid.plan
    if plan is None:
        return bid if bid.job == job else replace(bid, job=job)
    balance, before = price * load, plan.terms.get("balance")
    if before is None or bid.kept:
        return replace(bid, job=job, plan=replace(plan, job=job))
    terms: Mapping[str, float] = {**plan.terms, "balance": balance}
    score = plan.score - before + balance
    return replace(bid, job=job, plan=replace(plan, job=job, score=score, terms=terms))
