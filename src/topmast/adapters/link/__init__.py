"""The way between two processes: ordered batches of messages over HTTP, repeated until applied."""

from __future__ import annotations

from topmast.adapters.link.end import LinkEnd
from topmast.adapters.link.peer import Peer
from topmast.adapters.link.wire import PREFIX, Batch, decode_batch, encode_receipt

__all__ = ["PREFIX", "Batch", "LinkEnd", "Peer", "decode_batch", "encode_receipt"]
