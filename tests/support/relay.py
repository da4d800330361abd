"""The way home of the runners of a cluster, which can be cut off for one host."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import psutil

NAME = b"SLURMD_NODENAME="


class Relay:
    """A port before that of a listener. What is cut off is silent, and goes on when it is mended."""

    def __init__(self, home_port: int) -> None:
        self._home = ("127.0.0.1", home_port)
        self._clear: defaultdict[str, threading.Event] = defaultdict(_set)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, host: str) -> None:
        """Nothing passes between the runners of a host and home, either way."""
        self._clear[host].clear()

    def mend(self, host: str) -> None:
        """What waits passes now."""
        self._clear[host].set()

    def _accept(self) -> None:
        while True:
            line, (_, port) = self._listener.accept()
            threading.Thread(target=self._join, args=(line, port), daemon=True).start()

    def _join(self, line: socket.socket, port: int) -> None:
        clear = self._clear[_host_of(port)]
        with line, suppress(OSError), socket.create_connection(self._home) as home:
            back = threading.Thread(target=_pass, args=(home, line, clear), daemon=True)
            back.start()
            _pass(line, home, clear)
            back.join()


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def _pass(source: socket.socket, sink: socket.socket, clear: threading.Event) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            clear.wait()
            sink.sendall(data)
    clear.wait()
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _host_of(port: int) -> str:
    """On which host of the cluster the process is that has this port; empty if none is."""
    for one in psutil.net_connections("tcp4"):
        if one.laddr and one.laddr.port == port and one.pid:
            with suppress(OSError):
                for entry in Path(f"/proc/{one.pid}/environ").read_bytes().split(b"\0"):
                    if entry.startswith(NAME):
                        return entry.removeprefix(NAME).decode()
    return ""
