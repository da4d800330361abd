"""Threads that look into what is uploaded, so that no account and no tenant keeps all of them.

They are threads of their own: what takes long to read takes none of those that all requests share.
Each has a process read for it, so that the threads do not wait for one another's interpreter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from topmast.adapters.answering import waiting
from topmast.adapters.archive_readers import Readers
from topmast.model.access import Caller
from topmast.model.errors import Unavailable
from topmast.service.blobs import Fault
from topmast.service.limits import Limits, Timer
from topmast.service.turns import OneEach

THREADS = 3
"""Uploads that are looked into at the same time."""
OF_TENANT = THREADS - 1
"""Those of one tenant, with all below it: its administrators can make any number of accounts."""
TAKES_PER_S = 100.0
"""A second of a thread counts as so many requests: a small file may be long to read."""
T = TypeVar("T")


class Judging:
    """One upload of each account at a time, and few of a tenant; used on the event loop alone."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(THREADS, "upload")
        self._readers = Readers()
        self._each = OneEach()
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By tenant at the top of the tree."""

    async def run(self, caller: Caller, tenants: Sequence[str], work: Callable[[Fault], T]) -> T:
        """What ``work`` returns or raises: it is given what judges archives.

        Until its turn has come a caller that goes away ends it; from then on it keeps the turn.
        ``tenants``: those at the top of the tree, or the root, that the upload may count for. It
        waits for the turn of one alone: a role that a tenant gives delays nothing. Raises TooMany
        if too many of the account wait already, and Unavailable if no archive can be read.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._each.turn(caller))
            turn = min(map(self._turn, tenants), key=asyncio.Semaphore.locked)
            with waiting():
                await turn.acquire()
            stack.callback(turn.release)
            turns = stack.pop_all()
        return await asyncio.shield(asyncio.ensure_future(self._run(turns, caller, work)))

    def close(self) -> None:
        """Refuse what is read now, and what comes: the server stops."""
        self._readers.close()

    async def _run(self, turns: AsyncExitStack, caller: Caller, work: Callable[[Fault], T]) -> T:
        timer, loop = Timer(), asyncio.get_running_loop()

        def fault(content: bytes) -> str:
            try:
                wrong, took_s = self._readers.fault(content)
            except OSError as error:
                raise Unavailable(f"the work folder cannot be read now: {error}") from error
            timer.took_s += took_s
            return wrong

        async with turns:
            try:
                return await loop.run_in_executor(self._threads, timer.run, partial(work, fault))
            finally:
                self._limits.charge(caller, "submit", timer.took_s * TAKES_PER_S)

    def _turn(self, tenant: str) -> asyncio.Semaphore:
        return self._turns.setdefault(tenant, asyncio.Semaphore(OF_TENANT))
