"""The client of a link: of several servers it asks the one that leads, and finds the next one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from topmast.adapters.link import Peer
from topmast.model.errors import Unavailable


@dataclass
class Server:
    """A real one that answers with a status, and counts what it was asked."""

    status: int = 200
    asked: list[str] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    """Three of them."""
    found, running = [Server() for _ in range(3)], []
    for n, server in enumerate(found):

        class Handler(BaseHTTPRequestHandler):
            known, name = server, f"server {n}"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.known.asked.append(f"{self.path} {body.decode()}")
                self.send_response(self.known.status)
                said = self.name.encode()
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_words: object) -> None:
                """Say nothing."""

        running.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        server.url = f"http://127.0.0.1:{running[-1].server_port}"
        threading.Thread(target=running[-1].serve_forever, daemon=True).start()
    yield found
    for one in running:
        one.shutdown()
        one.server_close()


@pytest.fixture
def peer(servers: list[Server]) -> Iterator[Peer]:
    """A client that knows all three."""
    made = Peer("east", ",".join(f"{server.url}/" for server in servers))
    yield made
    made.close()


def test_the_one_that_leads_is_asked_and_nothing_else(peer: Peer, servers: list[Server]) -> None:
    servers[0].status = 503
    for n in range(3):
        assert peer.post(b"%d" % n) == b"server 1"
    assert servers[0].asked == ["/api/link/v2/east 0"]
    assert servers[1].asked == [f"/api/link/v2/east {n}" for n in range(3)]
    assert servers[2].asked == []
    assert peer.url == servers[1].url


def test_the_next_leader_is_found_wherever_it_is(peer: Peer, servers: list[Server]) -> None:
    """Also the one before: after the last server the first one is asked."""
    servers[0].status = servers[1].status = 503
    assert peer.post(b"x") == b"server 2"
    servers[2].status, servers[0].status = 503, 200
    assert peer.post(b"y") == b"server 0"
    assert len(servers[1].asked) == 1


def test_none_leads_and_each_was_asked_once(peer: Peer, servers: list[Server]) -> None:
    """It says what the last one said, and begins with another server the next time."""
    for server in servers:
        server.status = 503
    with pytest.raises(Unavailable, match=rf"{servers[2].url} answers 503"):
        peer.post(b"x")
    assert [len(server.asked) for server in servers] == [1, 1, 1]
    servers[2].status = 200
    assert peer.post(b"y") == b"server 2"


def test_a_server_that_is_gone_is_passed_over(servers: list[Server]) -> None:
    peer = Peer("east", f"http://127.0.0.1:1,{servers[0].url}")
    assert peer.post(b"x") == b"server 0"
    peer.close()
