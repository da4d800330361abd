"""Requests of a runner to the engine that it belongs to."""

from __future__ import annotations

import os
import socket
import ssl

from topmast.adapters.engines.far.runner.processes import (
    ADDRESS,
    CALL_S,
    Json,
)

HEAD_BYTES = 65536
"""At most, of each line before the body of an answer."""


class Line:
    """A connection on which one request goes after the other.

    The listener at the other end is ours, and gives each answer a length. Compiling `http.client`,
    where an image has no compiled modules, takes a third of what a runner takes to start.
    """

    def __init__(self, ticket: Json) -> None:
        url = ticket["url"]
        if url.startswith("unix:"):
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(CALL_S)
            self.sock.connect(url[len("unix:") :])
        else:
            # Exactly this certificate is trusted, so that its name does not matter.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.load_verify_locations(cadata=ticket["ca"])
            host, _, port = url[len("https://") :].rpartition(":")
            plain = socket.create_connection((host.strip("[]"), int(port)), CALL_S)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock = context.wrap_socket(plain)
        self.answers = self.sock.makefile("rb")

    def ask(self, path: str, token: str, body: bytes | None) -> tuple[int, bytes]:
        """The status and the body of the answer; raises OSError when there is none."""
        head = "%s %s HTTP/1.1\r\nHost: home\r\nAuthorization: Bearer %s\r\n" % (  # noqa: UP031
            "GET" if body is None else "POST", path, token
        )  # fmt: skip
        length = "Content-Length: %d\r\n\r\n" % len(body or b"")  # noqa: UP031
        self.sock.sendall((head + length).encode() + (body or b""))
        version, _, status = self._head().partition(b" ")
        left_bytes = -1
        while True:
            name, _, value = self._head().partition(b":")
            if not name:
                break
            if name.lower() == b"content-length":
                left_bytes = int(value)
        answer = self.answers.read(left_bytes) if left_bytes > 0 else b""
        if not version.startswith(b"HTTP/1.") or len(answer) != left_bytes:
            raise OSError("home gave an answer that is cut off")
        return int(status[:3]), answer

    def _head(self) -> bytes:
        found = self.answers.readline(HEAD_BYTES)
        if not found.endswith(b"\n"):
            raise OSError("home hung up")
        return found.rstrip(b"\r\n")

    def close(self) -> None:
        """Hang up."""
        self.answers.close()
        self.sock.close()


class Home:
    """Requests to the engine. Each thread has one of its own."""

    def __init__(self, ticket: Json) -> None:
        self.ticket = ticket
        self.line: Line | None = None

    def call(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """One request; raises OSError when there is no answer."""
        kept = self.line is not None
        try:
            return self._call(path, body)
        except OSError:
            self.hang_up()
            if not kept:
                raise
        return self._call(path, body)  # home closes a connection that was idle

    def _call(self, path: str, body: bytes | None) -> tuple[int, bytes]:
        self.line = self.line or Line(self.ticket)
        try:
            return self.line.ask("/" + self.ticket["part"] + "/" + path, self.ticket["token"], body)
        except ValueError as error:
            raise OSError("home gave an answer that cannot be read") from error

    def hang_up(self) -> None:
        """The next request makes a connection of its own."""
        if self.line is not None:
            self.line.close()
        self.line = None

    def address(self) -> str:
        """Ours, on the way to home."""
        if self.ticket["url"].startswith("unix:"):
            return os.environ.get(ADDRESS, "127.0.0.1")
        self.line = self.line or Line(self.ticket)
        address: str = self.line.sock.getsockname()[0]
        return address
