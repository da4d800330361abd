"""Pages of jobs: those in memory, and the finished ones that only the audit tables still have."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from topmast.fast.queue import GlobalQueue, JobRecord, Kind, Tally, kind_of
from topmast.model import ids
from topmast.model.errors import InvalidInput
from topmast.model.group_views import JobGroup, JobsGlance
from topmast.model.job import MILLI
from topmast.model.selector import LABEL, Selector, check_label, like, selector_of, states_of
from topmast.model.states import HOLDING, TERMINAL, WAITING
from topmast.model.sweep_views import SweepView
from topmast.model.views import JobView
from topmast.ports import Journal
from topmast.service.sweeps import views_of

MAX_PAGE = 1_000
CURSOR_DIGITS = 18
PORTION = 5_000
"""Comparisons of jobs with a selector at a time, on the thread that decides."""


class Found(Struct):
    """Jobs that were compared with a selection one by one."""

    jobs: dict[str, None] = {}
    """Those that are wanted, the oldest first."""
    sweeps: dict[str, None] = {}
    """The sweeps of those that are wanted, also where their jobs are folded."""


class Selection(Struct, frozen=True):
    """Which jobs are wanted, and which of them are on a page."""

    jobs: Selector
    limit: int
    cursor: int | None
    """The number of the last job seen; in queue order, how many were seen."""
    queue_order: bool
    seen: frozenset[str] | None = None
    """The tenants with jobs that the caller may see; None: all."""
    fold: bool = False
    """Leave out the jobs of sweeps."""
    found: Found | None = None
    """The wanted jobs, where each job was looked at before."""

    def takes(self, record: JobRecord) -> bool:
        """Whether a job in memory is wanted, and may be seen."""
        if self.found is not None:
            return record.id in self.found.jobs
        return not (self.fold and record.spec.part) and selects(self.jobs, record, self.seen)

    def takes_view(self, view: JobView) -> bool:
        """The same of a job that left the memory."""
        if (self.seen is not None and view.tenant not in self.seen) or (self.fold and view.sweep):
            return False
        return self.jobs.takes(view, view.state, view.band, view.cluster, view.hosts)

    @property
    def tenants(self) -> list[str] | None:
        """Those with all jobs that may be wanted; None: they cannot all be named."""
        named = self.jobs.tenants
        if self.seen is not None:
            return sorted(tenant for tenant in self.seen if like(named, tenant))
        return None if not named or any("*" in one for one in named) else list(dict.fromkeys(named))

    @property
    def may_be_archived(self) -> bool:
        """Whether finished jobs are wanted."""
        states = self.jobs.states
        return not self.queue_order and (not states or any(state in TERMINAL for state in states))


def selects(jobs: Selector, record: JobRecord, seen: frozenset[str] | None) -> bool:
    """Whether a job in memory is meant, of the tenants that may be ``seen``."""
    spec = record.spec
    if seen is not None and spec.tenant not in seen:
        return False
    band = spec.band.name.lower() if jobs.bands else ""
    return jobs.takes(spec, record.state, band, record.cluster, record.hosts)


def find(queue: GlobalQueue, wanted: Selection, found: Found, jobs: Iterable[str]) -> None:
    """Compare some jobs with a selection. O(jobs)."""
    for job in jobs:
        record = queue.jobs.records.get(job)
        if record is None or not selects(wanted.jobs, record, wanted.seen):
            continue
        if record.spec.part:
            found.sweeps[record.spec.in_sweep] = None
        if not (wanted.fold and record.spec.part):
            found.jobs[job] = None


def select(
    states: tuple[str, ...],
    tenant: str,
    limit: int,
    cursor: str,
    queue_order: bool,
    seen: frozenset[str] | None = None,
    selector: str = "",
) -> Selection:
    """A selection from what a request says. Raises InvalidInput."""
    if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= CURSOR_DIGITS):
        raise InvalidInput("not a cursor of this listing", field="cursor")
    jobs = selector_of(selector)
    if states:
        named = tuple(states_of(states))
        both = tuple(state for state in named if not jobs.states or state in jobs.states)
        if not both:
            raise InvalidInput("no state is in both state and selector", field="selector")
        jobs = replace(jobs, states=both)
    if tenant:
        if jobs.tenants and jobs.tenants != (tenant,):
            raise InvalidInput("names other tenants than tenant does", field="selector")
        jobs = replace(jobs, tenants=(tenant,))
    return Selection(
        jobs,
        max(1, min(limit, MAX_PAGE)),
        int(cursor) if cursor else None,
        queue_order,
        seen,
    )


_EVERY = Selector()


def counts(
    queue: GlobalQueue, seen: frozenset[str] | None = None, jobs: Selector = _EVERY
) -> dict[str, int]:
    """Jobs in memory by state, of all tenants or of those ``seen``. O(kinds).

    ``jobs``: only such ones; a selector that `counts_alike`.
    """
    found: dict[str, int] = {}
    for (_, _, _, state), tally in _tallies(queue, jobs, seen):
        found[state.value] = found.get(state.value, 0) + tally.jobs
    return found


def glance(queue: GlobalQueue, seen: frozenset[str] | None, now: float) -> JobsGlance:
    """All jobs that have not ended, of all tenants or of those ``seen``. O(kinds)."""
    placed, waits = 0, _Row()
    for kind, tally in queue.jobs.tallies.kinds.items():
        if seen is not None and kind[0] not in seen:
            continue
        if kind[3] in HOLDING:
            placed += tally.jobs
        elif kind[3] in WAITING:
            waits.waiting += tally.jobs
            waits.waiting_milli += tally.asked_milli
            waits.see(queue.jobs.tallies.first(kind))
    row = waits.shown("", now)
    return JobsGlance(placed, row.waiting, row.waiting_gpus, row.longest_wait_s, row.longest)


def sweeps(queue: GlobalQueue, wanted: Selection) -> tuple[SweepView, ...]:
    """The sweeps with a job in memory that is wanted, in place of these. O(jobs)."""
    if not wanted.fold or wanted.cursor is not None:
        return ()
    known = queue.jobs.sweeps.records
    if not known:
        return ()
    found = wanted.found
    if found is None:
        find(queue, wanted, found := Found(), queue.jobs.records)
    return views_of(queue, [known[name] for name in found.sweeps if name in known])


def total(queue: GlobalQueue, wanted: Selection) -> int | None:
    """How many jobs are wanted, on all pages; None if some may have left memory.

    O(kinds), or O(jobs) where other things than tenants, users, bands and states are asked for.
    """
    if wanted.may_be_archived and queue.jobs.has_forgotten:
        return None
    if wanted.found is not None:
        return len(wanted.found.jobs)
    if is_tallied(queue, wanted):
        return sum(tally.jobs for _, tally in _tallies(queue, wanted.jobs, wanted.seen))
    return sum(wanted.takes(job) for job in queue.jobs.records.values())


def is_tallied(queue: GlobalQueue, wanted: Selection) -> bool:
    """Whether sums over the wanted jobs are known without a look at each."""
    return wanted.jobs.counts_alike and not (wanted.fold and queue.jobs.sweeps.records)


def _tallies(
    queue: GlobalQueue, jobs: Selector, seen: frozenset[str] | None
) -> Iterator[tuple[Kind, Tally]]:
    """Those of the jobs that a selector means, of the tenants ``seen``. O(kinds)."""
    for kind, tally in queue.jobs.tallies.kinds.items():
        tenant, user, band, state = kind
        named = band.name.lower() if jobs.bands else ""
        if (seen is None or tenant in seen) and jobs.takes_all_of(tenant, user, named, state):
            yield kind, tally


def newest(queue: GlobalQueue, wanted: Selection) -> list[JobRecord]:
    """The newest wanted jobs in memory. O(jobs that are newer than the last of them)."""
    before, records = wanted.cursor, queue.jobs.records  # records are in the order of numbers
    known = records if wanted.found is None else wanted.found.jobs
    chosen = (
        record
        for record in map(records.get, reversed(known))
        if record is not None
        and (before is None or record.number < before)
        and wanted.takes(record)
    )
    return list(islice(chosen, wanted.limit))


Rank = tuple[float, ...]
"""Where a job stands in its part of the queue order."""
Part = Callable[[Rank | None], Iterator[tuple[Rank, JobRecord] | None]]
"""What of it stands behind a place, for as long as nothing changes; None: a pause may be made."""
RANKED_AT_ONCE = 1_000
"""So many jobs are ranked in about a millisecond."""


class QueueWalk:
    """Wanted jobs in queue order: those that hold GPUs, waiting ones by rank, finished ones.

    In pieces: each goes on behind the last job of the one before, whatever has changed meanwhile.
    """

    def __init__(self, queue: GlobalQueue, wanted: Selection) -> None:
        self.found: list[JobRecord] = []
        """The page, once it is whole."""
        self._wanted, self._passed, self._shown = wanted, 0, set[str]()
        self._first = wanted.cursor or 0
        last = self._first + wanted.limit
        self._last = last if wanted.found is None else min(last, len(wanted.found.jobs))
        states = wanted.jobs.states
        waits = not states or any(state in WAITING for state in states)
        records, placed, ended = queue.jobs.records, queue.jobs.placed, queue.jobs.ended.names
        self._parts: list[Part] = [
            _by_rank(placed.keys, placed.get, _rank_placed),
            *((queue.waiting_in_order, _waiting_in_none(queue)) if waits else ()),
            _by_rank(ended.keys, lambda job: records[job] if job in ended else None, _rank_ended),
        ]
        """Those that are to be walked yet."""
        self._after: Rank | None = None

    def goes_on(self, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Walk on until that is over; whether there is more to walk.

        O(jobs that are passed), each log of those that are ranked here, and O(these) once a walk.
        """
        while self._parts and self._passed < self._last:
            for place in self._parts[0](self._after):
                if place is not None:
                    self._pass(*place)
                    if self._passed >= self._last:
                        return False
                if is_over():
                    return True
            del self._parts[0]
            self._after = None
        return False

    def _pass(self, rank: Rank, record: JobRecord) -> None:
        self._after = rank
        # What has come to another part meanwhile is on the page already.
        if record.id not in self._shown and self._wanted.takes(record):
            self._passed += 1
            if self._passed > self._first:
                self._shown.add(record.id)
                self.found.append(record)


