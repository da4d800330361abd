"""The service of a standby: it answers from machines that follow the leader, and changes nothing.

The thread that follows owns the machines. Questions run between two of its looks at the journal, so
an answer is of one moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeVar, cast

import structlog

from topmast.adapters.clock import elapsed_s
from topmast.fast.queue import JobRecord
from topmast.model.errors import Unavailable
from topmast.model.views import JobPage
from topmast.ports import ActRow, Clock, HistoryRow, Mover
from topmast.runtime.loop import NO_OPTIONS
from topmast.runtime.machines import Machines
from topmast.runtime.recovery import Follower
from topmast.service.blobs import Blobs
from topmast.service.core import ReadLog
from topmast.service.event_stream import FIRST_EVENT, EventStream
from topmast.service.history import SAVE_S, History
from topmast.service.listing import Selection
from topmast.service.live_progress import LiveProgress
from topmast.service.past import EVENTS, Kept, PastJournal, PastRuntime, PastService, tenant_of
from topmast.service.regions import Regions

OVER = "this server does not stand by any more: ask again"
PAGE_ROWS = 5_000
"""So many events are told after one look; the rest after the next."""
T = TypeVar("T")

log = structlog.get_logger(__name__)


class KeptByLeader(Kept, Protocol):
    """The leader's journal, as another process reads it."""

    def history_after(self, after: int, limit: int) -> list[tuple[int, HistoryRow]]:
        """Lines of all histories behind one, oldest first, with their numbers."""
        ...


class StandbyJournal(PastJournal):
    """The leader's journal up to the last record that was followed."""

    fixed = "this server stands by: the leader changes things"


class StandbyRuntime(PastRuntime):
    """Machines that follow: a question waits for its turn between two looks at the journal."""

    def __init__(self, machines: Machines, journal: StandbyJournal, clock: Clock) -> None:
        super().__init__(machines, journal, clock)
        self._between_looks = threading.Lock()
        self._asked = ThreadPoolExecutor(1, thread_name_prefix="reads of a standby")
        self._over = False

    @contextmanager
    def changing(self) -> Iterator[None]:
        """No question runs meanwhile."""
        with self._between_looks:
            yield

    def ask(self, question: Callable[[], T]) -> Future[T]:
        """Run a question on the machines as they are."""
        if self._over:
            answer: Future[T] = Future()
            answer.set_exception(Unavailable(OVER))
            return answer
        return self._asked.submit(self._answer, question)

    def _answer(self, question: Callable[[], T]) -> T:
        with self._between_looks:
            if self._over:
                raise Unavailable(OVER)
            return question()

    def note(
        self,
        row: ActRow,
        options: Mapping[str, str] = NO_OPTIONS,
        told: tuple[HistoryRow, ...] = (),
    ) -> Future[None]:
        """The audit log is the leader's: an act here is a line of this server's own log."""
        say = log.info if row.outcome == "done" else log.warning
        say(row.verb, actor=row.actor, object=row.object, outcome=row.outcome)
        return super().note(row, options, told)

    def close(self) -> None:
        """Answer no more, from when this returns on: the machines are another's."""
        self._over = True
        with self._between_looks:
            self._asked.shutdown(wait=False, cancel_futures=True)


class StandbyService(PastService):
    """Why a job waits is in no journal: for the jobs of each page it is found out anew."""

    def _page(self, wanted: Selection, found: Sequence[JobRecord]) -> JobPage:
        self._told.clear()
        return super()._page(wanted, found)


class Followed:
    """Machines that follow, and the service that answers from them."""

    def __init__(
        self,
        follower: Follower,
        journal: KeptByLeader,
        clock: Clock,
        read_log: ReadLog,
        blobs: Blobs,
        regions: Regions,
    ) -> None:
        """``regions``: of the machines of the follower."""
        self.follower = follower
        self._journal = journal
        self._past = StandbyJournal(journal, lambda: follower.rebuilt.at_s)
        self._clock = clock
        self._runtime = StandbyRuntime(follower.machines, self._past, clock)
        last = journal.history_count()
        rows = journal.history_after(max(0, last - EVENTS), EVENTS)
        self._told = rows[-1][0] if rows else last
        self.events = EventStream(FIRST_EVENT + self._told - len(rows))
        self.events.publish([row for _, row in rows], self._tenant_of)
        no_mover = cast(Mover, None)  # only acts ask for one, and the leader takes these
        self.service = StandbyService(
            self._runtime, self._past, clock, read_log, no_mover, blobs, LiveProgress(),
            self.events, lambda cluster, host: None, regions,
        )  # fmt: skip
        self._sampled_s = -SAVE_S
        self._runtime.meter.recovered()
        self._runtime.seq = follower.rebuilt.seq

    def follow(self) -> int:
        """Apply what the leader has committed since, and tell it; how many records that were."""
        rows = self._journal.history_after(self._told, PAGE_ROWS)
        before = self.follower.rebuilt.seq
        with self._runtime.changing():
            after = self._runtime.seq = self.follower.follow(self._journal).seq
        if rows:
            self._told = rows[-1][0]
            self.events.publish([row for _, row in rows], self._tenant_of)
        if elapsed_s() - self._sampled_s >= SAVE_S:
            self._sampled_s = elapsed_s()
            self.service.samples = History(self._past, self._clock)
        return after - before

    def close(self) -> None:
        """Answer no more: the machines go over to what leads, or are given up."""
        self.events.close()
        self._runtime.close()

    @property
    def _tenant_of(self) -> Callable[[str], str]:
        return partial(tenant_of, self.follower.machines, self._past)
