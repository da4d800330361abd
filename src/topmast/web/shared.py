"""Answers that many open pages share, where each would take long on the thread that decides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct

from topmast.service.service import Service

T = TypeVar("T")

MANY_JOBS = 20_000
"""With fewer jobs than these every page asks for itself."""
REST = 50.0
"""An answer that took a second serves for so many ..."""
MOST_S = 15.0
"""... but for no longer than this."""
MOST_KEPT = 500


class _Kept(Struct):
    task: asyncio.Task[Any]
    until_s: float = 0.0


_kept: WeakKeyDictionary[Service, dict[Hashable, _Kept]] = WeakKeyDictionary()


async def shared(service: Service, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
    """The answer to a question, with that of others that have just asked the same.

    ``key`` has all that the answer depends on, also what its reader may see.
    """
    if len(service.machines.queue.jobs.records) < MANY_JOBS:
        return await ask()
    answers, loop = _kept.setdefault(service, {}), asyncio.get_running_loop()
    known = answers.get(key)
    if known is None or known.task.get_loop() is not loop or _is_over(known):
        answers.pop(key, None)
        while len(answers) >= MOST_KEPT:
            del answers[next(iter(answers))]
        known = answers[key] = _Kept(loop.create_task(_asked(ask)))
        known.task.add_done_callback(partial(_serve, known, time.monotonic()))
    found: T = await asyncio.shield(known.task)
    return found


async def _asked(ask: Callable[[], Awaitable[T]]) -> T:
    return await ask()


def _is_over(known: _Kept) -> bool:
    return known.task.done() and time.monotonic() >= known.until_s


def _serve(known: _Kept, begun_s: float, task: asyncio.Task[Any]) -> None:
    """From now on it serves, unless it failed."""
    if not task.cancelled() and task.exception() is None:
        now_s = time.monotonic()
        known.until_s = now_s + min(MOST_S, REST * (now_s - begun_s))
