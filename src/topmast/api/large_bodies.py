"""The large bodies of a process: the memory that they take, and the threads that read them.

No account keeps the others from either, by however many bodies, and however slowly they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

from fastapi import Request

from topmast.model.access import Caller
from topmast.model.errors import TopmastError, Unavailable
from topmast.routing import CALLER
from topmast.service.judging import TAKES_PER_S
from topmast.service.limits import Limits, Timer
from topmast.service.turns import OneEach

T = TypeVar("T")
BULK_BYTES = 128 * 1024 * 1024
ALL_LARGE_BYTES = 256 * 1024 * 1024
"""What bodies over `ON_LOOP_BYTES` may take together, while they are read."""
ONE_LARGE_BYTES = BULK_BYTES
"""The same, of one principal."""
ON_LOOP_BYTES = 64 * 1024
"""Larger documents are decoded by a thread, so that other requests do not wait for them."""
THREADS = 2
"""Documents that are decoded at the same time."""


class Counted(Protocol):
    """What counts the requests of accounts: `service.Service`."""

    limits: Limits


class LargeBodies:
    """What the large bodies of a process hold at a time; used on the event loop alone."""

    def __init__(self, counted: Counted | None = None) -> None:
        """``counted``: what counts the requests of accounts; None: a process without accounts."""
        self.held_bytes = 0
        self.of: dict[str, int] = {}
        """By principals that share the server with others."""
        self._counted = counted
        self._rooms: dict[Room, None] = {}
        """Those of principals that share the server, the oldest first."""
        self._each = OneEach()
        self._threads = ThreadPoolExecutor(THREADS, "body")

    @contextmanager
    def room(self, request: Request) -> Iterator[Room]:
        """Room for one body, for as long as it is looked at.

        Raises Unavailable if another principal needs it, and this one has most of all room.
        """
        caller: Caller | None = request.scope.get(CALLER)
        owner = ""
        if caller is not None and not caller.principal.trusted:
            owner = caller.principal.subject
        room = Room(self, owner)
        if owner:
            self._rooms[room] = None
        try:
            yield room
        except asyncio.CancelledError:
            if not room.is_lost or room.task is None:
                raise
            room.task.uncancel()
            raise Unavailable(
                f"others need the room of the large requests of {owner}; try again, faster"
            ) from None
        finally:
            self._rooms.pop(room, None)
            room.hold(-room.held_bytes)

    def make_way(self, room: Room, more_bytes: int) -> None:
        """Have room for more of a body. Raises Unavailable.

        Bodies of the principal that holds most are given up, the oldest first: a few that come
        slowly would else keep all others out.
        """
        own_bytes = more_bytes + (self.of.get(room.owner, 0) if room.owner else 0)
        if own_bytes <= ONE_LARGE_BYTES or not room.owner:
            while self.held_bytes + more_bytes > ALL_LARGE_BYTES:
                most = max(self.of, key=lambda name: self.of[name], default="")
                given = [one for one in self._rooms if one.owner == most and one.task is not None]
                if not given or self.of[most] <= own_bytes or most == room.owner:
                    break
                given[0].give_up()
            else:
                return
        raise Unavailable("too many large requests at once; try again soon")

    async def decoded(
        self, request: Request, decode: Callable[[], T], size_bytes: int, timer: Timer
    ) -> T:
        """What a document says; ``timer``: of the thread that decodes it, if it is long.

        Raises TooMany, and what ``decode`` raises. One long one of each account at a time, on
        threads of their own, and none of an account in debt.
        """
        if size_bytes <= ON_LOOP_BYTES:
            return decode()
        caller: Caller | None = request.scope.get(CALLER)
        if caller is None or self._counted is None:
            return await self._on_thread(request, decode, timer)
        limits = self._counted.limits
        limits.take(caller, "submit", 0.0, floor=0.0)
        async with self._each.turn(caller):
            limits.take(caller, "submit", 0.0, floor=0.0)  # what came before may have cost
            return await self._on_thread(request, decode, timer)

    async def _on_thread(self, request: Request, decode: Callable[[], T], timer: Timer) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, timer.run, decode)
        except TopmastError:
            self.charge(request, timer.took_s)
            raise

    def charge(self, request: Request, cost_s: float) -> None:
        """Count what a document cost that is refused: one that is taken is paid by what it says."""
        caller: Caller | None = request.scope.get(CALLER)
        if caller is not None and self._counted is not None:
            self._counted.limits.charge(caller, "submit", cost_s * TAKES_PER_S)


class Room:
    """The room of one body."""

    def __init__(self, all_of_them: LargeBodies, owner: str) -> None:
        self.owner = owner
        self.held_bytes = 0
        self.is_lost = False
        """Others needed it."""
        self.task: asyncio.Task[object] | None = None
        """What reads the body."""
        self._all = all_of_them

    def grow_to(self, size_bytes: int) -> None:
        """Hold so much, as far as it counts. Raises Unavailable."""
        if size_bytes <= ON_LOOP_BYTES or self.is_lost:
            return
        more = size_bytes - self.held_bytes
        self._all.make_way(self, more)
        self.hold(more)

    def hold(self, more_bytes: int) -> None:
        """Hold so much more, or less."""
        self._all.held_bytes += more_bytes
        self.held_bytes += more_bytes
        if self.owner:
            left = self._all.of.pop(self.owner, 0) + more_bytes
            if left:
                self._all.of[self.owner] = left

    def give_up(self) -> None:
        """Others need it: what reads the body is told at once, also if nothing comes."""
        assert self.task is not None
        self.is_lost = True
        self.hold(-self.held_bytes)
        self.task.cancel()