def in_queue_order(queue: GlobalQueue, wanted: Selection) -> list[JobRecord]:
    """A page in queue order, in one piece."""
    walk = QueueWalk(queue, wanted)
    walk.goes_on()
    return walk.found


def _by_rank(
    names: Callable[[], Iterable[str]],
    find: Callable[[str], JobRecord | None],
    rank: Callable[[JobRecord], Rank],
) -> Part:
    """Jobs by their ranks, which all differ, as long as they are found.

    They are ranked once for all pieces: each piece anew would take longer than a piece may. Those
    that come meanwhile follow the others. O(names), of which only the list is made at once.
    """

    def walk() -> Iterator[tuple[Rank, JobRecord] | None]:
        known = set[str]()
        while True:
            ranked, there = list[list[tuple[Rank, JobRecord]]](), list(names())
            for start in range(0, len(there), RANKED_AT_ONCE):
                come = [name for name in there[start : start + RANKED_AT_ONCE] if name not in known]
                known.update(come)
                found = [job for job in map(find, come) if job is not None]
                ranked.append(sorted((rank(job), job) for job in found))
                yield None
            if not any(ranked):
                return
            yield from (place for place in heapq.merge(*ranked) if find(place[1].id) is not None)

    walked = walk()
    return lambda after: walked


