"""Connections: which are closed, which make room for others, and which are left alone."""

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from tests.support.certificates import write_certificate
from topmast.adapters.connections import (
    BODY_WINDOW_BYTES,
    BODY_WINDOW_S,
    HEAD_BYTES,
    HEAD_S,
    KEPT_S,
    MOST_AHEAD,
    SPEAKS_S,
    UNREAD_S,
    Connection,
    Connections,
    Phase,
    Tls,
    accept,
    limits_for,
    plain,
)
from topmast.model.views import Problem

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
FLOOD = b"GET /flood HTTP/1.1\r\nHost: a\r\n\r\n"
WAIT = b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"


class House:
    """A server whose application answers at once, never (`/wait`), or with more than fits a socket (`/flood`)."""

    def __init__(self, most: int = 10) -> None:
        self.connections = Connections(most)
        self.tls: Tls = plain
        self.begun = 0
        self.heads: list[list[bytes]] = []
        """The names of the headers of each request."""
        self._writers: list[asyncio.StreamWriter] = []

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        self.begun += 1
        self.heads.append([name for name, _ in scope["headers"]])
        while (await receive()).get("more_body"):
            pass
        if scope["path"] == "/wait":
            await asyncio.sleep(60)
        body = b"x" * (64 << 20) if scope["path"] == "/flood" else b"ok"
        length = str(len(body)).encode()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]}
        )
        await send({"type": "http.response.body", "body": body})

    async def open(self) -> None:
        """Begin to take connections."""
        config = uvicorn.Config(self.app, lifespan="off", interface="asgi3")
        config.load()
        protocol = partial(
            Connection, self.connections, config=config, server_state=ServerState(), app_state={}
        )
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        self.task = asyncio.create_task(
            accept(listener, self.connections, protocol, lambda one: self.tls(one))
        )

    async def client(self, said: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client that said something, which has arrived."""
        before = self.begun
        reader, writer = await asyncio.open_connection(*self.address)
        self._writers.append(writer)  # or it would be closed
        writer.write(said)
        await writer.drain()
        for _ in range(200):
            await asyncio.sleep(0.005)
            if self.begun > before or not said.endswith(b"\r\n\r\n"):
                break
        await asyncio.sleep(0.05)
        return reader, writer

    def sweep_in(self, wait_s: float) -> None:
        """As if so much time had passed."""
        self.connections.sweep(asyncio.get_running_loop().time() + wait_s)


def told(story: Callable[[House], Awaitable[None]], most: int = 10) -> None:
    """Run a story to its end; nothing may go wrong beside it."""
    wrong: list[str] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, of: wrong.append(str(of)))
        house = House(most)
        await house.open()
        try:
            await asyncio.wait_for(story(house), 30)
        finally:
            house.task.cancel()

    asyncio.run(run())
    assert not wrong


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server closed a connection, once what it wrote is read."""
    try:
        while await asyncio.wait_for(reader.read(1 << 20), 0.3):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True
    return True


@pytest.mark.parametrize(
    ("said", "after_s", "want_closed"),
    [
        (b"", HEAD_S - 2, False),
        (b"", HEAD_S + 1, True),
        (b"GET / HTTP/1.1\r\nHost", HEAD_S + 1, True),
        (GET, KEPT_S - 2, False),
        (GET, KEPT_S + 1, True),
        (GET + b"GET / HTTP/1.1\r\nHost", HEAD_S - 2, False),
        (GET + b"GET / HTTP/1.1\r\nHost", HEAD_S + 1, True),
        (POST + b"x", BODY_WINDOW_S - 2, False),
        (POST + b"x", BODY_WINDOW_S + 1, True),
        (POST + b"x" * BODY_WINDOW_BYTES, BODY_WINDOW_S + 1, False),
        (WAIT, 1_000.0, False),
        (FLOOD, UNREAD_S - 2, False),
        (FLOOD, UNREAD_S + 1, True),
    ],
    ids=[
        "silent for a while", "silent", "half a head", "kept after its answer", "kept for too long",
        "the next head begins", "half of the next head", "a body that begins", "a body that does not go on", "a body that does", "waits for the server", "unread for a while",
        "an unread answer",
    ],
)  # fmt: skip
def test_who_keeps_the_server_waiting_is_closed(
    said: bytes, after_s: float, want_closed: bool
) -> None:
    """A client has its time for a head, for each piece of a body, and to read; the server has all it needs."""

    async def story(house: House) -> None:
        reader, _ = await house.client(said)
        assert len(house.connections) == 1
        house.sweep_in(after_s)
        await asyncio.sleep(0.05)
        assert len(house.connections) == (0 if want_closed else 1)
        if want_closed:
            assert await is_closed(reader)

    told(story)


def test_what_is_silent_makes_room_before_what_sends() -> None:
    """Else what has waited longest does; never one that is being answered."""

    async def story(house: House) -> None:
        answering, _ = await house.client(WAIT)
        sending, _ = await house.client(POST)
        asked, _ = await house.client(GET)
        silent, _ = await house.client()
        await asyncio.sleep(SPEAKS_S)
        left = [silent, sending, asked]
        while left:
            assert len(house.connections) == 4
            await house.client(WAIT)
            assert await is_closed(left.pop(0))
            assert [await is_closed(reader) for reader in left] == [False] * len(left)
        assert not await is_closed(answering)

    told(story, most=4)


def test_the_oldest_of_what_is_silent_makes_room() -> None:
    """A client that has just come has its time to speak."""

    async def story(house: House) -> None:
        first, _ = await house.client()
        second, _ = await house.client()
        await house.client(WAIT)
        assert await is_closed(first)
        assert not await is_closed(second)

    told(story, most=2)


def test_what_had_no_time_to_speak_does_not_make_room() -> None:
    """In a flood it takes long until its request is read, however quickly it has spoken."""

    async def story(house: House) -> None:
        old, _ = await house.client(GET)
        new = socket.create_connection(house.address)
        while len(house.connections) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        (kept,), (silent,) = (house.connections._in[phase] for phase in (Phase.KEPT, Phase.NEW))
        new.sendall(WAIT)
        time.sleep(2 * SPEAKS_S)  # noqa: ASYNC251 - the event loop is busy with others
        assert (kept.had_its_time, silent.had_its_time) == (True, False)
        kept.since_s += 5.0
        assert not house.connections.has_room()
        assert not kept.transport.is_closing(), "it has waited less"
        kept.since_s -= 10.0
        assert house.connections.has_room()
        assert kept.transport.is_closing()
        while not silent.had_its_time:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert silent.phase is Phase.ANSWER, "what it said by then was read first"
        assert await is_closed(old)
        assert house.begun == 2
        assert not house.connections.has_room(2)
        new.close()

    told(story, most=2)


def test_connections_that_come_at_once_are_taken_at_once() -> None:
    """One in each turn of those that are open would come the later, the more of these there are."""

    async def story(house: House) -> None:
        clients = [socket.create_connection(house.address) for _ in range(100)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(house.connections) == len(clients)
        for client in clients:
            client.close()

    told(story, most=1_024)


def test_no_more_are_taken_at_once_than_there_is_room_for() -> None:
    """Those that are coming count."""

    async def story(house: House) -> None:
        clients = [socket.create_connection(house.address) for _ in range(100)]
        most = 0
        for _ in range(50):
            await asyncio.sleep(0)
            most = max(most, len(house.connections))
        assert 5 < most <= 10
        for client in clients:
            client.close()

    told(story, most=10)


def test_handshakes_that_do_not_begin_make_way(tmp_path: Path) -> None:
    """However many: the oldest for the next one, so that a client that speaks gets in."""
    certificate, key = tmp_path / "certificate", tmp_path / "key"
    write_certificate(certificate, key)
    here = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    here.load_cert_chain(certificate, key)
    there = ssl.create_default_context(cafile=str(certificate))

    async def story(house: House) -> None:
        house.tls = lambda listener: here
        clients = [socket.create_connection(house.address) for _ in range(40)]
        await asyncio.sleep(0.1)
        reader, writer = await asyncio.open_connection(*house.address, ssl=there)
        writer.write(GET)
        assert (await reader.read(15)).startswith(b"HTTP/1.1 200")
        writer.close()
        for client in clients:
            client.close()

    told(story, most=16)


def test_beyond_what_is_being_answered_nobody_is_let_in() -> None:
    """They are told so; as soon as one is answered there is room again."""

    async def story(house: House) -> None:
        _, first = await house.client(WAIT)
        await house.client(WAIT)
        reader, _ = await house.client(GET)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"too many connections" in answer
        first.close()
        await asyncio.sleep(0.05)
        reader, _ = await house.client(GET)
        assert (await reader.read(15)).startswith(b"HTTP/1.1 200")

    told(story, most=2)


def test_requests_that_are_sent_ahead_are_answered_in_turn() -> None:
    """As far as they are few."""

    async def story(house: House) -> None:
        reader, _ = await house.client(GET * (1 + MOST_AHEAD))
        for _ in range(1 + MOST_AHEAD):
            await asyncio.wait_for(reader.readuntil(b"ok"), 1.0)
        assert house.begun == 1 + MOST_AHEAD

    told(story)


def test_a_flood_of_requests_that_are_sent_ahead_is_not_kept() -> None:
    """Thousands of them fit into one piece of what arrives, and each would be kept until its turn."""

    async def story(house: House) -> None:
        reader, _ = await house.client(WAIT + GET * 9_000)
        assert await is_closed(reader)
        assert house.begun == 1
        assert not len(house.connections)

    told(story)


def test_a_head_without_end_is_refused() -> None:
    """It may not fill the memory meanwhile."""

    async def story(house: House) -> None:
        reader, _ = await house.client(b"GET / HTTP/1.1\r\nA: " + b"x" * (HEAD_BYTES + 1))
        assert (await reader.read(12)) == b"HTTP/1.1 431"

    told(story)


CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "more",
    [b"X: a\r\n" * 200_000, b"X: " + b"x" * 1_200_000, b""],
    ids=["many", "long", "extension"],
)
def test_what_stands_about_a_body_without_end_is_refused(more: bytes) -> None:
    """Trailers and extensions of chunks may not fill the memory either."""

    async def story(house: House) -> None:
        end = b"0\r\n" + more if more else b"1;" + b"x" * 1_200_000
        reader, writer = await house.client(CHUNKED + b"3\r\nabc\r\n")
        writer.write(end)
        assert await is_closed(reader)

    told(story)


def test_a_body_in_small_chunks_is_taken() -> None:
    """However much stands about all of it together."""

    async def story(house: House) -> None:
        chunks = b"1\r\na\r\n" * (HEAD_BYTES // 4)
        reader, _ = await house.client(CHUNKED + chunks + b"0\r\n\r\n")
        assert (await reader.read(12)) == b"HTTP/1.1 200"

    told(story)


def test_what_comes_behind_a_body_is_no_head() -> None:
    """Neither a proof nor an address: the request was judged without it."""

    async def story(house: House) -> None:
        trailers = b"Authorization: Bearer x\r\nX-Forwarded-For: 198.51.100.66\r\n\r\n"
        reader, _ = await house.client(CHUNKED + b"0\r\n" + trailers)
        assert (await reader.read(12)) == b"HTTP/1.1 200"
        assert house.heads == [[b"host", b"transfer-encoding"]]

    told(story)


@pytest.mark.parametrize("before", [b"", GET])
@pytest.mark.parametrize("size", [HEAD_BYTES - 100, HEAD_BYTES + 1])
def test_a_head_that_is_too_large_is_refused_also_if_it_comes_with_its_end(
    before: bytes, size: int
) -> None:
    """The application is not told of it."""

    async def story(house: House) -> None:
        large = b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"x" * size + b"\r\n\r\n"
        reader, _ = await house.client(before + large)
        got = await asyncio.wait_for(reader.read(1 << 16), 5.0)
        while house.begun < bool(before) + (size < HEAD_BYTES) or not got.endswith(b"ok"):
            if b"HTTP/1.1 431 " in got:
                break
            got += await asyncio.wait_for(reader.read(1 << 16), 5.0)
        assert (b"HTTP/1.1 431 " in got) == (size > HEAD_BYTES)
        assert house.begun <= bool(before) + (size < HEAD_BYTES)

    told(story)


@pytest.mark.parametrize(
    "said",
    [
        b"FOO / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: x\x00y\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_http_is_answered_with_a_problem_as_all_else(said: bytes) -> None:
    async def story(house: House) -> None:
        reader, _ = await house.client(said)
        head, body = (await reader.read()).split(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"content-type: application/problem+json" in head
        assert b"uvicorn" not in head
        problem = msgspec.json.decode(body, type=Problem)
        assert problem.status == 400
        assert "is it TLS, to a port that speaks plain HTTP?" in problem.detail

    told(story)


@pytest.mark.parametrize(
    "codings", ["gzip, chunked", "gzip\r\nTransfer-Encoding: chunked", "identity, chunked"]
)
def test_a_body_in_a_coding_that_is_not_undone_is_refused(codings: str) -> None:
    """Its coded bytes would count as what the client means (RFC 9112, 6.1)."""

    async def story(house: House) -> None:
        head = f"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {codings}\r\n\r\n"
        reader, _ = await house.client(head.encode() + b"2\r\nab\r\n0\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 501 ")
        assert not house.begun

    told(story)


@pytest.mark.parametrize(
    ("open_files", "connections", "streams"),
    [(64, 32, 8), (1_024, 512, 128), (65_536, 1_024, 256)],
)
def test_most_descriptors_are_for_other_things(
    open_files: int, connections: int, streams: int
) -> None:
    """However few there are, half of them are left for the journal and for engines."""
    limits = limits_for(open_files)
    assert (limits.connections, limits.streams) == (connections, streams)
