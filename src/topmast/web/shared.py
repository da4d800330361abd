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
"""An answer that took a second serves for so many: then it costs the decisions 2% at most ..."""
MOST_S = 15.0
"""... but for no longer than this."""
MOST_KEPT = 500


class _Kept(Struct):
    task: asyncio.Task[Any]
    asked_s: float
    """When it was last asked for."""
    took_s: float = 0.0
    until_s: float = 0.0


class Answers:
    """Answers by question, each of which serves all that ask the same for a while."""

    def __init__(self, rest_s: Callable[[Answers], float], most_kept: int = MOST_KEPT) -> None:
        """``rest_s``: for how long a new answer serves."""
        self._kept: dict[Hashable, _Kept] = {}
        self._rest_s = rest_s
        self._most_kept = most_kept

    def cost_s(self) -> float:
        """How long all answers took together that were asked for a moment ago."""
        since_s = time.monotonic() - MOST_S
        return sum(kept.took_s for kept in self._kept.values() if kept.asked_s > since_s)

    async def get(
        self, key: Hashable, ask: Callable[[], Awaitable[T]], *, anew: bool = False
    ) -> tuple[T, float]:
        """The answer to a question, and for how many seconds it serves on.

        ``anew``: it must be asked from now on.
        """
        known = self._kept.get(key)
        if known is None or anew or _is_over(known):
            known = self._begin(key, ask)
        known.asked_s = time.monotonic()
        found: T = await asyncio.shield(known.task)
        return found, max(0.0, known.until_s - time.monotonic())

    def _begin(self, key: Hashable, ask: Callable[[], Awaitable[Any]]) -> _Kept:
        self._kept.pop(key, None)
        while len(self._kept) >= self._most_kept:
            del self._kept[next(iter(self._kept))]
        now_s = time.monotonic()
        known = _Kept(asyncio.get_running_loop().create_task(_asked(ask)), now_s)
        self._kept[key] = known
        known.task.add_done_callback(partial(self._serve, known, now_s))
        return known

    def _serve(self, known: _Kept, begun_s: float, task: asyncio.Task[Any]) -> None:
        """From now on it serves, unless it failed."""
        if not task.cancelled() and task.exception() is None:
            now_s = time.monotonic()
            known.took_s = now_s - begun_s
            known.until_s = now_s + min(MOST_S, self._rest_s(self))


async def _asked(ask: Callable[[], Awaitable[T]]) -> T:
    return await ask()


def _is_over(known: _Kept) -> bool:
    """Whether it serves no longer; a task of a loop that has ended never will."""
    if known.task.get_loop() is not asyncio.get_running_loop():
        return True
    return known.task.done() and time.monotonic() >= known.until_s


_answers: WeakKeyDictionary[Service, Answers] = WeakKeyDictionary()


def _rest_s(answers: Answers) -> float:
    return REST * answers.cost_s()


async def shared(service: Service, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
    """The answer to a question, with that of others that have just asked the same.

    ``key`` has all that the answer depends on, also what its reader may see.
    """
    if len(service.machines.queue.jobs.records) < MANY_JOBS:
        return await ask()
    if service not in _answers:
        _answers[service] = Answers(_rest_s)
    found, _ = await _answers[service].get(key, ask)
    return found
