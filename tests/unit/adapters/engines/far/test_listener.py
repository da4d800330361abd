"""Where runners call home: what gets in, and what does not keep others waiting."""

import datetime
import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from topmast.adapters.engines.far.certificate import Certificate
from topmast.adapters.engines.far.home import ClaimBody
from topmast.adapters.engines.far.listener import (
    BODY_MAX_BYTES,
    Call,
    Listener,
    Reply,
    bind,
)
from topmast.model.errors import Unavailable

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


async def echo(call: Call) -> Reply:
    """What it was asked; a claim is read as such."""
    if call.name == "claim":
        msgspec.json.decode(call.body, type=ClaimBody)
    return Reply(200, f"{call.part} {call.name} {len(call.body)}".encode())


@pytest.fixture
def home(tmp_path: Path) -> Iterator[tuple[socket.socket, Certificate]]:
    """An open listener."""
    sock = bind("127.0.0.1:0", tmp_path)
    certificate = Certificate(tmp_path, datetime.datetime.now(datetime.UTC))
    listener = Listener(sock, certificate.context, lambda part: f"token-of-{part}", echo, 100)
    listener.open()
    yield sock, certificate
    listener.close()


def ask(
    sock: socket.socket,
    pem: str,
    path: str = "/p1/beat",
    token: str = "token-of-p1",
    body: bytes = b"",
) -> tuple[int, bytes]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=pem)
    port = sock.getsockname()[1]
    line = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
    line.request("POST", path, body, {"Authorization": f"Bearer {token}"})
    answer = line.getresponse()
    found = answer.status, answer.read()
    line.close()
    return found


@pytest.mark.parametrize(
    ("story", "path", "token", "size", "want"),
    [
        ("a runner with its token", "/p1/beat", "token-of-p1", 3, (200, b"p1 beat 3")),
        ("another part's token", "/p1/beat", "token-of-p2", 3, (401, b"")),
        ("no token", "/p1/beat", "", 3, (401, b"")),
        ("a body that is too large", "/p1/log", "token-of-p1", BODY_MAX_BYTES + 1, (413, b"")),
    ],
)
def test_who_gets_in(
    home: tuple[socket.socket, Certificate],
    story: str,
    path: str,
    token: str,
    size: int,
    want: tuple[int, bytes],
) -> None:
    """The token is of the part that is spoken of; bodies are bounded."""
    sock, certificate = home
    assert ask(sock, certificate.pem, path, token, b"x" * size) == want


@pytest.mark.parametrize("body", [b'{"host":"\xff"}', b"{", b"[]", b"\xff"])
def test_a_body_that_cannot_be_read_is_the_callers_fault(
    home: tuple[socket.socket, Certificate], body: bytes
) -> None:
    """A task has the token of its part: it must not fill the log of the server."""
    sock, certificate = home
    assert ask(sock, certificate.pem, "/p1/claim", body=body)[0] == 400


def test_a_runner_trusts_this_certificate_and_no_other(
    home: tuple[socket.socket, Certificate], tmp_path: Path
) -> None:
    """Also not one that another engine made for itself in the same way."""
    (tmp_path / "other").mkdir()
    other = Certificate(tmp_path / "other", NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(home[0], other.pem)


def test_clocks_of_hosts_may_be_wrong(tmp_path: Path) -> None:
    """A day behind ours or ahead of it, and years later: the certificate stays good for a cluster."""
    pem = Certificate(tmp_path, NOW).pem
    (made,) = x509.load_pem_x509_certificates(pem.encode())
    day = datetime.timedelta(days=1)
    for theirs in (NOW - day, NOW, NOW + day, NOW + 20 * 365 * day):
        assert made.not_valid_before_utc < theirs < made.not_valid_after_utc, theirs


def test_clients_that_say_nothing_keep_no_runner_waiting(
    home: tuple[socket.socket, Certificate],
) -> None:
    """Sixty connections that never begin their handshake."""
    sock, certificate = home
    idle = [socket.create_connection(sock.getsockname()) for _ in range(60)]
    assert ask(sock, certificate.pem)[0] == 200
    for one in idle:
        one.close()


def test_port_and_certificate_stay(tmp_path: Path) -> None:
    """Runners of before a restart have both in their tickets."""
    first = bind("127.0.0.1:0", tmp_path)
    port = first.getsockname()[1]
    first.close()
    again = bind("127.0.0.1:0", tmp_path)
    assert again.getsockname()[1] == port
    again.close()
    assert Certificate(tmp_path, NOW).pem == Certificate(tmp_path, NOW).pem
    assert (tmp_path / "listener.pem").stat().st_mode & 0o777 == 0o600


def test_an_address_that_cannot_be_listened_on_is_told_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Unavailable) as refusal:
        bind(f"127.0.0.1:{taken.getsockname()[1]}", tmp_path)
    assert "address already in use (option `listen`: " in str(refusal.value)
    assert "Errno" not in str(refusal.value)
