"""Prefetch: what regions in other processes have answered about candidates that are not yet due.

A region is asked about the next candidates in one message. It answers them in order and holds what
it offers, so each later answer assumes that all earlier ones are placed there. An answer is taken
only while that is so, and only for the request that the queue would send now. Whatever else has
happened, the region is asked again. So a decision never differs from what one request at a time
would have led to. An offer that lost its auction is still good for the next job with the same
request.
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
"""The candidates in the first message to a region."""


class Answer(Struct, frozen=True):
    """One answer of a batch."""

    kind: PlacementRequest
    """What was asked, but for the job and the balance of its region."""
    offer: Bid

    @property
    def is_held(self) -> bool:
        """Whether later answers assume that this offer is taken."""
        return self.offer.hold is not None


class BatchAnswers(Struct):
    """A region's answers to one batch, those taken left out."""

    batch: int
    asks: tuple[PlacementRequest, ...]
    held_milli: int
    """The answers hold while the queue knows so many thousandths of GPUs as held in the region."""
    until_s: float
    answers: list[Answer] = []
    used: int = 0
    """Answers that were taken or turned down."""
    taken: bool = False
    """Whether an offer was committed."""
    spoilt: bool = False
    """Whether something else happened in the region."""

    def stands(self, held_milli: int, now: float) -> bool:
        """Whether nothing has happened in the region but what the answers assume."""
        return not self.spoilt and now <= self.until_s and held_milli == self.held_milli

    def held(self) -> tuple[str, ...]:
        """The jobs for which seats are held."""
        return tuple(answer.offer.job for answer in self.answers if answer.is_held)


class Prefetch:
    """The last batch of each region. Working memory; ``most_jobs`` of a batch, 1: job by job."""

    def __init__(self, most_jobs: int) -> None:
        self.most_jobs = min(most_jobs, MOST_JOBS)
        self.questions = 0
        """Batches sent."""
        self._batches: dict[str, BatchAnswers] = {}
        self._jobs: dict[str, int] = {}
        self._full: dict[str, bool] = {}

    def jobs(self, region: str) -> int:
        """Candidates of the next batch: more while all answers are used, else as many as were."""
        return self._jobs.get(region, min(FIRST_JOBS, self.most_jobs))

    def is_full(self, region: str) -> bool:
        """Whether a job found no free room there lately: the next may have to stop others."""
        return self._full.get(region, False)

    def ask(
        self,
        region: str,
        batch: int,
        asks: tuple[PlacementRequest, ...],
        held_milli: int,
        now: float,
    ) -> tuple[str, ...]:
        """A batch goes out; returns the jobs for which nothing need be held any more. O(batch)."""
        before = self._batches.get(region)
        self.questions += 1
        # Half of the time that seats are held for is left to the commit on its way.
        self._batches[region] = BatchAnswers(batch, asks, held_milli, now + HOLD_S / 2)
        return () if before is None else before.held()

    def hear(self, region: str, batch: int, offers: tuple[Bid, ...]) -> None:
        """The answers to a batch; those to an older one are ignored. O(batch)."""
        known = self._batches.get(region)
        if known is None or known.batch != batch or known.answers:
            return
        known.answers = [Answer(a.kind(), o) for a, o in zip(known.asks, offers, strict=False)]
        known.used = 1
        self._full[region] = any(o.reason is not None for o in offers)

    def answer(self, region: str, ask: PlacementRequest, held_milli: int, now: float) -> Bid | None:
        """What the region would answer now; None if it must be asked. O(batch)."""
        known = self._batches.get(region)
        if known is None or self.most_jobs == 1 or not known.stands(held_milli, now):
            return None
        if ask.preempt and known.taken:
            return None  # what it may stop depends on what runs
        kind = ask.kind()
        for answer in known.answers:
            if answer.kind == kind and (
                answer.offer.plan is not None or answer.offer.reason is not None
            ):
                known.used += 1
                return _offer_to(ask.job, answer.offer)
            if answer.is_held:
                self._jobs[region] = max(1, known.used)
                return None
        self._jobs[region] = min(2 * self.jobs(region), self.most_jobs)
        return None

    def take(self, region: str, hold: str, gpus_milli: int) -> None:
        """A plan is committed in a region: the answers that assume it stay. O(batch)."""
        known = self._batches.get(region)
        if known is None:
            return
        for at, answer in enumerate(known.answers):
            if hold and answer.offer.hold is not None and answer.offer.hold.id == hold:
                # Nothing before it was held, else it would not have been offered.
                known.answers = known.answers[at + 1 :]
                known.held_milli += gpus_milli
                known.taken = True
                known.spoilt |= answer.offer.plan is not None and bool(answer.offer.plan.victims)
                return
        known.spoilt = True

    def spoil(self, region: str) -> None:
        """Something else has happened in a region. O(1)."""
        known = self._batches.get(region)
        if known is not None:
            known.spoilt = True

    def forget(self, region: str) -> None:
        """A region is out of reach: what it holds expires. O(1)."""
        self._batches.pop(region, None)

    def release(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """No candidate is left: by region, the jobs for which nothing need be held. O(answers)."""
        batches, self._batches = self._batches, {}
        for region, known in batches.items():
            if held := known.held():
                yield region, held


def following(ranking: Ranking, first: Candidate, count: int) -> list[Candidate]:
    """The candidates behind one, if each were placed. O(count + rows passed over)."""
    modes = [
        [Candidate(job, key, over) for key, job in ranking.upcoming(over, count + 1)]
        for over in (False, True)
    ]
    ordered = merge(*modes, key=lambda c: (c.key, c.over_quota))
    return list(islice((c for c in ordered if c.job != first.job), count))


def _offer_to(job: str, offer: Bid) -> Bid:
    """The same place for another job with the same request; it stays held for the first."""
    if offer.job == job:
        return offer
    plan = None if offer.plan is None else replace(offer.plan, job=job)
    return replace(offer, job=job, plan=plan)