def _waiting_in_none(queue: GlobalQueue) -> Part:
    """Those that wait in no order, by number."""
    records = queue.jobs.records

    def find(name: str) -> JobRecord | None:
        job = records.get(name)
        return job if job is not None and job.state in WAITING else None

    return _by_rank(lambda: (job.id for job in queue.waiting_in_none()), find, _rank_number)


def _rank_placed(job: JobRecord) -> Rank:
    return (-float(job.band), job.submit_s, job.number)


def _rank_number(job: JobRecord) -> Rank:
    return (job.number,)


def _rank_ended(job: JobRecord) -> Rank:
    return (-(job.finish_s or 0.0), -job.number)


GROUP_KEYS: dict[str, Callable[[JobRecord], str]] = {
    "tenant": lambda record: record.spec.tenant,
    "user": lambda record: record.spec.user,
    "band": lambda record: record.band.name.lower(),
}
"""What jobs can be grouped by, besides ``label.KEY``."""
NO_LABEL = "(none)"


def group_key(by: str) -> Callable[[JobRecord], str]:
    """Tells the group of a job. Raises InvalidInput."""
    label = by.removeprefix(LABEL)
    if by.startswith(LABEL) and label:
        check_label(by, "group")
        return lambda record: (record.spec.labels or {}).get(label, NO_LABEL)
    if by not in GROUP_KEYS:
        known = ", ".join((*GROUP_KEYS, f"{LABEL}KEY"))
        raise InvalidInput(f"'{by}' is not one of {known}", field="group")
    return GROUP_KEYS[by]


BY_KIND: dict[str, Callable[[Kind], str]] = {
    "tenant": lambda kind: kind[0],
    "user": lambda kind: kind[1],
    "band": lambda kind: kind[2].name.lower(),
}
"""The group of jobs of a kind, as long as they do not run over quota."""


