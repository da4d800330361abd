"""How events and facts are written to a journal and read back: JSON with tagged types."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from topmast.accounts import AccountsFact
from topmast.fast.cluster.facts import ClusterFact
from topmast.fast.queue.facts import QueueFact
from topmast.fast.region.facts import PlacerFact
from topmast.model.messages import Event, Message
from topmast.runtime.older import decode_older
from topmast.runtime.relay import RelayFact

_encoder = msgspec.json.Encoder()
_events: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Event)
_facts: dict[str, msgspec.json.Decoder[list[Struct]]] = {
    "queue": msgspec.json.Decoder(list[QueueFact]),
    "placer": msgspec.json.Decoder(list[PlacerFact]),
    "cluster": msgspec.json.Decoder(list[ClusterFact]),
    "accounts": msgspec.json.Decoder(list[AccountsFact]),
    "relay": msgspec.json.Decoder(list[RelayFact]),
}


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
