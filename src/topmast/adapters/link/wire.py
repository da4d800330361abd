"""What goes over a link, as JSON. Each side takes only what the other may say."""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from topmast.model.decoding import as_decode_error
from topmast.model.errors import InvalidInput
from topmast.model.messages import Envelope, Message, Receipt, ToPlacer, ToQueue

PREFIX = "/api/link/v2"
"""Its number goes up whenever a side that does not know a field would act wrongly: those that are
of different numbers have no link. 2: what a job needs of an engine is a list (`needs`)."""
MAX_BATCH_BYTES = 64 * 1024 * 1024


class Batch(Struct, frozen=True):
    """One request. Without envelopes it asks whether the other end is there, and for its stream."""

    stream: str
    peer: str
    applied: int
    envelopes: tuple[Envelope, ...] = ()
    leader: int = 0
    """The epoch of the process that sent it."""


class _PlacerEnvelope(Struct, frozen=True):
    seq: int
    message: ToPlacer


class _QueueEnvelope(Struct, frozen=True):
    seq: int
    message: ToQueue


class _PlacerBatch(Struct, frozen=True):
    stream: str
    peer: str
    applied: int
    envelopes: tuple[_PlacerEnvelope, ...] = field(default=(), name="parcels")
    leader: int = 0


class _QueueBatch(Struct, frozen=True):
    stream: str
    peer: str
    applied: int
    envelopes: tuple[_QueueEnvelope, ...] = field(default=(), name="parcels")
    leader: int = 0


_encoder = msgspec.json.Encoder()
_for_placer = msgspec.json.Decoder(_PlacerBatch)
_for_queue = msgspec.json.Decoder(_QueueBatch)
_receipts = msgspec.json.Decoder(Receipt)


def encode_envelope(seq: int, message: Message) -> bytes:
    """One envelope as JSON."""
    return _encoder.encode({"seq": seq, "message": message})


def encode_batch(
    stream: str, peer: str, applied: int, envelopes: list[bytes], leader: int = 0
) -> bytes:
    """A batch of envelopes that are JSON already."""
    raw = [msgspec.Raw(envelope) for envelope in envelopes]
    batch = {"stream": stream, "peer": peer, "applied": applied, "parcels": raw}
    return _encoder.encode({**batch, "leader": leader})


def decode_batch(data: bytes | bytearray, *, for_queue: bool) -> Batch:
    """The batch of a request; raises InvalidInput for what this side does not take."""
    decoder: msgspec.json.Decoder[_QueueBatch] | msgspec.json.Decoder[_PlacerBatch]
    decoder = _for_queue if for_queue else _for_placer
    try:
        with as_decode_error():
            batch = decoder.decode(data)
    except msgspec.DecodeError as error:
        raise InvalidInput(
            f"not a batch of this version: {error}", field="body",
            remedy="run the same version on both sides",
        ) from None  # fmt: skip
    envelopes = tuple(Envelope(p.seq, p.message) for p in batch.envelopes)
    return Batch(batch.stream, batch.peer, batch.applied, envelopes, batch.leader)


def encode_receipt(receipt: Receipt) -> bytes:
    """The answer to a batch."""
    return _encoder.encode(receipt)


def decode_receipt(data: bytes) -> Receipt:
    """The answer to a batch; raises msgspec.DecodeError for anything else."""
    with as_decode_error():
        return _receipts.decode(data)
