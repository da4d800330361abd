"""Servers that mean no good: a client takes so much of them and no more."""

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from topmast import Client
from topmast.adapters import answers
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


@pytest.mark.parametrize(
    ("say", "want"),
    [(endless, "larger than"), (bomb, "compressed"), (drip, "did not answer within 0.5 s")],
)
def test_an_answer_without_end_is_not_awaited(
    say: Callable[[socket.socket], None], want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither memory nor patience is used up."""
    monkeypatch.setattr(answers, "MOST_BYTES", 10_000_000)
    begun_s = time.monotonic()
    timeout_s = 0.5 if say is drip else 10.0
    with (
        server(say) as url,
        Client(url, timeout_s=timeout_s) as client,
        pytest.raises(Unavailable, match=want),
    ):
        client.health()
    assert time.monotonic() - begun_s < 25.0


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
    from topmast.client.transport import Transport

    with server(say) as url:
        transport = Transport(lambda: url, 5.0)
        reader = LogReader(transport, "/jobs/j1/logs", 0, lambda: pytest.fail("not asked"), 1.0)
        found = reader._one(1, follow=False, must_exist=True)
        assert next(found).attempt == 1
        with pytest.raises(TopmastError, match="no way on in a log"):
            next(found)
        transport.close()


def test_an_event_without_end_is_not_awaited() -> None:
    """Many short lines of one event are as bad as a long one."""
    pieces = (b"data: " + b"x" * 60_000 + b"\n" for _ in range(10_000))
    with pytest.raises(TopmastError, match="too long"):
        next(messages(pieces))
