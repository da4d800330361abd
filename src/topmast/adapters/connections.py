"""Connections of the HTTP server: how many there may be, and how long one may keep it waiting.

A client that sends nothing, or sends a byte now and then, or does not read its answer, would hold a
connection for ever; with enough of them the process would run out of descriptors.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sized
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import Any

import msgspec
import structlog
import uvicorn
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from topmast.adapters.answering import CONNECTION, LEFT, Answering, Wanted
from topmast.adapters.joined import Joined
from topmast.model.views import Problem

log = structlog.get_logger(__name__)

HEAD_S = 10.0
"""How long a connection may be silent before its first request, and take for the head of each."""
SPEAKS_S = 0.2
"""After so long without a whole head it makes way before others do, if there is no room."""
KEPT_S = 75
"""How long it may be silent before another request.

It is longer than the minute for which proxies keep one: what closes first never sends a request
to a peer that closes at that moment. If others need the room, the oldest is closed earlier.
"""
HEAD_BYTES = 64 * 1024
BODY_WINDOW_S = 20.0
BODY_WINDOW_BYTES = 200 * 1024
"""What of a body must arrive in each window: 10 KiB/s, or all of it."""
PAUSE_S = 0.1
"""After a failure to take a connection."""
MOST_AHEAD = 8
"""Requests that one connection may send before they are answered; each is kept in memory."""
UNREAD_S = 30.0
"""How long a client may leave an answer, or a stream of events, unread."""
TICKS_PER_SWEEP = 10
FULL_S = 1.0
"""How long a connection waits where all are being answered, before it is told so."""
MOST_CONNECTIONS = 1_024
FEWEST_CONNECTIONS = 16
STOP_S = 3.0
"""How long requests have to end once the server stops; those that wait end at once."""
OPENING_PART = 8
"""One in so many connections may be not open yet; beyond, the oldest handshake makes way. As many
are taken before those that are open get their turn."""
STREAMS_PART = 4
"""One in so many connections may be a stream of events."""


def _refusal(status: int, title: str, detail: str) -> bytes:
    """An answer that is written past the application."""
    body = msgspec.json.encode(Problem("about:blank", title, status, detail))
    again = "retry-after: 1\r\n" if status == 503 else ""
    head = (
        f"HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\n"
        f"content-length: {len(body)}\r\n{again}connection: close\r\n\r\n"
    )
    return head.encode() + body


TOO_MANY = _refusal(503, "Unavailable", "too many connections are open; try again soon")
HEAD_TOO_LARGE = _refusal(431, "Too large", f"the head is larger than {HEAD_BYTES} bytes")
NO_HTTP = _refusal(
    400, "Refused", "this is no valid HTTP request: is it TLS, to a port that speaks plain HTTP?"
)
CODED = _refusal(
    501, "Not implemented", "the only transfer coding of a body is 'chunked'; leave out others"
)
PUNCTUATION = len(": \r\n")
"""Bytes of a header beside its name and its value."""


class Limits(Struct, frozen=True):
    """How many connections a process serves at a time."""

    connections: int
    streams: int
    """How many of them may be streams of events."""


def limits_for(open_files: int) -> Limits:
    """Half of the descriptors at most: the journal, engines and what they start need the others."""
    connections = max(FEWEST_CONNECTIONS, min(MOST_CONNECTIONS, open_files // 2))
    return Limits(connections, connections // STREAMS_PART)


class Phase(IntEnum):
    """What a connection waits for."""

    NEW = 0  # its first request
    KEPT = 1  # another one
    BODY = 2  # the rest of a request
    ANSWER = 3  # the server


WAITED_FOR = (Phase.NEW, Phase.KEPT, Phase.BODY)


class Connections:
    """All connections of a process, by phase; in each phase the oldest first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._in: dict[Phase, dict[Connection, None]] = {phase: {} for phase in Phase}
        self._full_since_s: float | None = None

    def __len__(self) -> int:
        return sum(len(some) for some in self._in.values())

    def has_room(self, coming: int = 0) -> bool:
        """Whether there is room for one more besides those that are coming. O(1).

        If not, one is closed for it: the oldest, if it has asked for nothing in `SPEAKS_S`, or else
        the one with the longest wait. What says nothing would else take the room of what sends.
        None is if that one has not had its time to speak yet.
        """
        if len(self) + coming < self.most:
            return True
        oldest = [next(iter(self._in[phase]), None) for phase in WAITED_FOR]
        waited_for = [one for one in oldest if one is not None]
        if not waited_for:
            return False
        first = waited_for[0]
        if first.phase is not Phase.NEW or not first.had_its_time:
            first = min(waited_for, key=lambda one: one.since_s)
        if not first.had_its_time:
            return False
        self._drop(first)
        return True

    async def room(self, coming: Sized) -> bool:
        """Wait a little for room: in a flood of short requests there will be some at once."""
        now = asyncio.get_running_loop().time
        while not self.has_room(len(coming)):
            self._full_since_s = now() if self._full_since_s is None else self._full_since_s
            if now() - self._full_since_s > FULL_S:
                return False  # and those behind it are told at once, until there is room
            await asyncio.sleep(PAUSE_S / 10)
        self._full_since_s = None
        return True

    def add(self, connection: Connection) -> None:
        """One more; there was room for it."""
        self._in[connection.phase][connection] = None

    def move(self, connection: Connection, phase: Phase) -> None:
        """It waits for something else from now on; nothing to do for one that is closed."""
        if connection in self._in[connection.phase]:
            del self._in[connection.phase][connection]
            self._in[phase][connection] = None

    def forget(self, connection: Connection) -> None:
        """It is closed."""
        self._in[connection.phase].pop(connection, None)

    def sweep(self, now_s: float) -> None:
        """Close connections that keep the server waiting too long; called each second. O(all)."""
        for connection in [one for some in self._in.values() for one in some]:
            if connection.is_overdue(now_s):
                self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self.forget(connection)
        connection.transport.abort()


