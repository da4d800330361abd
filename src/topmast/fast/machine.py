"""What all machines share: dispatch by event, state changed by facts alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from msgspec import Struct

from topmast.model.ids import Address
from topmast.model.messages import Message, Send
from topmast.ports import Decision


class Fact(Struct, frozen=True, tag=True, gc=False):
    """Something a machine decided; applying it is the only way its state changes."""


class JobFact(Fact, frozen=True):
    """A fact about a job."""

    job: str


class AttemptFact(JobFact, frozen=True):
    """A fact about an attempt of a job."""

    epoch: int


class EventMachine:
    """Base of the machines.

    A subclass lists a method per event in ``handlers`` and a method per fact in ``appliers``.
    Handlers read the state, call ``decide`` with facts and ``send`` with messages; appliers are the
    only code that writes the state, and they decide nothing: recovery runs them alone.
    """

    handlers: ClassVar[dict[type[Message], Callable[..., Any]]] = {}
    appliers: ClassVar[dict[type[Fact], Callable[..., None]]] = {}

    def __init__(self) -> None:
        self.now = 0.0
        self.decided = 0
        """Facts since the process began."""
        self._event: Message | None = None
        self._facts: list[Fact] = []
        self._sends: list[Send] = []

    def handle(self, event: Message, now: float) -> Decision:
        """Take one event at time ``now`` (s); returns facts, messages and the answer, if any."""
        self.now = now
        self._event = event
        self._facts = []
        self._sends = []
        reply = self.handlers[type(event)](self, event)
        return Decision(tuple(self._facts), tuple(self._sends), reply)

    def apply(self, event: Message, fact: Struct, at_s: float) -> None:
        """Replay one recorded fact of ``event``; a fact unknown to this version raises KeyError."""
        self.now = at_s
        self.appliers[type(fact)](self, fact, event)  # type: ignore[index]

    def decide(self, fact: Fact) -> None:
        """Record a fact and let it change the state at once."""
        self.appliers[type(fact)](self, fact, self._event)
        self._facts.append(fact)
        self.decided += 1

    def about_to_send(self) -> list[Message]:
        """What was let out while the present event is handled. O(these)."""
        return [send.message for send in self._sends]

    def send(self, to: Address, message: Message) -> None:
        """Let a message out, once the facts of this event are durable."""
        self._sends.append(Send(to, message))
