"""Bulk questions: regions are asked for places for thousands of jobs, and answer in columns.

Each region makes plans for its share of the next jobs, by what they ask for. The queue gives the
jobs these places in their order, each the best that is left at the price of this moment
(`bulk_choice`). What is chosen is committed in columns, before the next question: so nothing has to
be held in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from topmast.fast.queue.cycle.foreseen import LEAST, MOST, PAUSE, Asked, Kind
from topmast.fast.queue.cycle.prefetch import SLACK
from topmast.model.job import MILLI, JobSpec, needs_of_engine
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
    spare: tuple[int, ...]
    """By request, how many places more than its share a region is asked for."""


class Bulk:
    """The bulk question that is out, what regions have answered, and what each is likely to win."""

    def __init__(self) -> None:
        self.batch = 0
        """Of the question that is out; 0: there is none."""
        self.count = 0
        """How many jobs behind the candidate it is about, at most."""
        self.most = MOST
        """How many to ask about."""
        self.wanted = Wanted((), {}, (), ())
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
    if len(spec.groups) != 1 or needs_of_engine(spec):
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


def spare_of(request: PlacementRequest) -> int:
    """How many places more than its share a region is asked for.

    Of tasks that share a host as many as fill the room of the largest recent task: else a region of
    which the places are used up would leave its last host with a rest. O(sizes).
    """
    group = request.groups[0]
    gpus = min(one.gpus_milli for one in group.resources.accelerators) // MILLI
    largest = max([size for size, _ in request.mix], default=1)
    return max(1, -(-largest // gpus)) if group.count == 1 else 1


def shared_out(order: Sequence[int], share: float, spare: Sequence[int]) -> tuple[int, ...]:
    """A part of the places wanted, and some more: of each request, evenly. O(places)."""
    kinds = np.array(order, np.int64)
    by_kind = np.argsort(kinds, kind="stable")
    jobs = np.bincount(kinds)
    more = np.array(spare, np.int64)[: len(jobs)]
    at = np.empty_like(kinds)  # the place of each among those of its kind
    at[by_kind] = np.arange(len(kinds)) - np.repeat(np.cumsum(jobs) - jobs, jobs)
    places = np.minimum(jobs, np.ceil(SLACK * share * jobs).astype(np.int64) + more)
    before, after = at * places[kinds], (at + 1) * places[kinds]
    picked = -(-after // jobs[kinds]) > -(-before // jobs[kinds])
    return tuple(kinds[picked].tolist())
