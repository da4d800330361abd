"""Sends messages to webhooks: signed as Standard Webhooks are, and never to where they must not go.

A URL is given by a person, and the server can reach what that person cannot. So the address is
looked up once, judged, and connected to; no proxy is asked, and no redirect is followed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ipaddress
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from topmast.model.errors import InvalidInput, TopmastError
from topmast.model.webhooks import has_place
from topmast.traces.source import open_regular

TIMEOUT_S = 10.0
SECRET_BYTES = 64_000
_STANDARD = "whsec_"
"""What a key in base64 begins with."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_IPV4_AT_THE_END = (
    ipaddress.IPv6Network("::/96"),  # "compatible", of the beginnings of IPv6
    ipaddress.IPv6Network("::ffff:0:0:0/96"),  # SIIT
    ipaddress.IPv6Network("64:ff9b::/96"),  # NAT64
)
_NOT_PUBLIC: tuple[Network, ...] = (
    ipaddress.IPv4Network("192.0.0.0/24"),  # protocols between a host and its network
    ipaddress.IPv4Network("192.88.99.0/24"),  # relays of 6to4
    ipaddress.IPv6Network("64:ff9b:1::/48"),  # NAT64 of a site
    ipaddress.IPv6Network("fec0::/10"),  # of a site
)
"""Networks inside of sites that some versions of `ipaddress` call global."""


class Undelivered(TopmastError):
    """A receiver did not take a message."""


def signature(key: str, message: str, at_s: int, body: bytes) -> str:
    """The signature of a message by HMAC-SHA256, as Standard Webhooks writes it.

    Raises Undelivered for a key that is none; the key itself is not repeated.
    """
    raw = key.encode()
    if key.startswith(_STANDARD):
        try:
            raw = base64.b64decode(key.removeprefix(_STANDARD), validate=True)
        except ValueError:
            what = "is no key: behind whsec_ there is no base64"
            raise Undelivered(f"secret: what the server finds there {what}") from None
    signed = hmac.new(raw, f"{message}.{at_s}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


def resolved(reference: str) -> str:
    """The value that a reference names, or a text that is none. Raises Undelivered."""
    kind, _, place = reference.partition(":")
    if kind == "env":
        if place not in os.environ:
            raise Undelivered(f"the server has no variable {place}")
        return _text(os.environb[os.fsencode(place)], reference)
    if kind != "file":
        return reference
    try:
        with open_regular(Path(place)) as file:
            data = file.read(SECRET_BYTES + 1)
    except InvalidInput as error:
        raise Undelivered(f"{reference}: {error.message}") from None
    except OSError as error:
        raise Undelivered(f"{reference}: {error.strerror or error}") from None
    if len(data) > SECRET_BYTES:
        raise Undelivered(f"{reference}: holds more than {SECRET_BYTES:,} bytes")
    return _text(data, reference).rstrip("\n")


def _text(value: bytes, reference: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Undelivered(f"{reference}: is not text") from None


def check(url: str, allowed: Sequence[Network]) -> None:
    """Raises Undelivered for a URL that `deliver` would not call; connects to nothing."""
    host, port, secure = _place(url)
    try:
        _address(host, port, secure, allowed)
    except (OSError, ValueError) as error:
        raise Undelivered(f"{host} {_trouble(error)}") from None


def deliver(url: str, body: bytes, headers: Mapping[str, str], allowed: Sequence[Network]) -> None:
    """Post a message. Raises Undelivered unless the receiver says that it has taken it.

    ``allowed``: networks of the site itself where receivers may be; else they are in the Internet.
    """
    host, port, secure = _place(url)
    parts = urlsplit(url)
    try:
        path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        address = _address(host, port, secure, allowed)
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        with socket.create_connection((address, port), TIMEOUT_S) as plain, _in_time(connection):
            plain.settimeout(None)  # the limit is one of all of it
            connection.sock = _wrapped(plain, host) if secure else plain
            if isinstance(connection.sock, ssl.SSLSocket):
                connection.sock.do_handshake()
            connection.request("POST", path, body, dict(headers))
            answer = connection.getresponse()
            answer.close()  # its status says all, and what follows could be sent without end
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        # What it says may have the URL in it, which may be a secret.
        raise Undelivered(f"{host} {_trouble(error)}") from None
    if not 200 <= answer.status < 300:
        raise Undelivered(f"{host} answers {answer.status}")


def _place(url: str) -> tuple[str, int, bool]:
    """Host and port of a URL, and whether it is one of https. Raises Undelivered."""
    if not has_place(url):
        raise Undelivered("url: what the server finds there is no URL that can be called")
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    return parts.hostname or "", parts.port or (443 if secure else 80), secure


def _trouble(error: Exception) -> str:
    """What went wrong with a receiver, in words without its URL."""
    if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError):
        return "closes the connection without an answer"
    if isinstance(error, TimeoutError):
        return f"cannot be reached: no answer within {TIMEOUT_S:g} s"
    if isinstance(error, ValueError | http.client.InvalidURL) and not isinstance(error, OSError):
        return "cannot be reached: the url has a name, port or path that cannot be called"
    if isinstance(error, http.client.HTTPException):
        return "answers with what is no valid HTTP"
    return f"cannot be reached: {getattr(error, 'strerror', None) or 'the network refuses'}"


def _wrapped(plain: socket.socket, host: str) -> ssl.SSLSocket:
    """A socket that has not shaken hands yet: that counts against the time, too."""
    context = ssl.create_default_context()
    return context.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)


@contextmanager
def _in_time(connection: http.client.HTTPConnection) -> Iterator[None]:
    """Whatever a receiver sends, its answer is whole within TIMEOUT_S. Raises Undelivered.

    The time-out of a socket is one of each read: an answer byte by byte would never end.
    """
    late = threading.Event()

    def end() -> None:
        late.set()
        if connection.sock is not None:
            with suppress(OSError):
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    timer = threading.Timer(TIMEOUT_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if late.is_set():  # also where the half of an answer that there is looks whole
            host = connection.host
            raise Undelivered(f"{host} has not answered within {TIMEOUT_S:g} s") from None


def _address(host: str, port: int, secure: bool, allowed: Sequence[Network]) -> str:
    """The address of a host where messages may be sent. Raises Undelivered."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(row[4][0]).partition("%")[0] for row in found]
    for text in addresses:
        address = ipaddress.ip_address(text)
        leads_to = _leads_to(address)
        ours = any(one in net for one in leads_to for net in allowed if one.version == net.version)
        if not ours and not all(_is_public(one) for one in leads_to):
            remedy = "topmast up --notify-network NETWORK allows it"
            where = text if host == text else f"{host} is {text}, which"
            raise Undelivered(f"{where} is not in the Internet ({remedy})")
        if not ours and not secure:
            raise Undelivered(f"{host}: only https may go to the Internet")
    return addresses[0]


def _leads_to(address: Address) -> tuple[Address, ...]:
    """An address and the one of IPv4 within it, where the network may bring it there."""
    if address.version == 4:
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address, address.sixtofour)
    if any(address in net for net in _IPV4_AT_THE_END):
        return (address, ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    return (address,)


def _is_public(address: Address) -> bool:
    if not address.is_global or address.is_multicast:
        return False
    return not any(address in net for net in _NOT_PUBLIC if net.version == address.version)
