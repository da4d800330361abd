"""Messages to webhooks: where they may go, and how they are signed."""

import base64
import hashlib
import hmac
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from topmast.adapters import webhooks
from topmast.adapters.webhooks import Undelivered, check, deliver, resolved, signature

LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]


def test_a_signature_is_that_of_standard_webhooks() -> None:
    """HMAC-SHA256 of id, time and body; a key in base64 says so."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = hmac.new(key, b'msg_1.1614265330.{"test": 1}', hashlib.sha256).digest()
    want = f"v1,{base64.b64encode(signed).decode()}"
    found = signature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_1", 1614265330, b'{"test": 1}')
    assert found == want
    assert signature("plain", "a", 1, b"x") != signature("plain", "b", 1, b"x")
    assert signature("plain", "a", 1, b"x") != signature("plain", "a", 2, b"x")


@pytest.mark.parametrize(
    "url", ["root:x:0:0", "https://example.com:99999/", "ftp://example.com/", "http://[x", ""]
)
def test_what_a_reference_holds_may_be_no_url(url: str) -> None:
    """It is said so, and what was found is not repeated."""
    with pytest.raises(Undelivered, match=r"url: .* no URL") as found:
        deliver(url, b"{}", {}, LOOPBACK)
    assert not url or url not in str(found.value)
    with pytest.raises(Undelivered, match=r"url: .* no URL") as found:
        check(url, LOOPBACK)
    assert not url or url not in str(found.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/", "https://localhost:1/", "https://10.1.2.3/", "https://169.254.169.254/x",
        "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://0.0.0.0/", "https://[fe80::1]/",
        "https://[64:ff9b::10.0.0.1]/", "https://[64:ff9b::a9fe:a9fe]/", "https://[64:ff9b:1::1]/",
        "https://[2002:a00:1::]/", "https://[2002:7f00:1::1]/", "https://[::10.0.0.1]/",
        "https://[fec0::1]/", "https://[::ffff:0:10.0.0.1]/", "https://[2001:0:a00:1::1]/",
        "https://192.0.0.9/", "https://192.0.0.192/", "https://192.88.99.1/",
        "https://192.168.0.1/", "https://100.64.0.1/", "https://224.0.0.1/", "http://2130706433/",
    ],
)  # fmt: skip
def test_what_is_not_in_the_internet_is_not_called(url: str) -> None:
    """Unless the site allows it; the address is judged, however it is written."""
    with pytest.raises(Undelivered, match="not in the Internet"):
        deliver(url, b"", {}, ())
    with pytest.raises(Undelivered, match="not in the Internet"):
        check(url, ())


@pytest.mark.parametrize(
    "host",
    ["93.184.216.34", "[2606:2800::1]", "[64:ff9b::93.184.216.34]", "[::ffff:93.184.216.34]"],
)
def test_only_https_goes_to_the_internet(host: str) -> None:
    """An address there is refused before anything is sent."""
    with pytest.raises(Undelivered, match="only https"):
        deliver(f"http://{host}/", b"", {}, ())
    with pytest.raises(Undelivered, match="only https"):
        check(f"http://{host}/", ())
    check(f"https://{host}/", ())
    with pytest.raises(Undelivered, match=r"none\.invalid cannot be reached"):
        check("https://none.invalid/", ())


@pytest.mark.parametrize("host", ["[::ffff:127.0.0.1]", "[64:ff9b::127.0.0.1]"])
def test_what_a_site_allows_may_be_written_within_an_address(host: str) -> None:
    """It is the same place; nothing answers here."""
    with pytest.raises(Undelivered, match="cannot be reached"):
        deliver(f"http://{host}:1/", b"", {}, LOOPBACK)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/", "https://127.0.0.1:1/", "http://127.0.0.1:99999/"]
)
def test_nothing_there_is_said(url: str) -> None:
    """Without the URL, which may be a secret."""
    with pytest.raises(Undelivered) as caught:
        deliver(f"{url}secret", b"", {}, LOOPBACK)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (b"", "127.0.0.1 closes the connection without an answer"),
        (b"garbage\r\n\r\n", "127.0.0.1 answers with what is no valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000, "127.0.0.1 answers with what is no valid HTTP"),
        (
            b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200,
            "127.0.0.1 answers with what is no valid HTTP",
        ),
    ],
    ids=["nothing", "garbage", "a long line", "many headers"],
)
def test_a_receiver_that_speaks_no_http_is_told_of_in_words(answer: bytes, want: str) -> None:
    """Not by the name of a class of Python."""

    def receive() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(65_536)
            client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=receive)
        thread.start()
        with pytest.raises(Undelivered) as caught:
            deliver(f"http://127.0.0.1:{listener.getsockname()[1]}/", b"", {}, LOOPBACK)
        thread.join()
    assert str(caught.value) == want


SEEN: list[tuple[str, bytes]] = []


class Receiver(BaseHTTPRequestHandler):
    """Answers with the status that the path names."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        SEEN.append((self.headers["X-A"], body))
        self.send_response(int(self.path[1:4]))
        self.send_header(
            "Location", f"http://127.0.0.1:{cast(HTTPServer, self.server).server_port}/200"
        )
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[str]:
    """The URL of a receiver."""
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_message_is_posted(receiver: str) -> None:
    """2xx is taken, nothing else; a redirect is not followed."""
    SEEN.clear()
    deliver(f"{receiver}/204?x=1", b"body", {"X-A": "1"}, LOOPBACK)
    for status in (302, 400, 410, 500):
        with pytest.raises(Undelivered, match=f"answers {status}"):
            deliver(f"{receiver}/{status}", b"", {"X-A": "2"}, LOOPBACK)
    assert SEEN == [("1", b"body")] + [("2", b"")] * 4


