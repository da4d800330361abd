"""The stream of events: what happened, as it happens, to all listeners."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

import msgspec

from topmast.model import ids
from topmast.model.views import EventView
from topmast.ports import HistoryRow

FIRST_EVENT = 2_000_000_000_000
"""Events are numbered like lines in the journal, from here on.

Earlier versions numbered them by the milliseconds of their clock. A reader that returns with such a
number must not wait for ever.
"""
KEPT = 10_000
"""Events that a reader can still get when it returns."""


class Told(NamedTuple):
    """An event, and the tenant that it belongs to."""

    event: EventView
    tenant: str | None
    """None: it is about no job, and so for all tenants."""


class EventStream:
    """Fans audit rows out to readers; numbers grow for ever, also over restarts."""

    def __init__(self, first_seq: int) -> None:
        self._seq = first_seq
        self._kept: deque[tuple[int, str, HistoryRow, str | None]] = deque(maxlen=KEPT)
        """Number, job, row and tenant; a row is put into words for those that read it."""
        self._lock = threading.Lock()
        self._readers: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Event]] = {}
        self._next_reader = 0
        self.closed = False

    def publish(
        self, rows: Sequence[HistoryRow], tenant_of: Callable[[str], str] = lambda job: ""
    ) -> None:
        """Take the rows of a commit; from any thread. O(rows + readers)."""
        with self._lock:
            for row in rows:
                self._seq += 1
                job = "" if ids.is_host(row.job) else row.job
                self._kept.append((self._seq, job, row, tenant_of(job) if job else None))
            readers = list(self._readers.values())
        for loop, bell in readers:
            loop.call_soon_threadsafe(bell.set)

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
        """Kept events after ``seq``, oldest first."""
        with self._lock:
            if not self._kept or self._kept[-1][0] <= seq:
                return []
            found = [kept for kept in self._kept if kept[0] > seq]
        return [_told(*kept) for kept in found]

    async def follow(self, after: int, beat_s: float = 15.0) -> AsyncIterator[list[Told]]:
        """Batches of events after ``after`` as they come; an empty one each ``beat_s`` without."""
        bell = asyncio.Event()
        with self._lock:
            reader = self._next_reader
            self._next_reader += 1
            self._readers[reader] = (asyncio.get_running_loop(), bell)
        try:
            while not self.closed:
                bell.clear()
                batch = self.since(after)
                if batch:
                    after = batch[-1].event.seq
                    yield batch
                    continue
                try:
                    await asyncio.wait_for(bell.wait(), beat_s)
                except TimeoutError:
                    yield []
        finally:
            with self._lock:
                self._readers.pop(reader, None)


def _told(seq: int, job: str, row: HistoryRow, tenant: str | None) -> Told:
    detail = msgspec.json.decode(row.detail)
    return Told(EventView(seq, row.at_s, row.kind, job, row.text, detail), tenant)
