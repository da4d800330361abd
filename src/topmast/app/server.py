"""`topmast up`: an application behind its sockets, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import structlog
import uvicorn
from starlette.types import ASGIApp

import topmast
from topmast.adapters.connections import KEPT_S, STOP_S, BoundedServer, Connections, Tls, plain
from topmast.adapters.engines.local import processes
from topmast.adapters.engines.local.hosts import TASK_UMASK
from topmast.app import systemd
from topmast.app.folder import note
from topmast.client.address import SERVER_FILE, STANDBY, STARTING, process_file
from topmast.model.errors import InvalidInput, Unavailable

LOG_FORMAT = "TOPMAST_LOG"
KEPT = "TOPMAST_KEPT"
"""The beginning of the names of variables with what it listened on before it began again."""
MOST_OPEN_FILES = 65_536
"""Tasks inherit the limit, and some programs close every descriptor that it allows, one by one."""


def configure_logs(level: int = logging.INFO) -> None:
    """Log lines on stderr: for people, or JSON where ``TOPMAST_LOG`` says so.

    Lines about a request have its number, which the answer repeats, and its actor.
    """
    as_json = os.environ.get(LOG_FORMAT, "") == "json"
    last: structlog.typing.Processor = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    if as_json:
        last = structlog.processors.JSONRenderer(sort_keys=True, default=str)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            last,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def keep_private() -> None:
    """Make the files of this process private; tasks keep the mask that it was started with."""
    before = os.umask(0o077)
    os.environ.setdefault(TASK_UMASK, f"{before:o}")


def raise_open_files() -> int:
    """Let this process have as many open files as it may; returns how many these are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return MOST_OPEN_FILES if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def bind(
    host: str, port: int, *, token: str = "", field: str = "--host", login: bool = False
) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises InvalidInput, Unavailable.

    Without a ``token`` or ``login`` it must be on loopback. One that was kept is taken up again.
    """
    name = "127.0.0.1" if host == "localhost" else host
    try:
        loopback = ipaddress.ip_address(name).is_loopback
    except ValueError:
        raise InvalidInput(f"'{host}' is not an address", field=field) from None
    if not loopback and not token and not login:
        raise InvalidInput(
            f"{host} can be reached from other machines, and requests are not authenticated",
            field=field,
            remedy="use --listen, with TLS and a login; links between processes need a token",
        )
    kept = _kept(field)
    if kept is not None:
        return kept
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    # The protocol is named, or asyncio does not know that it may switch off Nagle's algorithm.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((name, port))
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"cannot listen on {host}:{port}: {error.strerror} (choose another --port, 0 for any)"
        ) from None
    listener.listen(1024)
    return listener


def keep(listeners: Mapping[str, socket.socket]) -> None:
    """Leave listening sockets open to the program that this process is about to become.

    By the names of the options that they were made for; connections wait in them meanwhile.
    """
    for field, listener in listeners.items():
        listener.set_inheritable(True)
        os.environ[KEPT + field] = f"{os.getpid()} {listener.fileno()}"


def _kept(field: str) -> socket.socket | None:
    """The socket that was kept for an option, and is not ours alone by now."""
    pid, _, number = os.environ.pop(KEPT + field, "").partition(" ")
    if pid != str(os.getpid()):
        return None
    listener = socket.socket(fileno=int(number))
    listener.set_inheritable(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """What to write to reach a listening socket."""
    address, port = listener.getsockname()[:2]
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def run(
    app: ASGIApp,
    state: Path,
    listeners: Sequence[socket.socket],
    ready: Callable[[str], None],
    leave: Callable[[], None] = lambda: None,
    *,
    most_connections: int,
    announced: bool = True,
    role: str = "",
    tls: Tls = plain,
) -> None:
    """Answer requests until SIGTERM or SIGINT; ``ready`` is called with the URL when it begins.

    The first listener is the one that clients on this machine are told of, if it is ``announced``.
    ``leave`` ends what would keep the server from shutting down. ``tls``: which connections are
    greeted with TLS. ``role``: what it is, for `topmast down`.
    """
    connections = Connections(most_connections)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        proxy_headers=False,  # no proxy is trusted to name the address of the client
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="error",  # its warnings are of what any stranger may send, without limit
        timeout_keep_alive=KEPT_S,
        timeout_graceful_shutdown=int(2 * STOP_S),  # for what does not end when it is told to
    )
    server = _Server(config, connections, leave, tls)
    asyncio.run(_serve(server, listeners, state, ready, announced, role))


class _Server(BoundedServer):
    """Says when it has started, and ends the event streams first when it is asked to stop."""

    def __init__(
        self,
        config: uvicorn.Config,
        connections: Connections,
        leave: Callable[[], None],
        tls: Tls,
    ) -> None:
        super().__init__(config, connections, tls)
        self._leave = leave
        self.when_started: Callable[[], Awaitable[None]] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections, and say so."""
        await super().startup(sockets)
        if self.when_started is not None:
            await self.when_started()

    def handle_exit(self, sig: int, frame: object) -> None:
        """SIGTERM or SIGINT: leave in good order; a second Ctrl-C waits for no request."""
        systemd.tell(systemd.STOPPING)
        self._leave()
        # uvicorn would note the signal and raise it again when it has shut down: SIGTERM would
        # then end the process before the journal is closed.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


async def _serve(
    server: _Server,
    listeners: Sequence[socket.socket],
    state: Path,
    ready: Callable[[str], None],
    announced: bool,
    role: str,
) -> None:
    url = url_of(listeners[0])

    async def begin() -> None:
        if announced:
            announce(state, url, role)
        ready(url)
        systemd.tell(systemd.READY)

    server.when_started = begin
    try:
        await server.serve(sockets=list(listeners))
    finally:
        withdraw(state)
        withdraw_as(state, STANDBY)


def withdraw(state: Path) -> None:
    """Take back what `announce` told, unless another process has taken over."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if json.loads((state / SERVER_FILE).read_bytes())["pid"] == os.getpid():
            (state / SERVER_FILE).unlink()


def announce(state: Path, url: str, role: str = "") -> None:
    """Tell clients on this machine where the server is, and what: a ``LEADER``, or the only one."""
    _announce(state, SERVER_FILE, url, role)
    withdraw_as(state, STARTING)


def announce_standby(state: Path, url: str) -> None:
    """Tell `topmast down` of a process that stands by; several may on one folder."""
    announce_as(state, STANDBY, url)
    withdraw_as(state, STARTING)


def announce_as(state: Path, kind: str, url: str) -> None:
    """Tell of a process that does not lead: it stands by, or is starting."""
    _announce(state, process_file(kind, os.getpid()), url, kind)


def withdraw_as(state: Path, kind: str) -> None:
    """Take back what `announce_as` told."""
    (state / process_file(kind, os.getpid())).unlink(missing_ok=True)


def _announce(state: Path, name: str, url: str, role: str) -> None:
    document = {
        "url": url,
        "role": role,
        "state": str(state.resolve()),
        "version": topmast.__version__,
        **processes.identity(os.getpid()),
        "pid_namespace": processes.namespace(),
    }
    note(state, name, json.dumps(document).encode())
