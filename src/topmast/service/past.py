"""The service of a moment that is over: it answers as the server did then, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar, cast

import msgspec
from msgspec.structs import replace

from topmast.fast.queue import JobRecord
from topmast.model import messages as m
from topmast.model.access import Caller
from topmast.model.errors import Conflict
from topmast.model.reason import PendingReason
from topmast.model.views import Explanation, JobPage, JobView
from topmast.ports import (
    Act,
    ActFilter,
    ActRow,
    AttemptRow,
    Audit,
    Clock,
    HistoryRow,
    JobRow,
    Journal,
    Mover,
    Record,
    Snapshot,
    UsageDay,
)
from topmast.runtime.loop import NO_OPTIONS, Runtime
from topmast.runtime.machines import Machines
from topmast.runtime.recovery import Follower, Rebuilt
from topmast.service.blobs import Blobs
from topmast.service.core import ReadLog
from topmast.service.event_stream import EventStream, Told
from topmast.service.explain import explain_job
from topmast.service.history import History
from topmast.service.limits import Rate, Rates
from topmast.service.listing import Selection
from topmast.service.live_progress import LiveProgress
from topmast.service.service import Service

FIXED = "this is a replay of the past: nothing can be changed"
MOST_JUDGED = 30
"""Of so many waiting jobs it is found out why they wait; each costs a search."""
EVENTS = 1_000
"""So many of the newest events are shown."""
LIVELY = Rate(1e6, 1e6)
"""One reader moves through time as fast as it likes."""
T = TypeVar("T")


class Kept(Journal, Protocol):
    """A journal that tells all histories up to a time."""

    def history_until(self, until_s: float, limit: int) -> list[HistoryRow]:
        """The newest lines of all histories up to a time, oldest first."""
        ...

    def option(self, name: str) -> str | None:
        """What was kept."""
        ...


class FixedClock:
    """A clock that stands."""

    def __init__(self, at_s: float) -> None:
        self._at_s = at_s

    def now(self) -> float:
        """Always the same."""
        return self._at_s


class PastJournal:
    """A journal as it was at a time: `ports.Journal`, without what was written since."""

    epoch = 0
    fixed = FIXED
    """Why nothing can be changed."""

    def __init__(
        self, journal: Kept, at_s: Callable[[], float], snapshots: Sequence[Snapshot] = ()
    ) -> None:
        """``at_s``: the time, which may grow. ``snapshots``: more than the journal has, by time."""
        self._journal = journal
        self._moment = at_s
        self._snapshots = snapshots

    @property
    def _at_s(self) -> float:
        return self._moment()

    def append(self, records: Sequence[Record], audit: Audit) -> None:
        """Refused."""
        raise Conflict(self.fixed)

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Refused."""
        raise Conflict(self.fixed)

    def latest_snapshot(self, until_s: float | None = None) -> Snapshot | None:
        """The newest snapshot of that time."""
        until_s = self._until(until_s)
        mine = next((one for one in reversed(self._snapshots) if one.at_s <= until_s), None)
        found = self._journal.latest_snapshot(until_s)
        newer = mine is not None and (found is None or mine.seq >= found.seq)
        return mine if newer else found

    def records(self, after: int = 0, until_s: float | None = None) -> Iterator[Record]:
        """The records up to that time."""
        return self._journal.records(after, self._until(until_s))

    def _until(self, until_s: float | None) -> float:
        return self._at_s if until_s is None else min(until_s, self._at_s)

    def history(self, job: str, limit: int = 1000) -> list[HistoryRow]:
        """What had happened to a job."""
        return [row for row in self._journal.history(job, limit) if row.at_s <= self._at_s]

    def events(self) -> list[HistoryRow]:
        """The newest lines of all histories."""
        return self._journal.history_until(self._at_s, EVENTS)

    def history_count(self) -> int:
        """Nothing is added any more."""
        return 0

    def attempts(self, since_s: float, until_s: float) -> list[AttemptRow]:
        """Attempts that had ended."""
        rows = self._journal.attempts(since_s, self._until(until_s))
        return [row for row in rows if row.end_s <= self._at_s]

    def usage_days(self, since_s: float, until_s: float) -> list[UsageDay]:
        """What jobs used that are forgotten by now."""
        return self._journal.usage_days(since_s, self._until(until_s))

    def attempts_of(self, job: str) -> list[AttemptRow]:
        """The attempts of a job that had ended."""
        return [row for row in self._journal.attempts_of(job) if row.end_s <= self._at_s]

    def acts(self, wanted: ActFilter) -> list[ActRow]:
        """Acts up to that time."""
        return self._journal.acts(replace(wanted, until_s=self._until(wanted.until_s)))

    def finished_job(self, job: str) -> JobRow | None:
        """A job that had ended."""
        found = self._journal.finished_job(job)
        return None if found is None or found.finish_s > self._at_s else found

    def finished_jobs_of(self, jobs: Sequence[str]) -> list[JobRow]:
        """Those of the jobs that had ended."""
        rows = self._journal.finished_jobs_of(jobs)
        return [row for row in rows if row.finish_s <= self._at_s]

    def finished_jobs(
        self,
        before_number: int | None = None,
        limit: int = 100,
        tenants: Sequence[str] | None = None,
    ) -> list[JobRow]:
        """Jobs that had ended, newest number first."""
        found: list[JobRow] = []
        while len(found) < limit:
            rows = self._journal.finished_jobs(before_number, limit, tenants)
            found += [row for row in rows if row.finish_s <= self._at_s]
            if len(rows) < limit:
                break
            before_number = rows[-1].number
        return found[:limit]

    def option(self, name: str) -> str | None:
        """What was kept, as it is now."""
        return self._journal.option(name)

    def set_option(self, name: str, value: str) -> None:
        """Refused."""
        raise Conflict(self.fixed)

    def leads(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """The journal itself stays open, for other moments."""


class PastRuntime(Runtime):
    """Machines that stand: questions are answered at once, and nothing is decided."""

    def __init__(
        self, machines: Machines, journal: PastJournal, clock: Clock, seq: int = 0
    ) -> None:
        super().__init__(machines, journal, clock, _drop, _drop, _fail, _drop_event, lambda: None)
        self.seq = seq
        self._fixed = journal.fixed

    def post(self, to: str, message: m.Message) -> None:
        """Dropped."""

    def call(self, to: str, message: m.Message, act: Act | None = None) -> Future[Any]:
        """Refused."""
        answer: Future[Any] = Future()
        answer.set_exception(Conflict(self._fixed))
        return answer

    def note(
        self,
        row: ActRow,
        options: Mapping[str, str] = NO_OPTIONS,
        told: tuple[HistoryRow, ...] = (),
    ) -> Future[None]:
        """The audit log of the past is full: the line is dropped."""
        answer: Future[None] = Future()
        answer.set_result(None)
        return answer

    def ask(self, question: Callable[[], T]) -> Future[T]:
        """Run a question now."""
        answer: Future[T] = Future()
        try:
            answer.set_result(question())
        except Exception as error:
            answer.set_exception(error)
        return answer


class PastService(Service):
    """Why a job waits is in no journal: for the jobs of a page it is found out anew."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._told: dict[str, Explanation] = {}

    def _page(self, wanted: Selection, found: Sequence[JobRecord]) -> JobPage:
        page = super()._page(wanted, found)
        return replace(page, jobs=tuple(self._judged(job) for job in page.jobs))

    def _judged(self, view: JobView) -> JobView:
        if view.reason != PendingReason.PENDING_EVALUATION:
            return view
        told = self._explained(view.id)
        reason = view.reason if told is None or told.reason is None else told.reason
        return replace(view, reason=reason)

    def _explained(self, job: str) -> Explanation | None:
        """Of the first jobs that are asked for."""
        known = self._told
        record = self.machines.queue.jobs.records.get(job)  # a standby may have lost it meanwhile
        if record is not None and job not in known and len(known) < MOST_JUDGED:
            now_s = self.clock.now()
            known[job] = explain_job(
                self.machines.queue, self.regions.placers, record, now_s, in_brief=True
            )
        return known.get(job)

    async def sentences(self, caller: Caller, jobs: Sequence[str]) -> dict[str, str]:
        """Why each of some jobs stands where it stands."""
        told = await super().sentences(caller, jobs)
        known = self._told
        return {job: known[job].summary if job in known else why for job, why in told.items()}


def _drop(what: Any) -> None:
    """Nothing leaves the past."""


def _drop_event(event: m.Message, error: Exception) -> None:
    """Nothing comes to it."""


def _fail(error: BaseException) -> NoReturn:
    raise error


class PastEvents(EventStream):
    """The events up to a time, read when they are first asked for; no stream waits for more."""

    def __init__(self, journal: PastJournal, tenant_of: Callable[[str], str]) -> None:
        super().__init__(0)
        self.closed = True
        self._journal = journal
        self._tenant_of = tenant_of
        self._read = False

    def since(self, seq: int) -> list[Told]:
        """Events after ``seq``, oldest first."""
        self._read_once()
        return super().since(seq)

    def newest(self) -> Iterator[Told]:
        """All of them, newest first."""
        self._read_once()
        return super().newest()

    def _read_once(self) -> None:
        if not self._read:
            self._read = True
            self.publish(self._journal.events(), self._tenant_of)


def tenant_of(machines: Machines, journal: Journal, job: str) -> str:
    """The tenant of a job that is known or was kept; empty: it is neither."""
    record = machines.queue.jobs.records.get(job)
    if record is not None:
        return record.spec.tenant
    row = journal.finished_job(job)
    return "" if row is None else msgspec.json.decode(row.view, type=JobView).tenant


def past_service(
    machines: Machines,
    journal: Kept,
    at_s: float,
    read_log: ReadLog,
    blobs: Blobs,
    snapshots: Sequence[Snapshot] = (),
) -> tuple[Service, Rebuilt]:
    """The service of a moment. O(records since a snapshot).

    ``machines`` are fresh. Output of tasks is as it is now.
    """
    past = PastJournal(journal, lambda: at_s, snapshots)
    rebuilt = Follower(machines, at_s).follow(past)
    runtime = PastRuntime(machines, past, FixedClock(at_s), rebuilt.seq)
    runtime.meter.recovered()
    no_mover = cast(Mover, None)  # only acts ask for one, and they are refused
    service = PastService(
        runtime, past, runtime.clock, read_log, no_mover, blobs, LiveProgress(),
        PastEvents(past, partial(tenant_of, machines, past)), lambda cluster, host: None,
    )  # fmt: skip
    service.samples = History(past, runtime.clock)
    service.set_limits(Rates(*(LIVELY for _ in Rates.__struct_fields__)))
    return service, rebuilt
