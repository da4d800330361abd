"""Long looks at the machines, in slices between which these go on.

A look runs on a thread of its own. The thread that owns the machines stands still for one slice
at a time, and decides between two of them; what was copied may be worked on meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

import structlog

from topmast.adapters.answering import Wanted, asked_for, locked
from topmast.adapters.clock import elapsed_s
from topmast.adapters.handing import in_own_thread
from topmast.model.access import Caller
from topmast.model.errors import TooMany, TopmastError, Unavailable

SLICE_S = 0.02
"""After so long a look lets the machines go on, as soon as it can be interrupted."""
ASKED_AT_ONCE = 32
"""So many requests of an account may wait for one another: of the connections others need some."""
PAUSE_AFTER_S = 0.005
"""So long one request is worked on, where others wait for the same thread."""
TAKES = 4
"""So often a look is begun, if what it rests on changes under it."""
T = TypeVar("T")
log = structlog.get_logger(__name__)


class Moved(Exception):
    """What a look rests on has changed while the machines went on."""


class Timed(Protocol):
    """A machine, with the time of its last event."""

    now: float


class Asked(Protocol):
    """What runs questions on machines that rest meanwhile: `runtime.Runtime`."""

    seq: int

    def ask(self, question: Callable[[], None]) -> Future[None]:
        """Run a question between two commits."""
        ...


class Turns:
    """A look in one piece: it never pauses. For machines that rest anyway."""

    @contextmanager
    def at(self, machines: Sequence[Timed], now: float) -> Iterator[None]:
        """Look at the machines as they are at ``now``; afterwards their clocks are set back."""
        before = _set(machines, [now] * len(machines))
        try:
            yield
        finally:
            _set(machines, before)

    def rest_on(self, basis: Callable[[], tuple[object, ...]]) -> None:
        """What the look would be false without: the same objects, or it is taken again."""

    def pause(self) -> None:
        """Let the machines go on, if they have stood still for long enough."""

    def aside(self) -> AbstractContextManager[None]:
        """For its duration the machines go on, and are not looked at: only copies are."""
        return nullcontext()


WHOLE = Turns()


class InTurns(Turns):
    """A look in slices, on the thread that makes it. One look at a time."""

    def __init__(
        self, runtime: Asked, slice_s: float = SLICE_S, wanted: Wanted | None = None
    ) -> None:
        """``wanted``: the request that the look is for; it ends when that is wanted no longer."""
        self.first_seq = self.last_seq = 0
        """The last event before the first slice, and before the latest one."""
        self.longest_s = 0.0
        """The longest time for which the machines stood still."""
        self._runtime = runtime
        self._slice_s = slice_s
        self._wanted = wanted
        self._machines: Sequence[Timed] = ()
        self._before: list[float] = []
        self._basis: Callable[[], tuple[object, ...]] = tuple
        self._rests_on: tuple[object, ...] = ()
        self._since_s = 0.0
        self._over: threading.Event | None = None
        """Set at the end of the slice; None between slices."""

    @contextmanager
    def slices(self) -> Iterator[None]:
        """The whole look: its first slice begins, and its last one ends."""
        self._begin()
        self.first_seq = self.last_seq
        try:
            yield
        finally:
            self._end()

    @contextmanager
    def at(self, machines: Sequence[Timed], now: float) -> Iterator[None]:
        """As of any look; between slices the machines have their own clocks."""
        self._machines, self._before = machines, _set(machines, [now] * len(machines))
        try:
            yield
        finally:
            if self._over is not None:
                _set(machines, self._before)
            self._machines = ()

    def rest_on(self, basis: Callable[[], tuple[object, ...]]) -> None:
        """As of any look; asked again at the beginning of each slice."""
        self._basis, self._rests_on = basis, basis()

    def pause(self) -> None:
        """As of any look. Raises Moved, Unavailable."""
        if elapsed_s() - self._since_s >= self._slice_s:
            with self.aside():
                pass

    @contextmanager
    def aside(self) -> Iterator[None]:
        """As of any look. Raises Moved at its end."""
        looked = _set(self._machines, self._before)
        self._end()
        if self._wanted is not None:
            self._wanted.refuse()
        yield
        self._begin()
        self._before = _set(self._machines, looked)
        basis = self._basis()
        if len(basis) != len(self._rests_on) or any(
            now is not was and now != was for now, was in zip(basis, self._rests_on, strict=True)
        ):
            raise Moved

    def _begin(self) -> None:
        """Wait until the machines stand still."""
        begun, over, here = threading.Event(), threading.Event(), threading.get_ident()

        def stand_still() -> None:
            begun.set()
            if threading.get_ident() != here:  # else no other thread works on the machines
                over.wait()

        asked = self._runtime.ask(stand_still)
        asked.add_done_callback(lambda _: begun.set())
        begun.wait()
        if asked.cancelled():
            raise Unavailable("the machines are not to be looked at any more: ask again")
        if asked.done():
            asked.result()  # raises, if the machines are not to be looked at any more
        self._over, self.last_seq, self._since_s = over, self._runtime.seq, elapsed_s()

    def _end(self) -> None:
        """Let the machines go on."""
        if self._over is not None:
            self.longest_s = max(self.longest_s, elapsed_s() - self._since_s)
            self._over.set()
            self._over = None


def _set(machines: Sequence[Timed], times_s: Sequence[float]) -> list[float]:
    """Set the clocks of machines; returns what they showed before."""
    before = [machine.now for machine in machines]
    for machine, at_s in zip(machines, times_s, strict=True):
        machine.now = at_s
    return before


def take(
    runtime: Asked, look: Callable[[InTurns], T], turns_of: Callable[[Asked], InTurns] = InTurns
) -> T:
    """Look in turns; again and again, but not for ever, if what it rests on changes meanwhile.

    Blocks. Raises Unavailable after `TAKES`.
    """
    for _ in range(TAKES):
        turns = turns_of(runtime)
        try:
            with turns.slices():
                return look(turns)
        except Moved:
            continue
        except TopmastError:
            raise
        except Exception:
            if turns.last_seq == turns.first_seq:
                raise
            log.info("a look at what has changed meanwhile is taken again", exc_info=True)
    raise Unavailable(f"what was asked about changed {TAKES} times while it was looked at")


async def taken(runtime: Asked, look: Callable[[InTurns], T]) -> T:
    """As `take`, on a thread of its own, which does not keep the process from ending."""
    turns_of = partial(InTurns, wanted=asked_for())
    look_in_turns = partial(take, runtime, look, turns_of)
    return await asyncio.shield(in_own_thread(look_in_turns, "topmast-look"))


class _Turn:
    """What one account asks for, the one that is made and those that wait."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.asked = 0


