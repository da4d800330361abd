"""The way between two processes: ordered batches of messages over HTTP, repeated until applied."""

from __future__ import annotations

from topmast.adapters.link.end import LinkEnd
from topmast.adapters.link.execs import ExecDesk, RemoteExec
from topmast.adapters.link.peer import Peer
from topmast.adapters.link.wire import PREFIX, Batch, decode_batch, encode_receipt

__all__ = [
    "PREFIX",
    "Batch",
    "ExecDesk",
    "LinkEnd",
    "Peer",
    "RemoteExec",
    "decode_batch",
    "encode_receipt",
]
