"""Servers that mean no good: a client takes so much of them and no more."""

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from topmast import Client
from topmast.adapters import answers
from topmast.adapters.link import peer
from topmast.client import transport
from topmast.client.events import messages
from topmast.model.errors import TopmastError, Unavailable

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def server(say: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that says this to each who connects and asks."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                try:
                    client.recv(65_536)
                    say(client)
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def endless(client: socket.socket) -> None:
    """A body that does not end."""
    client.sendall(OK + b"\r\n")
    while True:
        client.sendall(b" " * 65_536)


def bomb(client: socket.socket) -> None:
    """A small body that would be large."""
    body = gzip.compress(b" " * 50_000_000)
    client.sendall(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def drip(client: socket.socket) -> None:
    """A byte now and then, each in time."""
    client.sendall(OK + b"\r\n")
    for _ in range(600):
        client.sendall(b" ")
        time.sleep(0.05)


def interim(client: socket.socket) -> None:
    """One interim answer after the other."""
    while True:
        client.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")
        time.sleep(0.01)


def slow_header(client: socket.socket) -> None:
    """A header, byte by byte."""
    client.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        client.sendall(b"a")
        time.sleep(0.05)


def slow_chunk(client: socket.socket) -> None:
    """An extension of a chunk, byte by byte: no piece of the body arrives."""
    client.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n1;")
    while True:
        client.sendall(b"a")
        time.sleep(0.05)


SLOW = [interim, slow_header, slow_chunk, drip]


@pytest.mark.parametrize(("say", "want"), [(endless, "larger than"), (bomb, "compressed")])
def test_an_answer_that_is_too_large_is_not_read(
    say: Callable[[socket.socket], None], want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is not used up."""
    monkeypatch.setattr(answers, "MOST_BYTES", 10_000_000)
    with (
        server(say) as url,
        Client(url, timeout_s=4.0) as client,
        pytest.raises(Unavailable, match=want),
    ):
        client.health()


@pytest.mark.parametrize("say", SLOW)
def test_an_answer_without_end_is_not_awaited(say: Callable[[socket.socket], None]) -> None:
    """Each read of a socket has a byte in time, and the answer does not end all the same."""
    with (
        server(say) as url,
        Client(url, timeout_s=0.5) as client,
        pytest.raises(Unavailable, match=r"did not answer within 0\.5 s"),
    ):
        client.health()


@pytest.mark.parametrize("say", SLOW)
def test_a_link_does_not_await_an_answer_without_end(
    say: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of a link goes on with its next try."""
    monkeypatch.setattr(peer, "ANSWER_S", 0.5)
    with server(say) as url:
        end = peer.Peer("east", url)
        with pytest.raises(Unavailable, match="does not answer in time"):
            end.post(b"{}")
        end.close()


@pytest.mark.parametrize("say", [interim, slow_header, slow_chunk])
def test_a_stream_that_brings_nothing_is_broken(
    say: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream may last, but each piece of it comes before long."""
    monkeypatch.setattr(transport, "HEARTBEATS_MISSED_S", 0.5)
    with server(say) as url:
        line = transport.Transport(lambda: url, 5.0)
        with pytest.raises(Unavailable, match="broke off"), line.stream("/events", {}) as pieces:
            assert not list(pieces)
        line.close()


def test_a_stream_lasts_as_long_as_its_pieces_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a piece begins anew with each, also when the reader takes its own time."""
    monkeypatch.setattr(transport, "HEARTBEATS_MISSED_S", 1.0)

    def say(client: socket.socket) -> None:
        client.sendall(OK + b"Connection: close\r\n\r\n")
        for _ in range(15):
            client.sendall(b"x")
            time.sleep(0.1)

    with server(say) as url:
        line = transport.Transport(lambda: url, 0.2)
        with line.stream("/events", {}) as pieces:
            first = next(pieces)
            time.sleep(1.1)
            assert first + b"".join(pieces) == b"x" * 15
        line.close()


def test_a_large_request_has_time_for_its_body() -> None:
    """A work folder goes over a slow line: this takes longer than an answer may."""
    left_s = []

    def arrives(request: httpx.Request) -> httpx.Response:
        left_s.append(answers._left(None))
        return httpx.Response(200, json={})

    line = transport.Transport(lambda: "http://x", 5.0, httpx.MockTransport(arrives))
    for size in (0, 100 * answers.SLOWEST_BYTES_PER_S):
        line.send("POST", "/workdirs", content=b"x" * size)
    line.close()
    assert left_s == [pytest.approx(5.0, abs=5.0), pytest.approx(105.0, abs=5.0)]


DEEP = b'{"status":' + b"[" * 100_000


@pytest.mark.parametrize("status", [b"200 OK", b"500 Failed"])
@pytest.mark.parametrize("body", [DEEP, b'{"detail":' + DEEP, b'{"status":"\xff"}', b'"\xff"'])
def test_an_answer_that_cannot_be_decoded_is_an_error_for_people(
    status: bytes, body: bytes
) -> None:
    """JSON nested without end and text that is not UTF-8 are wrong in ways of their own."""

    def say(client: socket.socket) -> None:
        head = b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\n"
        client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    with (
        server(say) as url,
        Client(url, timeout_s=5.0) as client,
        pytest.raises(TopmastError, match=r"form unknown|failed: 500 Failed"),
    ):
        client.health()


@pytest.mark.parametrize("data", [DEEP, b'"\xff"'])
def test_an_event_that_cannot_be_decoded_is_an_error_for_people(data: bytes) -> None:
    """As with other answers."""

    def say(client: socket.socket) -> None:
        client.sendall(OK + b"Connection: close\r\n\r\ndata: " + data + b"\n\n")

    with (
        server(say) as url,
        Client(url, timeout_s=5.0) as client,
        pytest.raises(TopmastError, match="form unknown"),
    ):
        next(client.events())


@pytest.mark.parametrize("told", ["0", "-5", "x", "9" * 30])
def test_a_log_that_leads_nowhere_is_left(told: str) -> None:
    """Each piece begins after the one before, or it would be read for ever."""

    def say(client: socket.socket) -> None:
        body = (
            b'{"id":"j1","name":"a","tenant":"t","user":"u","band":"normal","state":"RUNNING","tasks":1,'
            b'"attempts":1}'
        )
        head = b"X-Next-Offset: " + told.encode() + b"\r\nContent-Length: %d\r\n" % len(body)
        client.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + head + b"\r\n" + body)

    from topmast.client.logs import LogReader

    with server(say) as url:
        line = transport.Transport(lambda: url, 5.0)
        reader = LogReader(line, "/jobs/j1/logs", 0, lambda: pytest.fail("not asked"), 1.0)
        found = reader._one(1, follow=False, must_exist=True)
        assert next(found).attempt == 1
        with pytest.raises(TopmastError, match="how to continue a log"):
            next(found)
        line.close()


def test_an_event_without_end_is_not_awaited() -> None:
    """Many short lines of one event are as bad as a long one."""
    pieces = (b"data: " + b"x" * 60_000 + b"\n" for _ in range(10_000))
    with pytest.raises(TopmastError, match="too long"):
        next(messages(pieces))
