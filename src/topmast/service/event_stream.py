"""The stream of events: what happened, as it happens, to all listeners."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec

from topmast.model import ids
from topmast.model.views import EventView
from topmast.ports import HistoryRow

FIRST_EVENT = 2_000_000_000_000
"""Events are numbered like lines in the journal, from here on.

Earlier versions numbered them by the milliseconds of their clock. A reader that returns with such a
number must not wait for ever.
"""
KEPT = 20_000
"""Events that a reader can still get when it returns."""
REST_S, PAGES_REST_S = 0.02, 1.0
"""For each reader, readers together are woken this much later after they were woken before, up to
a second: a page draws itself anew no sooner."""
LEAST_REST_S = 0.005
"""For each reader at least, however many they are: to wake one takes a tenth of a millisecond."""

T = TypeVar("T")


class Told(NamedTuple):
    """An event, and the tenant that it belongs to."""

    event: EventView
    tenant: str | None
    """None: it is about no job, and so for all tenants."""


class Batch(tuple[Told, ...]):
    """Events that became known together: one value for all readers that had heard the same."""

    _made: dict[Hashable, Any]

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is made of these events, once for all that give the same ``key``."""
        if "_made" not in self.__dict__:
            self._made = {}
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found


class EventStream:
    """Fans audit rows out to readers; numbers grow for ever, also over restarts.

    Rows are published by any thread; all readers are on one event loop.
    """

    def __init__(self, first_seq: int) -> None:
        self._seq = first_seq
        self._kept: deque[tuple[int, str, HistoryRow, str | None]] = deque(maxlen=KEPT)
        """Number, job, row and tenant; a row is put into words for those that read it."""
        self._lock = threading.Lock()
        self._readers: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Event]] = {}
        self._next_reader = 0
        self._will_ring = False
        """Whether the readers will be woken for all that is published up to then."""
        self._rung_s = float("-inf")
        self._newest: tuple[int, int, Batch] = (0, 0, Batch())
        """The batch that was read last: after which number it begins, and with which it ends."""
        self.closed = False

    def publish(
        self, rows: Sequence[HistoryRow], tenant_of: Callable[[str], str] = lambda job: ""
    ) -> None:
        """Take the rows of a commit; from any thread. O(rows), however many readers there are."""
        with self._lock:
            self._seq += max(0, len(rows) - KEPT)  # those before the last are not kept anyway
            for row in rows[-KEPT:]:
                self._seq += 1
                job = "" if ids.is_host(row.job) else row.job
                self._kept.append((self._seq, job, row, tenant_of(job) if job else None))
            if self._will_ring or not self._readers:
                return
            self._will_ring = True
            loop, _ = next(iter(self._readers.values()))
        loop.call_soon_threadsafe(self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake all readers; a while later if they were woken a moment ago."""
        rest_s = self._rung_s + _rest_s(len(self._readers)) - loop.time()
        if rest_s > 0.0 and not self.closed:
            loop.call_later(rest_s, self._ring, loop)
            return
        self._rung_s = loop.time()
        with self._lock:
            self._will_ring = False
            readers = list(self._readers.values())
        for _, bell in readers:
            bell.set()

    def close(self) -> None:
        """End all streams."""
        self.closed = True
        with self._lock:
            readers = list(self._readers.values())
        for loop, bell in readers:
            loop.call_soon_threadsafe(bell.set)

    @property
    def readers(self) -> int:
        """How many follow the events now."""
        return len(self._readers)

    @property
    def last_seq(self) -> int:
        """The number of the newest event."""
        return self._seq

    def since(self, seq: int) -> list[Told]:
        """Kept events after ``seq``, oldest first. O(those events)."""
        with self._lock:
            newer = islice(reversed(self._kept), max(0, self._seq - seq))
            found = list(newer)[::-1]
        return [_told(*kept) for kept in found]

    def newest(self) -> Iterator[Told]:
        """Kept events, newest first; each is put into words when it is asked for."""
        with self._lock:
            found = list(self._kept)
        return (_told(*kept) for kept in reversed(found))

    def _batch(self, after: int) -> Batch:
        """The same as a batch, which readers share."""
        begin, end, known = self._newest
        if (begin, end) != (after, self._seq):
            known = Batch(self.since(after))
            end = known[-1].event.seq if known else after
            self._newest = (after, end, known)
        return known

    async def follow(self, after: int, beat_s: float = 15.0) -> AsyncIterator[Batch]:
        """Batches of events after ``after`` as they come; an empty one each ``beat_s`` without."""
        bell = asyncio.Event()
        bell.set()  # for what was missed
        with self._lock:
            reader = self._next_reader
            self._next_reader += 1
            self._readers[reader] = (asyncio.get_running_loop(), bell)
        try:
            while not self.closed:
                try:
                    async with asyncio.timeout(beat_s):
                        await bell.wait()
                except TimeoutError:
                    yield Batch()
                    continue
                bell.clear()
                batch = self._batch(after)
                if batch:
                    after = batch[-1].event.seq
                    yield batch
        finally:
            with self._lock:
                self._readers.pop(reader, None)


def _rest_s(readers: int) -> float:
    """How long so many readers are left alone after they were woken."""
    return max(LEAST_REST_S * readers, min(REST_S * readers, PAGES_REST_S))


def _told(seq: int, job: str, row: HistoryRow, tenant: str | None) -> Told:
    detail = msgspec.json.decode(row.detail)
    return Told(EventView(seq, row.at_s, row.kind, job, row.text, detail), tenant)
