"""What the runtime drives: machines that decide, and the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from topmast.model import messages as m

Post = Callable[[m.Message], None]
"""Hands a message to the runtime from any thread; returns at once."""


class Clock(Protocol):
    """Seconds since the UTC epoch when live, since 0 when virtual."""

    def now(self) -> float:
        """The time, in seconds."""
        ...


class Decision(Struct, frozen=True, gc=False):
    """What a machine made of one event: facts to journal, messages to send, an answer if asked."""

    facts: Sequence[Struct] = ()
    sends: Sequence[m.Send] = ()
    reply: Any = None


class Machine(Protocol):
    """A deterministic state machine without I/O (docs/internals: five kinds of them).

    ``handle`` decides: it changes the state only through facts, which it returns. ``apply`` replays
    recorded facts and decides nothing, so that an old journal means the same to a new version.
    """

    def handle(self, event: m.Message, now: float) -> Decision:
        """Take one event; returns the facts it led to and the messages it causes."""
        ...

    def apply(self, event: m.Message, fact: Struct, at_s: float) -> None:
        """Change the state by one fact recorded for ``event`` at ``at_s``."""
        ...

    def next_wakeup_s(self) -> float | None:
        """When the machine wants a ``Wake``; None when only an event can change anything."""
        ...

    def snapshot(self) -> bytes:
        """The whole durable state."""
        ...

    def restore(self, blob: bytes) -> None:
        """Take up the state that ``snapshot`` wrote."""
        ...
