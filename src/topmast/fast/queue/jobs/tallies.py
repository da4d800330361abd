"""Sums over jobs by tenant, user, band and state: what is asked of many walks none of them."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from msgspec import Struct

from topmast.fast.queue.jobs.record import JobRecord
from topmast.model import ids
from topmast.model.job import Band
from topmast.model.states import WAITING, JobState

SPARE = 64
"""So many numbers of jobs that wait no more are kept at least, before a tally is tidied."""


Kind = tuple[str, str, Band, JobState]
"""What jobs have in common: tenant, user, the band that they ask for, state."""


class Tally(Struct):
    """Jobs of one kind."""

    jobs: int = 0
    asked_milli: int = 0
    """What they ask for, in a state in which jobs wait."""
    numbers: list[int] = []
    """A heap of the jobs that wait, by number, and of some that did."""


class Tallies:
    """Jobs by kind. Changed by `enter` and `leave` alone, for each change of a kind."""

    def __init__(self, records: dict[str, JobRecord]) -> None:
        """O(jobs)."""
        self._records = records
        self.kinds: dict[Kind, Tally] = {}
        for record in records.values():
            self.enter(record)

    def enter(self, record: JobRecord) -> None:
        """A job is of a kind from now on. Amortised O(log jobs), O(1) for the newest."""
        kind = kind_of(record)
        tally = self.kinds.get(kind)
        if tally is None:
            tally = self.kinds[kind] = Tally()
        tally.jobs += 1
        if record.state in WAITING:
            tally.asked_milli += record.spec.gpus_milli()
            heappush(tally.numbers, record.number)
            if len(tally.numbers) > 2 * tally.jobs + SPARE:
                self._tidy(kind, tally)

    def enter_alike(self, records: Sequence[JobRecord]) -> None:
        """As `enter`, for jobs of one kind that wait and ask for the same. O(records log jobs)."""
        first = records[0]
        tally = self.kinds.setdefault(kind_of(first), Tally())
        tally.jobs += len(records)
        tally.asked_milli += len(records) * first.spec.gpus_milli()
        for record in records:
            heappush(tally.numbers, record.number)

    def leave(self, record: JobRecord) -> None:
        """It is no longer of the kind of which it still is."""
        kind = kind_of(record)
        tally = self.kinds[kind]
        tally.jobs -= 1
        if not tally.jobs:
            del self.kinds[kind]
        elif record.state in WAITING:
            tally.asked_milli -= record.spec.gpus_milli()

    def move_each(self, records: Sequence[JobRecord], to: JobState) -> None:
        """Jobs come to a state in which they do not wait. O(records)."""
        moved: dict[Kind, list[JobRecord]] = {}
        for record in records:
            moved.setdefault(kind_of(record), []).append(record)
            record.state = to
        for kind, those in moved.items():
            tally, count = self.kinds[kind], len(those)
            tally.jobs -= count
            if not tally.jobs:
                del self.kinds[kind]
            elif kind[-1] in WAITING:
                tally.asked_milli -= sum([record.spec.gpus_milli() for record in those])
            self.kinds.setdefault((*kind[:-1], to), Tally()).jobs += count

    def first(self, kind: Kind) -> JobRecord | None:
        """The first job of a kind in which jobs wait that has no plan. Amortised O(log jobs)."""
        numbers, aside, found = self.kinds[kind].numbers, [], None
        while numbers:
            record = self._records.get(ids.job_id(numbers[0]))
            if record is not None and kind_of(record) == kind:
                if record.plan is None:
                    found = record
                    break
                aside.append(numbers[0])  # it waits for others to stop
            heappop(numbers)
        for number in aside:
            heappush(numbers, number)
        return found

    def _tidy(self, kind: Kind, tally: Tally) -> None:
        """Leave out what is of the kind no more. O(jobs), once in as many."""
        records = ((number, self._records.get(ids.job_id(number))) for number in tally.numbers)
        kept = (number for number, record in records if record and kind_of(record) == kind)
        tally.numbers = list(dict.fromkeys(kept))
        heapify(tally.numbers)


def kind_of(record: JobRecord) -> Kind:
    """The kind of a job as it stands."""
    spec = record.spec
    return (spec.tenant, spec.user, spec.band, record.state)
