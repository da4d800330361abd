"""Bulk questions: regions are asked for places for thousands of jobs, and answer in columns.

Each region makes plans for its share of the next jobs, by what they ask for. The queue gives the
jobs these places in their order, each the best that is left at the price of this moment. What is
chosen is committed in columns, before the next question: so nothing has to be held in between.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from topmast.fast.queue.cycle.foreseen import LEAST, MOST, PAUSE, Asked, Kind
from topmast.fast.queue.cycle.prefetch import CLOSE, SLACK
from topmast.model.columns import PlanColumns
from topmast.model.job import MILLI, JobSpec, has_image
from topmast.model.messages import RegionPlans
from topmast.model.plan import PlacementRequest

LEAST_APART = 64
"""A round trip for fewer jobs is not worth it, if others behind them are to be asked about."""

MOST_PAUSE = 32 * PAUSE
"""After answers in vain one after the other, so many candidates are asked about one by one."""


class Wanted(Struct, frozen=True):
    """What regions are asked: requests, and for each place wanted the number of its request."""

    kinds: tuple[PlacementRequest, ...]
    number: dict[tuple[int, bool], tuple[Kind, int]]
    """By number of a class and whether over quota: the kind, and which of the requests it has."""
    order: tuple[int, ...]
    """For each job."""


class Bulk:
    """The bulk question that is out, what regions have answered, and what each is likely to win."""

    def __init__(self) -> None:
        self.batch = 0
        """Of the question that is out; 0: there is none."""
        self.count = 0
        """How many jobs behind the candidate it is about, at most."""
        self.most = MOST
        """How many to ask about."""
        self.wanted = Wanted((), {}, ())
        self.asked: dict[str, tuple[int, ...]] = {}
        """By region, how many places of each request it was asked for."""
        self.answers: dict[str, RegionPlans] = {}
        self.pause = 0
        """How many candidates to ask about one by one first."""
        self.follows = False
        """Whether those behind the candidate are to be asked about in bulk."""
        self._vain = 0
        """Answers in a row without a place for the candidate."""
        self._won: dict[str, float] = {}
        """By region, jobs that it got, the older ones counted less."""

    def is_out(self, batch: int) -> bool:
        """Whether this is the number of the question that is out; 0 is none."""
        return batch == self.batch != 0

    def shares(self, regions: Sequence[str], gpus: Mapping[str, int]) -> dict[str, float]:
        """The part of the jobs that each region is likely to get.

        As much as its part of the GPUs, or as it won lately.
        """
        supply = sum([gpus.get(region, 0) for region in regions]) or 1
        won = sum([self._won.get(region, 0.0) for region in regions]) or 1.0
        return {r: max(gpus.get(r, 0) / supply, self._won.get(r, 0.0) / won) for r in regions}

    def used(self, jobs: int) -> None:
        """So many plans were of use, and others were not: next time fewer are asked for."""
        self.most = max(LEAST_APART, 2 * jobs)

    def _double(self) -> None:
        self.most = min(MOST, 2 * self.most)

    def won(self, regions: Iterable[str]) -> None:
        """Jobs got their places in these regions. O(those)."""
        for region in self._won:
            self._won[region] /= 2
        for region in regions:
            self._won[region] = self._won.get(region, 0.0) + 1.0

    def close(self) -> None:
        """The question is answered, or its answers are not waited for any more."""
        self.batch, self.answers = 0, {}

    def heard(self, found: int, asked: int, *, is_full: bool) -> None:
        """So many jobs of those asked about have a place; ``is_full``: there is none for the next.

        That one is asked about alone: its turn is not over, as others may be stopped for it.
        After an answer in vain many are, with those behind them: where all is full, each would be.
        """
        self.used(found) if found < asked else self._double()
        self._vain = 0 if found else self._vain + 1
        self.pause = min(MOST_PAUSE, PAUSE << (self._vain + 1)) if self._vain else int(is_full)


def fits(spec: JobSpec) -> bool:
    """Whether only whole GPUs limit where a job may run: else regions search one by one."""
    if len(spec.groups) != 1 or has_image(spec):
        return False
    needs = spec.groups[0].resources
    whole = all(one.gpus_milli >= MILLI for one in needs.accelerators)
    return bool(needs.accelerators) and whole and not needs.cpus and not needs.memory_bytes


def enough(asked: Asked) -> Asked | None:
    """The jobs behind a candidate, up to the first that does not fit; None: too few of them."""
    fit = [fits(kind.job_class.spec) for kind in asked.kinds]
    count = next((n for n, kind in enumerate(asked.kind) if not fit[kind]), None)
    least = LEAST if asked.are_all and count is None else LEAST_APART
    found = asked if count is None else Asked(asked.jobs[:count], asked.kinds, asked.kind[:count])
    return None if len(found.jobs) < least else found


def shared_out(order: Sequence[int], share: float) -> tuple[int, ...]:
    """A part of the places wanted, and a little more: of each request, evenly. O(places)."""
    kinds = np.array(order, np.int64)
    by_kind = np.argsort(kinds, kind="stable")
    jobs = np.bincount(kinds)
    at = np.empty_like(kinds)  # the place of each among those of its kind
    at[by_kind] = np.arange(len(kinds)) - np.repeat(np.cumsum(jobs) - jobs, jobs)
    places = np.minimum(jobs, np.ceil(SLACK * share * jobs).astype(np.int64) + 1)
    before, after = at * places[kinds], (at + 1) * places[kinds]
    picked = -(-after // jobs[kinds]) > -(-before // jobs[kinds])
    return tuple(kinds[picked].tolist())


# --- the choice -----------------------------------------------------------------------------------


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
    scores: list[float] = []
    """Without the balance of the region."""
    at: int = 0
    """The next of them."""
    are_all: bool = False
    """Whether the region has no room for more."""

    @property
    def dearest(self) -> float:
        """The last one filled up a host, perhaps, and the next begins a new one. O(places)."""
        return max(self.scores)


class Choice(Struct):
    """Which places jobs get: the first of them, in their order."""

    parts: list[PlanColumns]
    """By region."""
    rows: list[tuple[int, int]] = []
    """By job, the number of the region, and the row there."""
    balance: list[float] = []
    """By job, what its region costs when it gets its place."""
    is_full: bool = False
    """Whether no region has room for the next job."""

    def plans(self, jobs: Sequence[str]) -> PlanColumns:
        """The plans of these jobs. O(their slots)."""
        return PlanColumns.chosen(self.parts, self.rows, jobs, self.balance)


def choose(
    bulk: Bulk, order: Iterable[int], held_milli: Mapping[str, int], gpus: Mapping[str, int],
    price: float,
) -> Choice:  # fmt: skip
    """Give each job the best place that is left for its kind, ties by region.

    It ends where no place is left for a job, or where a region that has to be asked again is likely
    to have a clearly better one. O(jobs x log regions).
    """
    regions = [r for r in sorted(bulk.answers) if bulk.answers[r].plans]
    answers = [bulk.answers[region] for region in regions]
    choice = Choice([answer.plans for answer in answers if answer.plans])
    loads = Loads(regions, held_milli, gpus, price)
    heaps = _heaps([_offers(n, a, bulk.asked[a.region]) for n, a in enumerate(answers)], loads)
    empty: dict[int, list[_Offers]] = {}
    sizes = [_sizes(part) for part in choice.parts]
    for kind in order:
        heap = heaps.get(kind)
        if not heap:
            choice.is_full = kind not in empty
            break
        offers, cost = _best(heap, loads)
        if any(cost >= o.dearest + loads.cost[o.region] + CLOSE for o in empty.get(kind, ())):
            break
        region, row = offers.region, offers.rows[offers.at]
        choice.rows.append((region, row))
        choice.balance.append(loads.cost[region])
        loads.book(region, sizes[region][row])
        offers.at += 1
        if offers.at == len(offers.rows):
            heapq.heappop(heap)
            if not offers.are_all:
                empty.setdefault(kind, []).append(offers)
        else:
            heapq.heapreplace(heap, (_cost(offers, loads), region, offers))
    bulk.won([regions[region] for region, _ in choice.rows])
    return choice


_Heap = list[tuple[float, int, _Offers]]


def _best(heap: _Heap, loads: Loads) -> tuple[_Offers, float]:
    """The offer of least cost; costs in the heap may be older, and then they are too low."""
    while True:
        known, region, offers = heap[0]
        cost = _cost(offers, loads)
        if cost <= known:
            return offers, cost
        heapq.heapreplace(heap, (cost, region, offers))


def _cost(offers: _Offers, loads: Loads) -> float:
    return offers.scores[offers.at] + loads.cost[offers.region]


def _heaps(offered: Iterable[Mapping[int, _Offers]], loads: Loads) -> dict[int, _Heap]:
    """By kind, the offers of all regions, the cheapest first."""
    heaps: dict[int, _Heap] = {}
    for by_kind in offered:
        for kind, offers in by_kind.items():
            heaps.setdefault(kind, []).append((_cost(offers, loads), offers.region, offers))
    for heap in heaps.values():
        heapq.heapify(heap)
    return heaps


def _offers(number: int, answer: RegionPlans, asked: Sequence[int]) -> dict[int, _Offers]:
    """What a region offers of each kind. O(places)."""
    plans = answer.plans
    assert plans
    alike = [sum(terms.terms.values()) for terms in plans.terms]
    found: dict[int, _Offers] = {}
    rows = zip(answer.kinds, plans.of_terms, plans.fragmentation, strict=True)
    for row, (kind, of_terms, fragmentation) in enumerate(rows):
        offers = found.get(kind)
        if offers is None:
            offers = found[kind] = _Offers(number)
        offers.rows.append(row)
        offers.scores.append(alike[of_terms] + fragmentation)
    for kind, offers in found.items():
        offers.are_all = len(offers.rows) < asked[kind]
    return found


def _sizes(part: PlanColumns) -> list[int]:
    """By row, the thousandths of GPUs of the gang."""
    milli = [kind.tasks * kind.gpus * MILLI for kind in part.seats.kinds]
    return [milli[kind] for kind in part.seats.kind]
