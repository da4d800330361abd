"""Server-sent events, read as they come and taken up again where they broke off."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import msgspec

from topmast.adapters.lines import Lines
from topmast.client.transport import DECODING, Transport, client_backoff
from topmast.model.decoding import decode
from topmast.model.errors import TopmastError, Unavailable
from topmast.model.views import EventView

_LONGEST_LINE_BYTES = 2**24


def events(transport: Transport, after: int | None, patience_s: float) -> Iterator[EventView]:
    """Every event after number ``after``, without end; waits ``patience_s`` for a lost server."""
    seen, backoff = after, client_backoff()
    lost_at_s: float | None = None
    met = False
    while True:
        try:
            path = "/events" if seen is None else f"/events?after={seen}"
            headers = {"Accept": "text/event-stream"}
            if seen is not None:
                headers["Last-Event-ID"] = str(seen)
            with transport.stream(path, headers) as pieces:
                met, lost_at_s = True, None
                backoff.reset()
                for data in messages(pieces):
                    event = _event(data)
                    if seen is None or event.seq > seen:
                        seen = event.seq
                        yield event
        except Unavailable:
            lost_at_s = lost_at_s or time.monotonic()
            if not met or time.monotonic() - lost_at_s > patience_s:
                raise
        time.sleep(backoff.take())


def _event(data: bytes) -> EventView:
    try:
        with DECODING:
            return decode(data, EventView)
    except msgspec.MsgspecError as error:
        raise TopmastError(
            f"the event stream has a form unknown to this client: {error}"
        ) from error


def messages(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The data of each complete message in a stream of bytes; other fields are skipped.

    Lines end at a line feed only: JSON may hold the other characters that break lines in text.
    """
    data: list[bytes] = []
    size_bytes = 0
    for line in _lines(pieces):
        if not line:
            if data:
                yield b"\n".join(data)
            data, size_bytes = [], 0
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
            size_bytes += len(line)
            if size_bytes > _LONGEST_LINE_BYTES:
                raise TopmastError("an event of the stream is too long")


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    lines = Lines()
    for piece in pieces:
        whole = lines.feed(piece)
        if len(lines.rest) > _LONGEST_LINE_BYTES:
            raise TopmastError("a line of the event stream is too long")
        for line in whole:
            yield line.removesuffix(b"\r")
