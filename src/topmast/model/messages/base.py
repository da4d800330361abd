"""What every message is, and the messages that any machine may get."""

from __future__ import annotations

from msgspec import Struct

from topmast.model.ids import Address


class Message(Struct, frozen=True, tag=True, gc=False):
    """Base of all messages. None is in a reference cycle, so the garbage collector skips them."""


class Send(Struct, frozen=True, gc=False):
    """A message on its way to an address."""

    to: Address
    message: Message


class Wake(Message, frozen=True):
    """Time has come for what the machine announced as its next wake-up."""


class Recovered(Message, frozen=True):
    """The machine was rebuilt from its journal: it repeats what may not have been delivered."""
