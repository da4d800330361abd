"""Pages of jobs: those in memory, and the finished ones that only the audit tables still have."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from difflib import get_close_matches

import msgspec
from msgspec import Struct

from topmast.fast.queue import GlobalQueue, JobRecord
from topmast.model import ids
from topmast.model.errors import InvalidInput
from topmast.model.states import TERMINAL, WAITING, JobState
from topmast.model.views import JobView
from topmast.ports import Journal

MAX_PAGE = 1_000
CURSOR_DIGITS = 18


class Selection(Struct, frozen=True):
    """Which jobs are wanted."""

    states: tuple[JobState, ...]
    """None means all."""
    tenant: str
    """Empty means all."""
    limit: int
    cursor: int | None
    """The number of the last job seen; in queue order, how many were seen."""
    queue_order: bool
    seen: frozenset[str] | None = None
    """The tenants with jobs that the caller may see; None: all."""

    def takes(self, state: str, tenant: str) -> bool:
        """Whether a job in a state, of a tenant, is wanted, and may be seen."""
        if self.seen is not None and tenant not in self.seen:
            return False
        return (not self.states or state in self.states) and self.tenant in ("", tenant)

    @property
    def may_be_archived(self) -> bool:
        """Whether finished jobs are wanted."""
        return not self.queue_order and (
            not self.states or any(state in TERMINAL for state in self.states)
        )


def select(
    states: tuple[str, ...],
    tenant: str,
    limit: int,
    cursor: str,
    queue_order: bool,
    seen: frozenset[str] | None = None,
) -> Selection:
    """A selection from what a request says. Raises InvalidInput."""
    if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= CURSOR_DIGITS):
        raise InvalidInput("not a cursor of this listing", field="cursor")
    return Selection(
        _states(states),
        tenant,
        max(1, min(limit, MAX_PAGE)),
        int(cursor) if cursor else None,
        queue_order,
        seen,
    )


def _states(names: tuple[str, ...]) -> tuple[JobState, ...]:
    found: list[JobState] = []
    for name in names:
        if name.lower() == "active":
            found += [state for state in JobState if state not in TERMINAL]
        elif name.upper() in JobState.__members__:
            found.append(JobState[name.upper()])
        else:
            near = get_close_matches(name.upper(), list(JobState), 1)
            known = f"one of {', '.join(JobState)}, active"
            remedy = f"did you mean '{near[0]}'?" if near else known
            raise InvalidInput(f"unknown state '{name}'", field="state", remedy=remedy)
    return tuple(found)


def counts(queue: GlobalQueue, seen: frozenset[str] | None = None) -> dict[str, int]:
    """Jobs in memory by state, of all tenants or of those ``seen``. O(jobs)."""
    found: dict[str, int] = {}
    for record in queue.jobs.records.values():
        if seen is not None and record.spec.tenant not in seen:
            continue
        found[record.state.value] = found.get(record.state.value, 0) + 1
    return found


def total(queue: GlobalQueue, wanted: Selection) -> int | None:
    """How many jobs are wanted, on all pages; None if some may have left memory. O(jobs)."""
    if wanted.may_be_archived and queue.jobs.has_forgotten:
        return None
    return sum(wanted.takes(job.state, job.spec.tenant) for job in queue.jobs.records.values())


def newest(queue: GlobalQueue, wanted: Selection) -> list[JobRecord]:
    """The newest wanted jobs in memory. O(jobs log limit)."""
    before = wanted.cursor
    chosen = (
        record
        for record in queue.jobs.records.values()
        if (before is None or record.number < before)
        and wanted.takes(record.state, record.spec.tenant)
    )
    return heapq.nlargest(wanted.limit, chosen, key=lambda record: record.number)


def in_queue_order(queue: GlobalQueue, wanted: Selection) -> list[JobRecord]:
    """Wanted jobs in queue order: those that hold GPUs, waiting ones by rank, finished ones.

    O(jobs log (limit + cursor)).
    """
    records = queue.jobs.records.values()
    chosen = (record for record in records if wanted.takes(record.state, record.spec.tenant))
    skipped = wanted.cursor or 0

    def key(record: JobRecord) -> tuple[float, ...]:
        if record.finished:
            return (2.0, -(record.finish_s or 0.0), -float(record.number))
        if record.state in WAITING and record.plan is None:
            return (1.0, *queue.rank_key(record))
        return (0.0, -float(record.band), record.submit_s, float(record.number))

    return heapq.nsmallest(skipped + wanted.limit, chosen, key=key)[skipped:]


def archived(
    journal: Journal, queue: GlobalQueue, wanted: Selection, down_to: int
) -> Iterator[JobView]:
    """Wanted jobs that left memory, newest first, down to number ``down_to``, page by page."""
    before = wanted.cursor
    while True:
        rows = journal.finished_jobs(before, MAX_PAGE)
        for row in rows:
            if row.number < down_to:
                return
            if row.job not in queue.jobs.records:
                view = msgspec.json.decode(row.view, type=JobView)
                if wanted.takes(view.state, view.tenant):
                    yield view
        if len(rows) < MAX_PAGE:
            return
        before = rows[-1].number


def merge(live: list[JobView], old: Iterator[JobView], limit: int) -> list[JobView]:
    """The newest ``limit`` of both."""
    found = live + [view for view, _ in zip(old, range(limit), strict=False)]
    found.sort(key=lambda view: -ids.job_number(view.id))
    return found[:limit]
