"""How answers of other threads come to the event loop: those that come together, in one wake-up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
ANSWERING_S = 50e-6
"""So long a thread sleeps that gave answers."""


def let_answer() -> None:
    """Let the threads go first that were given answers.

    They need the interpreter, which a thread that goes on would keep for as long as it has work, up
    to Python's switch interval (5 ms).
    """
    time.sleep(ANSWERING_S)


class _Desk:
    """Where the answers for one event loop lie until it fetches them."""

    def __init__(self) -> None:
        self._lie: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._is_called = False
        """Whether the loop is to come, and has not begun to fetch."""

    def put(
        self, loop: asyncio.AbstractEventLoop, waits: asyncio.Future[Any], answer: Future[Any]
    ) -> None:
        """Lay an answer down; from any thread. O(1)."""
        if loop.is_closed():
            return
        self._lie.append((waits, answer))
        if not self._is_called:  # before it begins to fetch: so none is left lying
            self._is_called = True
            loop.call_soon_threadsafe(self._fetch)

    def _fetch(self) -> None:
        self._is_called = False
        while self._lie:
            waits, answer = self._lie.popleft()
            if waits.done():
                continue  # the asker went away
            if answer.cancelled():
                waits.cancel()
            elif (error := answer.exception()) is not None:
                # No future of an event loop holds this one, as no generator lets it out (PEP 479).
                lets_out = not isinstance(error, StopIteration)
                waits.set_exception(error if lets_out else RuntimeError("StopIteration"))
            else:
                waits.set_result(answer.result())


_DESKS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Desk] = WeakKeyDictionary()


def handed(answer: Future[T]) -> asyncio.Future[T]:
    """A future of the running loop for one that another thread resolves.

    As `asyncio.wrap_future`, but for the wake-ups: a commit answers many requests, and each call of
    the loop from another thread is a call of the system.
    """
    loop = asyncio.get_running_loop()
    desk = _DESKS.get(loop)
    if desk is None:
        desk = _DESKS[loop] = _Desk()
    waits: asyncio.Future[T] = loop.create_future()
    waits.add_done_callback(partial(_leave, answer))
    answer.add_done_callback(partial(desk.put, loop, waits))
    return waits


def in_own_thread(work: Callable[[], T], name: str) -> asyncio.Future[T]:
    """What work returns that may hang: on a thread that does not keep the process from ending."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return handed(answer)


def _leave(answer: Future[Any], waits: asyncio.Future[Any]) -> None:
    """What nothing waits for any more need not be worked out."""
    if waits.cancelled():
        answer.cancel()
