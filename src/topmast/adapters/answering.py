"""Requests that nothing waits for any more: the client has left, or the server stops.

What has not begun then never does, and ends at once. What has begun is finished, as far as the
server's stop leaves it time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from topmast.model.errors import Unavailable
from topmast.model.views import Problem

CONNECTION = "topmast.connection"
"""Where the scope of a request has its connection."""
LEFT = "the client has left"
STOPS = "the server stops: ask again"
_READS = ("GET", "HEAD")
_AGAIN = (b"retry-after", b"1")
"""It starts again, or another leads: clients that may repeat a request wait for that."""


class Wanted:
    """One request, and whether its answer is wanted. Any thread may ask; the rest is the loop's."""

    def __init__(self, task: asyncio.Task[Any], *, only_reads: bool = False) -> None:
        self.only_reads = only_reads
        """Whether it changes nothing, so that it may be broken off whatever it has begun."""
        self.over = ""
        """Why it is not; empty: it is."""
        self.waits = 0
        """In how many waits it stands that may be broken off."""
        self.task = task
        self.stops = False
        """Whether the server stops."""

    def end(self, why: str) -> bool:
        """It is not, from now on. Whether that breaks off a wait."""
        self.stops = self.stops or why == STOPS
        if self.over:
            return False
        self.over = why
        if self.waits:
            self.task.cancel()
        return bool(self.waits)

    def refuse(self) -> None:
        """Raise Unavailable if it is not wanted."""
        if self.over:
            raise Unavailable(self.over)


ANSWERED: ContextVar[Wanted | None] = ContextVar("wanted", default=None)


def asked_for() -> Wanted | None:
    """The request that this task answers; None in tasks that others may wait for, too."""
    wanted = ANSWERED.get()
    return wanted if wanted is not None and wanted.task is asyncio.current_task() else None


def refuse_unwanted() -> None:
    """Raise Unavailable if the answer to the request at hand is wanted no longer."""
    wanted = asked_for()
    if wanted is not None:
        wanted.refuse()


@contextmanager
def waiting() -> Iterator[None]:
    """Nothing is begun in the block: it is broken off when the answer is wanted no longer.

    Raises Unavailable.
    """
    wanted = asked_for()
    if wanted is None:
        yield
        return
    wanted.refuse()
    wanted.waits += 1
    try:
        yield
    except asyncio.CancelledError:
        if not wanted.over or wanted.task.uncancel():
            raise
        raise Unavailable(wanted.over) from None
    finally:
        wanted.waits -= 1


@contextmanager
def reading() -> Iterator[None]:
    """As `waiting`, for a request that changes nothing; others go on. Raises Unavailable."""
    wanted = asked_for()
    with waiting() if wanted is not None and wanted.only_reads else nullcontext():
        yield


@asynccontextmanager
async def locked(lock: asyncio.Lock | asyncio.Semaphore) -> AsyncIterator[None]:
    """Hold a lock, once the turn has come. Raises Unavailable, as `waiting` does."""
    with waiting():
        await lock.acquire()
    try:
        yield
    finally:
        lock.release()


class Answering:
    """The application of a server, and the requests under way: they end when it stops."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._under_way: dict[Wanted, None] = {}
        self._stops = False
        self.cut_off = 0
        """How many had no answer but that the server stops."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        task = asyncio.current_task()
        assert task is not None
        wanted = Wanted(task, only_reads=scope.get("method") in _READS)
        connection, begun = scope[CONNECTION], False
        wanted.over = LEFT if connection.is_lost else STOPS if self._stops else ""
        connection.asked = wanted
        self._under_way[wanted] = None

        async def answer(message: Message) -> None:
            nonlocal begun
            if not begun:
                connection.joined.head_comes()
            begun = True
            if self._stops and message.get("status") == 503:
                message["headers"] = [*message["headers"], _AGAIN]
            await send(message)

        ANSWERED.set(wanted)
        try:
            await self._app(scope, receive, answer)
        except asyncio.CancelledError:
            if not self._stops:
                raise
            self.cut_off += 1
            if begun:
                connection.transport.abort()
                await asyncio.sleep(0)  # until the connection knows
            else:
                await _unavailable(send)
        finally:
            del self._under_way[wanted]

    def stop(self) -> None:
        """Begin nothing more, and end what waits."""
        self._stops = True
        self.cut_off += sum([wanted.end(STOPS) for wanted in self._under_way])

    def cut(self) -> None:
        """End what is still under way."""
        for wanted in self._under_way:
            wanted.task.cancel()


async def _unavailable(send: Send) -> None:
    body = msgspec.json.encode(Problem("about:blank", "Unavailable", 503, STOPS))
    headers = [(b"content-type", b"application/problem+json"),
               (b"content-length", b"%d" % len(body)), _AGAIN]  # fmt: skip
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
