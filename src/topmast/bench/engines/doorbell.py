"""What tells when a gang has started: the first act of each of its tasks is to ring here.

It is the same act whatever started the task, and the time is taken on one clock, ours: the clocks
of the hosts do not matter.
"""

from __future__ import annotations

import shlex
import socket
import threading
import time
from contextlib import suppress

from topmast.model.errors import Unavailable

LONGEST_NAME_BYTES = 200
RING_S = 5.0
"""A visitor that does not say its name within this is sent away."""


class Doorbell:
    """Listens until it is closed."""

    def __init__(self, address: str) -> None:
        """``address`` is where hosts reach this machine."""
        self._sock = _bound(address)
        host = f"[{address}]" if ":" in address else address
        self.where = f"{host}:{self._sock.getsockname()[1]}"
        self._address = address
        self._rings: dict[str, list[float]] = {}
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._serve, name="doorbell", daemon=True)
        self._thread.start()

    def command(self, name: str, python: str) -> str:
        """What a task of the gang ``name`` runs, as text for a shell."""
        port = self._sock.getsockname()[1]
        call = f"s.create_connection({(self._address, port)!r}).sendall({name.encode()!r})"
        text = f"import socket as s;{call}"
        return shlex.join([python, "-S", "-E", "-c", text])

    def wait(self, name: str, tasks: int, patience_s: float) -> float:
        """When the last of so many tasks rang, on the monotonic clock. Raises Unavailable."""
        with self._changed:
            rang = self._changed.wait_for(
                lambda: len(self._rings.get(name, ())) >= tasks, patience_s
            )
            if not rang:
                raise Unavailable(
                    f"{len(self._rings.get(name, ()))} of {tasks} tasks of {name} called "
                    f"{self.where} within {patience_s:g} s; if they "
                    "cannot reach that address, say another one with `--home`"
                )
            return self._rings[name][tasks - 1]

    def close(self) -> None:
        """Listen no more."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                visitor, _ = self._sock.accept()
            except OSError:
                return
            rang_s = time.monotonic()
            with visitor, suppress(OSError):
                visitor.settimeout(RING_S)
                name = visitor.recv(LONGEST_NAME_BYTES).decode(errors="replace")
                self.heard(name, rang_s)

    def heard(self, name: str, at_s: float) -> None:
        """A task of a gang rang."""
        with self._changed:
            self._rings.setdefault(name, []).append(at_s)
            self._changed.notify_all()


def _bound(address: str) -> socket.socket:
    """A socket at an address of this machine, or at all of them if it is a name of something else
    that leads here.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for where in (address, ""):
        with suppress(OSError):
            return socket.create_server((where, 0), family=family, backlog=1024)
    raise Unavailable(f"cannot listen on {address}; say another address with `--home`")


def address_towards(host: str) -> str:
    """The address of this machine that packets to a host bear. Nothing is sent."""
    try:
        family, _, _, _, there = socket.getaddrinfo(host, 22, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect(there)
            return str(sock.getsockname()[0])
    except OSError as error:
        raise Unavailable(f"{host}: {error}; say with `--home` how hosts reach us") from None