class Groups:
    """Wanted jobs in memory, a row for each group."""

    def __init__(self, wanted: Selection, by: str) -> None:
        """Raises InvalidInput for what nothing is grouped by."""
        self._wanted, self._by = wanted, by
        self._key = group_key(by)
        self._rows: dict[str, _Row] = {}

    def is_tallied(self, queue: GlobalQueue) -> bool:
        """Whether the rows are known without a look at each job."""
        return self._by in BY_KIND and is_tallied(queue, self._wanted)

    def take(self, queue: GlobalQueue, jobs: Iterable[str]) -> None:
        """Count some jobs, one by one."""
        for job in jobs:
            record = queue.jobs.records.get(job)
            if record is not None and self._wanted.takes(record):
                self._row(self._key(record)).count(record)

    def take_tallies(self, queue: GlobalQueue) -> None:
        """Count all jobs. O(kinds + jobs that hold GPUs)."""
        for kind, tally in _tallies(queue, self._wanted.jobs, self._wanted.seen):
            row = self._row(BY_KIND[self._by](kind))
            row.jobs += tally.jobs
            if kind[3] in WAITING:
                row.waiting += tally.jobs
                row.waiting_milli += tally.asked_milli
                row.see(queue.jobs.tallies.first(kind))
        for record in queue.jobs.placed.values():
            if self._wanted.takes(record):
                self._place(record)

    def _place(self, record: JobRecord) -> None:
        """A job that was counted as one of its kind holds GPUs, perhaps in a lower band."""
        row = self._row(BY_KIND[self._by](kind_of(record)))
        row.jobs -= 1
        if record.state in WAITING:
            row.waiting -= 1
            row.waiting_milli -= record.spec.gpus_milli()
        self._row(self._key(record)).count(record)

    def _row(self, key: str) -> _Row:
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = _Row()
        return row

    def shown(self, now: float) -> tuple[JobGroup, ...]:
        """The group that holds most GPUs first. O(groups log groups)."""
        found = [row.shown(name, now) for name, row in self._rows.items() if row.jobs]
        return tuple(sorted(found, key=lambda row: (-row.held_gpus, -row.waiting_gpus, row.key)))


class _Row(Struct):
    jobs: int = 0
    waiting: int = 0
    held_milli: int = 0
    waiting_milli: int = 0
    first: JobRecord | None = None
    """The job that has waited longest."""

    def count(self, record: JobRecord) -> None:
        self.jobs += 1
        if record.plan is not None:
            self.held_milli += record.plan.gpus_milli
        elif record.state in WAITING:
            self.waiting += 1
            self.waiting_milli += record.spec.gpus_milli()
            self.see(record)

    def see(self, record: JobRecord | None) -> None:
        """A job that waits."""
        if record is not None and (self.first is None or record.number < self.first.number):
            self.first = record

    def shown(self, key: str, now: float) -> JobGroup:
        first = self.first
        return JobGroup(
            key, self.jobs, self.waiting, self.held_milli / MILLI, self.waiting_milli / MILLI,
            0.0 if first is None else max(0.0, now - first.submit_s),
            "" if first is None else first.id,
        )  # fmt: skip


def wanted_models(
    queue: GlobalQueue, jobs: Sequence[str], seen: frozenset[str] | None
) -> dict[str, list[str]]:
    """The GPU models that some jobs in memory ask for, the first choice first. O(jobs)."""
    records = (queue.jobs.records.get(job) for job in jobs)
    return {
        record.id: list(
            dict.fromkeys(
                one.model
                for group in record.spec.groups
                for one in group.resources.accelerators
                if one.model
            )
        )
        for record in records
        if record is not None and (seen is None or record.spec.tenant in seen)
    }


def archived(
    journal: Journal, queue: GlobalQueue, wanted: Selection, down_to: int
) -> Iterator[JobView]:
    """Wanted jobs that left memory, newest first, down to number ``down_to``, page by page."""
    before, rows_at_once, tenants = wanted.cursor, wanted.limit, wanted.tenants
    while True:
        rows = journal.finished_jobs(before, rows_at_once, tenants)
        for row in rows:
            if row.number < down_to:
                return
            if row.job not in queue.jobs.records:
                view = msgspec.json.decode(row.view, type=JobView)
                if wanted.takes_view(view):
                    yield view
        if len(rows) < rows_at_once:
            return
        before, rows_at_once = rows[-1].number, min(rows_at_once * 4, MAX_PAGE)


def merge(live: list[JobView], old: Iterator[JobView], limit: int) -> list[JobView]:
    """The newest ``limit`` of both."""
    found = [*live, *islice(old, limit)]
    found.sort(key=lambda view: -ids.job_number(view.id))
    return found[:limit]
