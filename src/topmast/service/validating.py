"""Checks what must hold while a server runs: a little at a time, and without ever stopping it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import structlog
from msgspec import Struct, field

from topmast.adapters.clock import elapsed_s
from topmast.fast.invariants import Broken
from topmast.runtime.invariants import INVARIANTS, Piece, pieces
from topmast.runtime.loop import Runtime
from topmast.runtime.meter import QUICK_S, Counter, Histogram, histogram

ROUND_S = 60.0
"""How often everything is checked, if that costs little enough."""
SHARE = 0.01
"""The part of the loop's time that checks may take."""
STORY = 2_000
"""So many characters of a story are logged."""

log = structlog.get_logger(__name__)


def _none() -> Counter:
    return Counter({(name,): 0.0 for name in INVARIANTS})


class Validated(Struct):
    """What was checked so far."""

    checks: Counter = field(default_factory=_none)
    """By invariant."""
    broken: Counter = field(default_factory=_none)
    """Checks that found it broken, by invariant."""
    took_s: Histogram = field(default_factory=lambda: histogram(QUICK_S))


class Validator:
    """A thread that has one piece after another checked between two commits, and rests in between.

    A piece that takes long is followed by a rest so long that checks take a hundredth of the time.
    """

    def __init__(self, runtime: Runtime, round_s: float = ROUND_S) -> None:
        self.found = Validated()
        self._runtime = runtime
        self._round_s = round_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="validator", daemon=True)

    def open(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End; the runtime still turns."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            begun_s = elapsed_s()
            step = partial(self._next, pieces(self._runtime.machines))
            while (took_s := self._runtime.ask(step).result()) >= 0.0:
                if self._closing.wait(took_s / SHARE):
                    return
            self._closing.wait(max(0.0, begun_s + self._round_s - elapsed_s()))

    def _next(self, todo: Iterator[Piece]) -> float:
        """Check the next piece, on the runtime's thread; how long it took, or -1 after the last."""
        begun_s, name = elapsed_s(), ""
        try:
            name, check = next(todo)
            check()
        except StopIteration:
            return -1.0
        except Broken as broken:
            self._tell(name, str(broken))
        except Exception as error:  # a check that fails tells nothing of the server
            log.warning("an invariant could not be checked", invariant=name, why=repr(error))
        took_s = elapsed_s() - begun_s
        self.found.checks.add(name or "unknown")
        self.found.took_s.observe(took_s)
        return took_s

    def _tell(self, name: str, story: str) -> None:
        self.found.broken.add(name)
        log.error(
            "an invariant is broken", invariant=name, story=story[:STORY],
            remedy="docs/alerts/TopmastInvariantBroken.md",
        )  # fmt: skip