def test_references_are_resolved_when_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files and variables of the server; what is not there is said."""
    (tmp_path / "key").write_text("abc\n")
    monkeypatch.setenv("HOOK_KEY", "xyz")
    assert resolved(f"file:{tmp_path}/key") == "abc"
    assert resolved("env:HOOK_KEY") == "xyz"
    assert resolved("https://example.com/x") == "https://example.com/x"
    for missing in (f"file:{tmp_path}/none", "env:NONE_SUCH"):
        with pytest.raises(Undelivered):
            resolved(missing)


@pytest.mark.parametrize("key", ["whsec_abc", "whsec_a-b_", "whsec_é", "whsec_ab c="])
def test_a_key_that_is_none_signs_nothing(key: str) -> None:
    """It says where the fault is, and does not repeat the key."""
    with pytest.raises(Undelivered, match=r"secret: .* is no key") as found:
        signature(key, "a", 1, b"x")
    assert key.removeprefix("whsec_") not in str(found.value)


def test_a_reference_to_what_is_no_file_of_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Devices and pipes are not opened: they could keep whoever reads them."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in ("/dev/zero", tmp_path, pipe):
        with pytest.raises(Undelivered, match=f"file:{place}: is a "):
            resolved(f"file:{place}")
    (tmp_path / "large").write_bytes(b"x" * 64_001)
    with pytest.raises(Undelivered, match="holds more than 64,000 bytes"):
        resolved(f"file:{tmp_path}/large")
    (tmp_path / "bytes").write_bytes(b"\xff")
    monkeypatch.setitem(os.environb, b"HOOK_KEY", b"\xff")
    for reference in (f"file:{tmp_path}/bytes", "env:HOOK_KEY"):
        with pytest.raises(Undelivered, match=f"{reference}: is not text"):
            resolved(reference)


@contextmanager
def dripping(head: bytes) -> Iterator[str]:
    """The URL of a receiver that sends the beginning of an answer, and then a byte now and then."""
    over = threading.Event()

    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.sendall(head)
            while not over.wait(0.02):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        over.set()
        thread.join()


def test_an_answer_byte_by_byte_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is one for all of an answer, not for each read; and half of one is no success."""
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 0.3)
    said = pytest.raises(Undelivered, match="has not answered within")
    with dripping(b"HTTP/1.1 200 OK\r\nX-Long: ") as url, said:
        deliver(url, b"{}", {}, LOOPBACK)


@pytest.mark.parametrize("head", ["", "Content-Length: 1000000\r\n", "Connection: close\r\n"])
def test_what_follows_the_status_is_not_waited_for(head: str) -> None:
    """A body byte by byte keeps no thread of the server: the status says all."""
    with dripping(f"HTTP/1.1 200 OK\r\n{head}\r\n".encode()) as url:
        begun_s = time.monotonic()
        deliver(url, b"{}", {}, LOOPBACK)
        assert time.monotonic() - begun_s < 5.0
