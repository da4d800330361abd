"""Commands beside tasks of the local engine: ordered by a file, and heard over a socket.

The supervisor of the task reads the order and forks what keeps the command, which connects to the
socket here. So the command is a process of the task: it is halted and ended with it.
"""

from __future__ import annotations

import base64
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import msgspec

from topmast.adapters.engines.execs import Execs, LiveExec
from topmast.adapters.engines.far.runner.processes import Wire
from topmast.adapters.engines.local import files
from topmast.adapters.engines.local.files import Layout
from topmast.model.exec_views import ExecSpec
from topmast.model.ids import attempt_name

LOOK_S = 5.0
"""How often it is looked whether a command has been forgotten by its user."""
GONE = 255
"""The exit code of a command that was ended with its task."""


class LocalExecs:
    """The commands of one cluster; the socket is there from the first one on."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._execs = Execs()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None

    def begin(self, spec: ExecSpec) -> LiveExec:
        """A new one, which `order` makes a supervisor begin. Raises TooMany."""
        with self._lock:
            if self._listener is None:
                self._listener = self._listen()
                threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self._execs.begin(spec)

    def order(self, one: LiveExec) -> None:
        """Write the order; the supervisors of the attempt are to look at it then."""
        spec = one.spec
        file = self._layout.exec(attempt_name(spec.job, spec.epoch), spec.rank, one.id)
        files.make_folder(file.parent)
        order = {"id": one.id, **msgspec.to_builtins(spec)}
        files.write_json(file, order, durable=False)

    def look(self, is_over: Callable[[ExecSpec], bool]) -> None:
        """End those of tasks that are over, of which nothing was begun or is left."""
        for one in self._execs.running():
            if is_over(one.spec):
                one.finish(GONE, "its task has ended")

    def close(self) -> None:
        """End all: what keeps them notices that nothing listens."""
        self._execs.close()
        with self._lock:
            if self._listener is not None:
                with suppress(OSError):
                    self._listener.shutdown(socket.SHUT_RDWR)
                self._listener.close()
                self._listener = None

    # --- the socket -----------------------------------------------------------------------------

    def _listen(self) -> socket.socket:
        path = self._layout.exec_socket
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The path of a socket has at most 107 bytes; by way of its folder it is short.
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")
            path.chmod(0o600)
            listener.listen(16)
        finally:
            os.close(folder)
        return listener

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._attend, args=(connection,), daemon=True).start()

    def _attend(self, connection: socket.socket) -> None:
        """Hear one command to its end."""
        with connection:
            wire = Wire(connection)
            first = wire.hear() or []
            one = self._execs.get(str(first[0].get("id"))) if first else None
            if one is None or not one.may_begin():
                return  # it hangs up, and the command never runs
            wire.tell(op="begin")
            threading.Thread(target=_tell_input, args=(one, wire), daemon=True).start()
            messages: list[dict[str, object]] | None = first[1:]
            while messages is not None:
                for message in messages:
                    _take(one, message)
                messages = None if one.finished else wire.hear()
            one.finish(GONE, "it was ended with its task")


def _take(one: LiveExec, message: dict[str, object]) -> None:
    if message["op"] == "out":
        one.add_all(int(str(message["stream"])), base64.b64decode(str(message["data"])))
    elif message["op"] == "read":
        one.took(int(str(message["offset"])))
    elif message["op"] == "exit":
        one.finish(int(str(message["code"])))


def _tell_input(one: LiveExec, wire: Wire) -> None:
    """Tell it what it is to read, and when it is to end."""
    offset, told = 0, False
    while not one.over:
        data, whole = one.wait_input(offset, LOOK_S, knows_whole=told)
        offset += len(data)
        if data:
            wire.tell(op="in", data=base64.b64encode(data).decode())
        if whole and not told:
            told = True
            wire.tell(op="eof")
    wire.tell(op="end")