Tls = Callable[[socket.socket], ssl.SSLContext | None]
"""What the next connection of a listener is greeted with; None: it speaks without TLS."""


def plain(listener: socket.socket) -> None:
    """No connection speaks TLS."""
    return


async def accept(
    listener: socket.socket,
    connections: Connections,
    protocol: Callable[[], Connection],
    tls: Tls = plain,
) -> None:
    """Accept connections for ever, some at a time.

    An event loop that accepts all waiting connections at once would run out of files. With one at
    a time, those that come late would wait until all that are open were served so often.
    """
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    greeted: dict[asyncio.Task[None], None] = {}
    taken, at_once = 0, max(1, connections.most // OPENING_PART)
    while True:
        try:
            client, _ = await loop.sock_accept(listener)
        except ConnectionAbortedError:
            continue
        except OSError as error:
            log.error("cannot take a connection", why=str(error))
            await asyncio.sleep(PAUSE_S)
            continue
        context = tls(listener)
        if await connections.room(greeted):
            if context is not None and len(greeted) >= at_once:
                oldest = next(iter(greeted))
                del greeted[oldest]
                oldest.cancel()
            greeting = loop.create_task(_greet(client, protocol, context))
            greeted[greeting] = None
            greeting.add_done_callback(lambda done: greeted.pop(done, None))
        else:
            with client, suppress(OSError):
                if context is None:
                    client.setblocking(False)
                    client.send(TOO_MANY)
                    client.shutdown(socket.SHUT_WR)
                    client.recv(HEAD_BYTES)  # what is left unread would take the answer away
        taken += 1
        if taken % at_once == 0 or len(greeted) >= at_once:
            await asyncio.sleep(0)


async def _greet(
    client: socket.socket, protocol: Callable[[], Connection], tls: ssl.SSLContext | None
) -> None:
    """A handshake takes as long as the client likes, up to a limit: no other waits for it."""
    patience_s = None if tls is None else HEAD_S
    with suppress(OSError):  # gone already
        greeting = asyncio.get_running_loop().connect_accepted_socket(
            protocol, client, ssl=tls, ssl_handshake_timeout=patience_s
        )
        # Not every event loop keeps to the limit of a handshake.
        await asyncio.wait_for(greeting, None if tls is None else HEAD_S + 1.0)


class BoundedServer(uvicorn.Server):
    """Serves an application to connections that are accepted and watched as above."""

    def __init__(self, config: uvicorn.Config, connections: Connections, tls: Tls = plain) -> None:
        self._answering = config.app = Answering(config.app)  # type: ignore[arg-type]
        super().__init__(config)
        self._connections = connections
        self._tls = tls
        self._accepting: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections."""
        protocol = partial(
            Connection, self._connections, config=self.config, server_state=self.server_state,
            app_state=self.lifespan.state,
        )  # fmt: skip
        self.servers = []
        self._accepting = [
            asyncio.create_task(accept(listener, self._connections, protocol, self._tls))
            for listener in sockets or ()
        ]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and let go of those that there are."""
        for task in self._accepting:
            task.cancel()
        self._answering.stop()
        cut = asyncio.get_running_loop().call_later(STOP_S, self._answering.cut)
        await super().shutdown(sockets)
        cut.cancel()
        if self._answering.cut_off:
            log.warning("the stop cut requests off", requests=self._answering.cut_off)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: see whether to end; now and then, which connections last too long."""
        if counter % TICKS_PER_SWEEP == 0:
            self._connections.sweep(asyncio.get_running_loop().time())
        return await super().on_tick(counter)


class Connection(HttpToolsProtocol):
    """One connection, with an eye on the clock."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self.all = connections
        self.phase = Phase.NEW
        self.since_s = self.loop.time()
        """When the wait began that goes on now: for a head, or for a piece of a body."""
        self._in_head = True
        self._head_begun = False
        self._head_bytes = 0
        """Of a head, or of what came since the last piece of a body: sizes, trailers."""
        self._refused_by = NO_HTTP
        """The answer if the parser goes no further."""
        self._window_bytes = 0
        self._unread_since_s: float | None = None
        self.is_lost = False
        self.asked: Wanted | None = None
        """The request that is answered, or was last."""
        self.had_its_time = False
        """Whether what it has said in `SPEAKS_S` is read: in a flood that takes longer."""

    def is_overdue(self, now_s: float) -> bool:
        """Whether the client takes too long, with what it sends or with what it reads."""
        if self._unread_since_s is not None:
            return now_s - self._unread_since_s > UNREAD_S
        waited_s = now_s - self.since_s
        if self.phase is Phase.KEPT and not self._head_begun:
            return waited_s > KEPT_S
        if self.phase in (Phase.NEW, Phase.KEPT):
            return waited_s > HEAD_S
        if self.phase is Phase.BODY and not self.flow.read_paused:
            if waited_s > BODY_WINDOW_S and self._window_bytes < BODY_WINDOW_BYTES:
                return True
            if waited_s <= BODY_WINDOW_S:
                return False
        self._enter(self.phase)
        return False

    def _enter(self, phase: Phase) -> None:
        """Begin to wait, for whatever it is."""
        self.all.move(self, phase)
        self.phase = phase
        self.since_s, self._window_bytes = self.loop.time(), 0

    # --- what uvicorn and its parser call -------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is open."""
        self.joined = Joined(transport, self.loop)
        super().connection_made(self.joined)  # type: ignore[arg-type]
        self.all.add(self)
        self.loop.call_later(SPEAKS_S, self._end_its_time)  # comes behind what has arrived by then

    def _end_its_time(self) -> None:
        self.had_its_time = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room for another; what was asked for here is wanted no longer."""
        self.all.forget(self)
        self.pipeline.clear()
        self.is_lost = True
        if self.asked is not None:
            self.asked.end(LEFT)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless it is only a head that does not end, or what stands about a body."""
        if self.transport.is_closing():
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            if self._in_head or not self.cycle.response_started:
                self.transport.write(HEAD_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        """The first byte of a request is here; the rest of its head comes next."""
        self._head_begun = True
        if self.phase is Phase.KEPT:
            self._enter(Phase.KEPT)
        super().on_message_begin()
        scope: Any = self.scope
        scope[CONNECTION] = self

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of the head. Those behind a body (RFC 9110, 6.5.1) are dropped."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A request begins; its body comes next."""
        self._in_head = False
        if len(self.pipeline) >= MOST_AHEAD:
            self._refused_by = b""  # an earlier answer may be half written
            raise ValueError("too many requests are sent ahead")
        size = sum(len(name) + len(value) + PUNCTUATION for name, value in self.headers)
        if len(self.url) + size > HEAD_BYTES:  # it came in one piece with its end
            self._refused_by = HEAD_TOO_LARGE
            raise ValueError("the head is too large")
        # The parser decodes no other coding, and would give the coded bytes for the body.
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if any(value.strip().lower() != b"chunked" for value in codings):
            self._refused_by = CODED
            raise ValueError("a transfer coding is unknown")
        self.had_its_time = True
        self._enter(Phase.BODY)
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """The parser goes no further: the request is no HTTP, or is refused by its head."""
        self.transport.write(self._refused_by)
        self.transport.close()

    def on_body(self, body: bytes) -> None:
        """It goes on."""
        self._window_bytes += len(body)
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of a request is here; it may have been refused before."""
        self._in_head, self._head_begun, self._head_bytes = True, False, 0
        if self.phase is Phase.BODY:
            self._enter(Phase.ANSWER)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is written: the next request may come, if it is not here already."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._enter(Phase.KEPT)

    def pause_writing(self) -> None:
        """The client does not read."""
        self._unread_since_s = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._unread_since_s = None
        super().resume_writing()
