"""Which of the places that regions offer in columns the next jobs get (see `bulk`).

A region makes its places one after the other, each as if all before it were taken. They are not:
other regions have better ones. So what a place strands is counted here, by what the region says is
free of its hosts, and what was chosen of them. By the scores of the offers alone a place would look
good that fills up a host with nothing on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from topmast.fast.queue.cycle.bulk import Bulk
from topmast.fast.queue.cycle.prefetch import CLOSE
from topmast.model.columns import PlanColumns
from topmast.model.job import MILLI
from topmast.model.messages import RegionPlans


class Choice(Struct):
    """Which places jobs get: the first of them, in their order."""

    parts: list[PlanColumns]
    """By region."""
    rows: list[tuple[int, int]] = []
    """By job, the number of the region, and the row there."""
    fragmentation: list[float] = []
    """By job, what the GPUs cost that its place strands, beside the places chosen before it."""
    balance: list[float] = []
    """By job, what its region costs when it gets its place."""
    is_full: bool = False
    """Whether no region has room for the next job."""

    def plans(self, jobs: Sequence[str]) -> PlanColumns:
        """The plans of these jobs. O(their slots)."""
        return PlanColumns.chosen(self.parts, self.rows, jobs, self.fragmentation, self.balance)


def choose(
    bulk: Bulk, order: Iterable[int], held_milli: Mapping[str, int], gpus: Mapping[str, int],
    price: float,
) -> Choice:  # fmt: skip
    """Give each job the best place that is left for its kind, ties by region.

    It ends where no place is left for a job, or where a region that has to be asked again is likely
    to have a clearly better one. O(jobs x regions + hosts).
    """
    names = [region for region in sorted(bulk.answers) if bulk.answers[region].plans]
    answers = [bulk.answers[name] for name in names]
    choice = Choice([answer.plans for answer in answers if answer.plans])
    loads = Loads(names, held_milli, gpus, price)
    regions = [_Region(n, a, bulk.asked[a.region]) for n, a in enumerate(answers)]
    offered: dict[int, list[_Offers]] = {}
    for one in regions:
        for kind, offers in one.offers.items():
            offered.setdefault(kind, []).append(offers)
    again: dict[int, list[_Offers]] = {}
    for kind in order:
        best, cost = _best(offered.get(kind, ()), loads.cost)
        if best is None:
            choice.is_full = kind not in again
            break
        if any(cost >= o.dearest + loads.cost[o.region] + CLOSE for o in again.get(kind, ())):
            break
        region, row = regions[best.region], best.rows[best.at]
        choice.rows.append((best.region, row))
        choice.balance.append(loads.cost[best.region])
        choice.fragmentation.append(region.take(best))
        loads.book(best.region, region.milli(row))
        if best.is_used_up:
            offered[kind].remove(best)
            if not best.are_all:
                again.setdefault(kind, []).append(best)
    bulk.won([names[number] for number, _ in choice.rows])
    return choice


class Loads:
    """What regions cost as they fill up: GPUs held over GPUs present, at a price."""

    def __init__(
        self, regions: Sequence[str], held_milli: Mapping[str, int], gpus: Mapping[str, int],
        price: float,
    ) -> None:  # fmt: skip
        self._held_milli = [held_milli.get(region, 0) for region in regions]
        self._gpus = [gpus.get(region, 0) for region in regions]
        self._price = price
        self.cost = [self._cost(number) for number in range(len(regions))]
        """By region."""

    def _cost(self, number: int) -> float:
        gpus = self._gpus[number]
        return self._price * (self._held_milli[number] / MILLI / gpus) if gpus > 0 else 0.0

    def book(self, number: int, milli: int) -> None:
        """More is held in a region. O(1)."""
        self._held_milli[number] += milli
        self.cost[number] = self._cost(number)


class _Offers(Struct):
    """Places of one kind in one region, in the order in which it made them."""

    region: int
    rows: list[int] = []
    at: int = 0
    """The next of them."""
    score: float = 0.0
    """Of the next, beside those chosen before, without the balance of the region."""
    dearest: float = -math.inf
    """The highest score, as the region made them: the last one filled up a host, perhaps, and the
    next begins a new one."""
    are_all: bool = False
    """Whether the region has no room for more."""

    @property
    def is_used_up(self) -> bool:
        """Whether no place is left."""
        return self.at == len(self.rows)


def _best(offered: Iterable[_Offers], balance: Sequence[float]) -> tuple[_Offers | None, float]:
    """The offers of which the next place costs least, and what that is. O(regions)."""
    best, least = None, math.inf
    for offers in offered:
        cost = offers.score + balance[offers.region]
        if cost < least:
            best, least = offers, cost
    return best, least


class _Region:
    """The places that a region offers, and what is free of their hosts as some are taken."""

    def __init__(self, number: int, answer: RegionPlans, asked: Sequence[int]) -> None:
        assert answer.plans
        plans, seats = answer.plans, answer.plans.seats
        self._plans, self._seats, self._prices = plans, seats, answer.stranded
        self._alike = [sum(terms.terms.values()) for terms in plans.terms]
        self._first = list(accumulate(seats.spans, initial=0))
        """By row, where its hosts begin, and where the last ones end."""
        self._free = dict(zip(seats.hosts, answer.free, strict=False))
        """By host, its wholly free GPUs; what they cost is not known of an older version."""
        self._next: dict[str, list[_Offers]] = {}
        """By host, offers of which the next place is there, or was."""
        self.offers: dict[int, _Offers] = {}
        """By kind."""
        for row, kind in enumerate(answer.kinds):
            offers = self.offers.get(kind)
            if offers is None:
                offers = self.offers[kind] = _Offers(number)
            offers.rows.append(row)
            score = self._alike[plans.of_terms[row]] + plans.fragmentation[row]
            offers.dearest = max(offers.dearest, score)
        for kind, offers in self.offers.items():
            offers.are_all = len(offers.rows) < asked[kind]
            self._come_to(offers)

    def milli(self, row: int) -> int:
        """The thousandths of GPUs of the gang. O(1)."""
        kind = self._seats.kinds[self._seats.kind[row]]
        return kind.tasks * kind.gpus * MILLI

    def take(self, offers: _Offers) -> float:
        """A job gets the next place of a kind; what that strands. O(hosts + offers beside it)."""
        row = offers.rows[offers.at]
        change = self._change(row)
        offers.at += 1
        if not offers.is_used_up:
            self._come_to(offers)
        if self._prices:
            self._fill(row)
        return change

    def _fill(self, row: int) -> None:
        """Its hosts have less that is free; what the next places there cost is counted anew."""
        seats = self._seats
        gpus = seats.kinds[seats.kind[row]].gpus
        for at in range(self._first[row], self._first[row + 1]):
            host = seats.hosts[at]
            self._free[host] -= seats.tasks[at] * gpus
            beside = [one for one in self._next.pop(host, ()) if self._is_next(one, host)]
            for offers in beside:
                offers.score = self._score(offers)
            if beside:
                self._next[host] = beside

    def _is_next(self, offers: _Offers, host: str) -> bool:
        return not offers.is_used_up and host in self._hosts(offers.rows[offers.at])

    def _hosts(self, row: int) -> tuple[str, ...]:
        return self._seats.hosts[self._first[row] : self._first[row + 1]]

    def _come_to(self, offers: _Offers) -> None:
        """Its next place is another one. O(hosts of that)."""
        offers.score = self._score(offers)
        for host in self._hosts(offers.rows[offers.at]) if self._prices else ():
            self._next.setdefault(host, []).append(offers)

    def _score(self, offers: _Offers) -> float:
        row = offers.rows[offers.at]
        return self._alike[self._plans.of_terms[row]] + self._change(row)

    def _change(self, row: int) -> float:
        """What is stranded at this place, by what is free there now. O(its hosts)."""
        if not self._prices:
            return self._plans.fragmentation[row]
        seats, prices, change = self._seats, self._prices, 0.0
        gpus = seats.kinds[seats.kind[row]].gpus
        for at in range(self._first[row], self._first[row + 1]):
            free = self._free[seats.hosts[at]]
            change += prices[free - seats.tasks[at] * gpus] - prices[free]
        return change
