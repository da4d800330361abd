"""Where runners call home: HTTPS with a token for each part, in a thread of its own.

``POST /PART/claim|beat|preparing|end`` and ``POST /PART/log?host&nonce&rank&kind&offset`` with a
page; ``GET /PART/blob``, ``GET /PART/dataset?name&start`` and
``GET /PART/object?name&object&start&end&version``; ``GET`` and ``POST /PART/saved``,
``/PART/exec`` and ``/PART/piece?sha256``. What is asked is decided elsewhere; a client
that sends too much, too slowly or nothing at all keeps no other waiting (`adapters.connections`).
"""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import structlog
import uvicorn
from msgspec import Struct

from topmast.adapters.connections import BoundedServer, Connections
from topmast.adapters.engines.local import files
from topmast.model.errors import Unavailable

BODY_MAX_BYTES = 1 << 20
LIVE_TIMEOUT_S = 3600
"""Between two requests of one connection: `Connections` has stricter limits of its own."""
OPEN_S = 10.0
UNIX = "unix:"
SOCKET_PATH_BYTES = 107

log = structlog.get_logger(__name__)


class Call(Struct, frozen=True):
    """A request of a runner that has shown the token of its part."""

    part: str
    name: str
    query: dict[str, str]
    body: bytes


class Reply(Struct, frozen=True):
    """What it is answered."""

    status: int
    body: bytes = b""


Handler = Callable[[Call], Awaitable[Reply]]


class Listener:
    """Serves calls until it is closed. ``loop`` is that of its thread."""

    def __init__(
        self, sock: socket.socket, tls: ssl.SSLContext | None, token: Callable[[str], str],
        handler: Handler, most_connections: int,
    ) -> None:  # fmt: skip
        self._sock = sock
        self._token = token
        self._handler = handler
        self._connections = Connections(most_connections)
        self._tls = tls
        self._opened = threading.Event()
        self.loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run, name="call home", daemon=True)

    def open(self) -> None:
        """Begin to answer."""
        self._thread.start()
        if not self._opened.wait(OPEN_S):
            raise Unavailable("the listener for runners does not start")

    def close(self) -> None:
        """Let go of all connections; runners try again."""
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join()

    def _run(self) -> None:
        # uvloop has no timeouts of handshakes that can be relied on; here there are few requests.
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        config = uvicorn.Config(
            self._answer, interface="asgi3", proxy_headers=False, ws="none", lifespan="off",
            access_log=False, log_level="error", log_config=None,  # as the server of the API
            timeout_keep_alive=LIVE_TIMEOUT_S, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self.loop = asyncio.get_running_loop()
        self._server = BoundedServer(config, self._connections, lambda _: self._tls)
        self.loop.call_soon(self._opened.set)
        await self._server.serve(sockets=[self._sock])

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            reply = await self._reply(scope, receive)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            reply = Reply(400, str(error).encode())
        except asyncio.CancelledError:
            reply = Reply(503)  # we end; it asks again
        except Exception:
            log.exception("a runner's call", path=scope.get("path"))
            reply = Reply(500)
        head = [(b"content-length", str(len(reply.body)).encode())]
        await send({"type": "http.response.start", "status": reply.status, "headers": head})
        await send({"type": "http.response.body", "body": reply.body})

    async def _reply(self, scope: Any, receive: Any) -> Reply:
        _, _, path = scope["path"].partition("/")
        part, _, name = path.partition("/")
        shown = dict(scope["headers"]).get(b"authorization", b"")
        # Before a byte of the body is read: what has no token is no runner.
        if not hmac.compare_digest(shown, f"Bearer {self._token(part)}".encode()):
            return Reply(401)
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if message["type"] == "http.disconnect" or len(body) > BODY_MAX_BYTES:
                return Reply(413)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        return await self._handler(Call(part, name, query, body))


def bind(listen: str, folder: Path) -> socket.socket:
    """The socket of ``ADDRESS:PORT``, ``unix:/path``, or of ``unix:`` for one in ``folder``.

    Port 0 takes that of the last time. Raises Unavailable.
    """
    try:
        if listen.startswith(UNIX):
            path = listen[len(UNIX) :]
            return _bind_unix(Path(path) if path else _short(folder) / "home")
        address, _, port = listen.rpartition(":")
        return _bind_port(address.strip("[]"), int(port), folder / "port")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise Unavailable(
            f"cannot listen on {listen}: {str(why).lower()} (option `listen`: an address of this "
            "machine, and a port that is free; 0 takes any)"
        ) from None


def _bind_unix(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.unlink(missing_ok=True)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(1024)
    return listener


def _short(folder: Path) -> Path:
    """A path of a folder, for this process, in which the name of a socket fits."""
    if len(os.fsencode(folder)) + len("/home") <= SOCKET_PATH_BYTES:
        return folder
    return Path("/proc/self/fd") / str(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))


def _bind_port(address: str, port: int, remembered: Path) -> socket.socket:
    """Runners have the port in their tickets, so that it stays over restarts."""
    before = (files.read_bytes(remembered) or b"").strip()
    ports = [port] if port or not before.isdigit() else [int(before), 0]
    for number in ports:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, number))
        except OSError:
            listener.close()
            if number == ports[-1]:
                raise
            log.error("the port of the last time is taken: its runners cannot call", port=number)
            continue
        listener.listen(1024)
        if str(listener.getsockname()[1]).encode() != before:
            files.write_file(remembered, f"{listener.getsockname()[1]}\n".encode())
        return listener
    raise AssertionError


def url_of(listener: socket.socket, advertise: str) -> str:
    """How runners reach a listening socket."""
    if listener.family == socket.AF_UNIX:
        return f"{UNIX}{listener.getsockname()}"
    address, port = listener.getsockname()[:2]
    host = advertise or (socket.getfqdn() if address in ("0.0.0.0", "::") else address)  # noqa: S104
    host = f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
    return f"https://{host}" if ":" in host.rpartition("]")[2] else f"https://{host}:{port}"