class OneEach:
    """One thing of each account at a time; used on the event loop alone."""

    def __init__(self) -> None:
        self._turns: WeakValueDictionary[tuple[str, str], _Turn] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, caller: Caller, thing: str = "") -> AsyncIterator[None]:
        """The turn of an account: all that it asks for together delays others by one at most.

        With a ``thing``, requests wait only for those of the account that are about the same.
        Raises TooMany if `ASKED_AT_ONCE` of it are asked for: each holds a connection; Unavailable
        if the answer is wanted no longer before the turn has come.
        """
        if caller.principal.trusted:
            yield
            return
        name = caller.principal.subject
        mine = self._turns.setdefault((name, thing), _Turn())
        if mine.asked >= ASKED_AT_ONCE:
            why = f"{ASKED_AT_ONCE} such requests of {name} wait for one another already"
            raise TooMany(why, 1.0)
        mine.asked += 1
        try:
            async with locked(mine.lock):
                yield
        finally:
            mine.asked -= 1


async def with_pauses(things: Iterable[T]) -> AsyncIterator[T]:
    """The things, one by one; others' requests get their turn every `PAUSE_AFTER_S`."""
    begun_s = elapsed_s()
    for thing in things:
        if elapsed_s() - begun_s > PAUSE_AFTER_S:
            await asyncio.sleep(0)
            begun_s = elapsed_s()
        yield thing
