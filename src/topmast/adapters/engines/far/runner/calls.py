"""Requests of a runner to the engine that it belongs to."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import urllib.parse

from topmast.adapters.engines.far.runner.processes import (
    ADDRESS,
    CALL_S,
    Json,
)


class _Unix(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.host)


class Home:
    """Requests to the engine. Each thread has one of its own."""

    def __init__(self, ticket: Json) -> None:
        self.ticket = ticket
        self.line: http.client.HTTPConnection | None = None

    def _connect(self) -> http.client.HTTPConnection:
        url = self.ticket["url"]
        if url.startswith("unix:"):
            return _Unix(url[len("unix:") :], timeout=CALL_S)
        # Exactly this certificate is trusted, so that its name does not matter.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=self.ticket["ca"])
        where = urllib.parse.urlsplit(url)
        host = where.hostname or ""
        return http.client.HTTPSConnection(host, where.port, timeout=CALL_S, context=context)

    def call(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """One request; raises OSError or HTTPException when there is no answer."""
        kept = self.line is not None
        try:
            return self._call(path, body)
        except (OSError, http.client.HTTPException):
            self.hang_up()
            if not kept:
                raise
        return self._call(path, body)  # home closes a connection that was idle

    def _call(self, path: str, body: bytes | None) -> tuple[int, bytes]:
        self.line = self.line or self._connect()
        headers = {"Authorization": "Bearer " + self.ticket["token"]}
        method = "GET" if body is None else "POST"
        self.line.request(method, "/%s/%s" % (self.ticket["part"], path), body, headers)  # noqa: UP031
        answer = self.line.getresponse()
        return answer.status, answer.read()

    def hang_up(self) -> None:
        """The next request makes a connection of its own."""
        if self.line is not None:
            self.line.close()
        self.line = None

    def address(self) -> str:
        """Ours, on the way to home."""
        if self.ticket["url"].startswith("unix:"):
            return os.environ.get(ADDRESS, "127.0.0.1")
        self.line = self.line or self._connect()
        if self.line.sock is None:
            self.line.connect()
        address: str = self.line.sock.getsockname()[0]
        return address
