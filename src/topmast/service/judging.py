"""Threads that look into what is uploaded, so that one account does not keep all of them.

They are threads of their own: what takes long to read takes none of those that all requests share.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakValueDictionary

from topmast.model.access import Caller
from topmast.service.limits import Limits

THREADS = 2
"""Uploads that are looked into at the same time."""
TAKES_PER_S = 100.0
"""A second of a thread counts as so many requests: a small file may be long to read."""
T = TypeVar("T")


class Judging:
    """One upload of each account at a time; used on the event loop alone."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(THREADS, "upload")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, caller: Caller, work: Callable[[], T]) -> T:
        """What ``work`` returns or raises; a caller that goes away keeps its turn until then."""
        return await asyncio.shield(asyncio.ensure_future(self._run(caller, work)))

    async def _run(self, caller: Caller, work: Callable[[], T]) -> T:
        turn = self._turns.setdefault(caller.principal.subject, asyncio.Lock())
        cost_s = 0.0

        def judge() -> T:
            nonlocal cost_s
            begun_s = time.thread_time()
            try:
                return work()
            finally:
                cost_s = time.thread_time() - begun_s

        async with turn:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._threads, judge)
            finally:
                self._limits.charge(caller, "submit", cost_s * TAKES_PER_S)
