"""How events and facts are written to a journal and read back: JSON with tagged types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

import msgspec
from msgspec import Struct

from topmast.accounts import AccountsFact
from topmast.fast.cluster import ClusterManager
from topmast.fast.machine import EventMachine
from topmast.fast.queue import GlobalQueue
from topmast.fast.region import RegionalPlacer
from topmast.model.messages import Event, Message
from topmast.runtime.older import decode_older
from topmast.runtime.relay import Relay

_encoder = msgspec.json.Encoder()
_events: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Event)
_machines: dict[str, type[EventMachine]] = {
    "queue": GlobalQueue,
    "placer": RegionalPlacer,
    "cluster": ClusterManager,
    "relay": Relay,
}
_facts: dict[str, msgspec.json.Decoder[list[Struct]]] = {
    "accounts": msgspec.json.Decoder(list[AccountsFact]),
} | {
    name: msgspec.json.Decoder(list[reduce(or_, machine.appliers)])  # type: ignore[misc]
    for name, machine in _machines.items()
}
"""By machine, what reads the facts that it applies."""


def encode_event(event: Message) -> bytes:
    """An event as JSON."""
    return _encoder.encode(event)


def encode_foreign(event: Message) -> bytes:
    """An event made outside, from what a task or a file says; raises if it could not be read back.

    JSON has no half characters and no NaN: a record with one would end this process, or the next.
    """
    data = _encoder.encode(event)
    _events.decode(data)
    return data


def encode_facts(facts: Sequence[Struct]) -> bytes:
    """The facts of one event as a JSON array."""
    return _encoder.encode(facts)


def decode_event(data: bytes) -> Message:
    """The event of a record; raises msgspec.ValidationError for one this version does not know."""
    try:
        return _events.decode(data)
    except msgspec.ValidationError as unknown:
        try:
            return decode_older(data)
        except msgspec.ValidationError:
            raise unknown from None


def decode_facts(machine: str, data: bytes) -> list[Struct]:
    """The facts of a record of the machine at address ``machine``."""
    return _facts[machine.split("/", 1)[0]].decode(data)
