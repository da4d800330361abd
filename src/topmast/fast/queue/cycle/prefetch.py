"""Looking ahead: what regions apart have answered about candidates whose turn has not come.

A region is asked about the next candidates in one message. It answers them in order and holds what it
offers, so that each later answer counts on all earlier ones being placed there: a ladder. An answer is
taken only while that is so, and only for the very question that the queue would put now. Whatever else has
happened, the region is asked anew; so a decision never differs from what one question at a time
would have led to. An offer that lost its auction is still good for the next job that asks for the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.backlog.ranking import Ranking
from topmast.fast.queue.cycle.liveness import HOLD_S
from topmast.model.messages import Bid
from topmast.model.plan import PlacementRequest

MOST_JOBS = 1_000
"""More would make a message too large, and a region too slow to answer in time."""
FIRST_JOBS = 8
"""How many candidates a region is asked about the first time."""


class Rung(Struct, frozen=True):
    """One answer. ``kind``: what was asked, but for the job and the balance of its region."""

    kind: PlacementRequest
    offer: Bid

    @property
    def is_held(self) -> bool:
        """Whether later answers count on this offer being taken."""
        return self.offer.hold is not None


class Ladder(Struct):
    """A region's answers to one batch, those taken left out.

    ``held_milli``: thousandths of GPUs that the queue must know as held in the region for the answers to
    hold good. ``taken``: some offer was committed. ``spoilt``: something else happened in the region.
    """

    batch: int
    asks: tuple[PlacementRequest, ...]
    held_milli: int
    until_s: float
    rungs: list[Rung] = []
    used: int = 0
    taken: bool = False
    spoilt: bool = False

    def stands(self, held_milli: int, now: float) -> bool:
        """Whether nothing has happened in the region but what the answers count on."""
        return not self.spoilt and now <= self.until_s and held_milli == self.held_milli

    def held(self) -> tuple[str, ...]:
        """The jobs in whose names seats are held."""
        return tuple(rung.offer.job for rung in self.rungs if rung.is_held)


class Ahead:
    """The ladders of all regions. Working memory; ``most_jobs`` of a batch, 1: job by job."""

    def __init__(self, most_jobs: int) -> None:
        self.most_jobs = min(most_jobs, MOST_JOBS)
        self.questions = 0
        """Batches sent."""
        self._ladders: dict[str, Ladder] = {}
        self._jobs: dict[str, int] = {}
        self._full: dict[str, bool] = {}

    def jobs(self, region: str) -> int:
        """How many candidates to ask a region about: more while all answers are used, else as many as were."""
        return self._jobs.get(region, min(FIRST_JOBS, self.most_jobs))

    def is_full(self, region: str) -> bool:
        """Whether somebody found no free room there lately: the next may have to stop others."""
        return self._full.get(region, False)

    def ask(
        self,
        region: str,
        batch: int,
        asks: tuple[PlacementRequest, ...],
        held_milli: int,
        now: float,
    ) -> tuple[str, ...]:
        """A batch goes out; returns the jobs for whom nothing need be held any more. O(batch)."""
        before = self._ladders.get(region)
        self.questions += 1
        # Half of the time that seats are held for is left to the commit on its way.
        self._ladders[region] = Ladder(batch, asks, held_milli, now + HOLD_S / 2)
        return () if before is None else before.held()

    def hear(self, region: str, batch: int, offers: tuple[Bid, ...]) -> None:
        """The answers to a batch, as many as there are; those to an older one are ignored. O(batch)."""
        ladder = self._ladders.get(region)
        if ladder is None or ladder.batch != batch or ladder.rungs:
            return
        ladder.rungs = [Rung(a.kind(), o) for a, o in zip(ladder.asks, offers, strict=False)]
        ladder.used = 1
        self._full[region] = any(o.reason is not None for o in offers)

    def answer(self, region: str, ask: PlacementRequest, held_milli: int, now: float) -> Bid | None:
        """What the region would answer now; None if it must be asked. O(batch)."""
        ladder = self._ladders.get(region)
        if ladder is None or self.most_jobs == 1 or not ladder.stands(held_milli, now):
            return None
        if ask.preempt and ladder.taken:
            return None  # whom it may stop depends on who runs
        kind = ask.kind()
        for rung in ladder.rungs:
            if rung.kind == kind and (rung.offer.plan is not None or rung.offer.reason is not None):
                ladder.used += 1
                return _offer_to(ask.job, rung.offer)
            if rung.is_held:
                self._jobs[region] = max(1, ladder.used)
                return None
        self._jobs[region] = min(2 * self.jobs(region), self.most_jobs)
        return None

    def take(self, region: str, hold: str, gpus_milli: int) -> None:
        """A plan is committed in a region: the answers that count on it stay. O(batch)."""
        ladder = self._ladders.get(region)
        if ladder is None:
            return
        for at, rung in enumerate(ladder.rungs):
            if hold and rung.offer.hold is not None and rung.offer.hold.id == hold:
                # Nothing before it was held, else it would not have been offered.
                ladder.rungs = ladder.rungs[at + 1 :]
                ladder.held_milli += gpus_milli
                ladder.taken = True
                ladder.spoilt |= rung.offer.plan is not None and bool(rung.offer.plan.victims)
                return
        ladder.spoilt = True

    def spoil(self, region: str) -> None:
        """Something else has happened in a region. O(1)."""
        ladder = self._ladders.get(region)
        if ladder is not None:
            ladder.spoilt = True

    def forget(self, region: str) -> None:
        """A region is out of reach: what it holds expires. O(1)."""
        self._ladders.pop(region, None)

    def release(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Nobody is to be asked about: by region, the jobs for whom nothing need be held. O(answers)."""
        ladders, self._ladders = self._ladders, {}
        for region, ladder in ladders.items():
            if held := ladder.held():
                yield region, held


def following(ranking: Ranking, first: Candidate, count: int) -> list[Candidate]:
    """The candidates behind one, as they would come up if each were placed. O(count + rows passed over)."""
    lanes = [
        [Candidate(job, key, over) for key, job in ranking.upcoming(over, count + 1)]
        for over in (False, True)
    ]
    ordered = merge(*lanes, key=lambda c: (c.key, c.over_quota))
    return list(islice((c for c in ordered if c.job != first.job), count))


def _offer_to(job: str, offer: Bid) -> Bid:
    """The same place for another job that asks for the same; it stays held in the name of the first."""
    if offer.job == job:
        return offer
    plan = None if offer.plan is None else replace(offer.plan, job=job)
    return replace(offer, job=job, plan=plan)
