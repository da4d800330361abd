"""A command that a user runs beside a task: its process, its terminal, and its way home.

What it writes and reads goes over a wire, as lines of JSON: ``out`` and ``exit`` from it, ``in``,
``eof`` and ``end`` to it. It tells by ``read`` how much of its input the command took: of what it
did not, no more than some is sent. It does not run before a ``begin``: it may have been ended while
it waited. The local engine has the other end of the wire. For a runner the `Courier` has it, which
talks to home.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import termios
import threading
import time
import urllib.parse as urls
from typing import Any, NoReturn

from topmast.adapters.engines.far.runner.calls import (
    Home,
)
from topmast.adapters.engines.far.runner.processes import (
    BACKOFF_S,
    HUNG_UP,
    Json,
    Wire,
    descendants,
    exit_code,
    now_s,
    send,
)

EXEC_TURN_S = 0.2
EXEC_PAGE_BYTES = 32768
EXEC_TOLD_BYTES = 512 * 1024
"""Home hears how much was read each time that it is so much more: half of what it sends unread."""
EXEC_REST_S = 0.5
"""What a command leaves running may hold its output open: that is not waited for any longer."""
EXEC_HANG_UP_S = 2.0
"""Between SIGHUP and SIGKILL."""
EXEC_SILENCE_S = 60.0
"""A command ends when home was silent for so long."""
NOT_FOUND, CANNOT_RUN = 127, 126


class Beside:
    """Keeps one command, in a process of its own below the supervisor of the task."""

    def __init__(self, order: Json, envs: Any, folder: str, wire: Wire) -> None:
        """``envs`` gives the environment: no process but the command has the secrets in it."""
        self.order = order
        self.envs = envs
        self.folder = folder
        self.wire = wire
        self.outs: dict[int, int] = {}
        """The streams that it writes, by our end."""
        self.into = -1
        """Our end of what it reads; -1: closed."""
        self.unread = bytearray()
        """What came for it; what is taken from the front costs nothing."""
        self.taken = self.told = 0
        """Bytes of its input that it took, and that home heard of."""
        self.whole = self.gone = False
        """Whether its input has an end; whether the other end of the wire is gone."""
        self.begins = False
        self.pid = 0
        self.code: int | None = None
        self.over_s = self.kill_s = float("inf")

    def run(self) -> None:
        """Until it has ended, and all that it wrote is told."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)  # they are for the command
        while not self.begins:
            self._hear()
            if self.gone:
                return
        self._begin()
        while self.code is None or (self.outs and now_s() < self.over_s + EXEC_REST_S):
            self._turn()
        self.wire.tell(op="exit", code=self.code)

    def _begin(self) -> None:
        tty = self.order["tty"]
        if tty:
            ours, theirs = os.openpty()
            size = struct.pack("HHHH", self.order["rows"], self.order["columns"], 0, 0)
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
            ends = (theirs, theirs, theirs)
            self.outs, self.into = {ours: 1}, os.dup(ours)
        else:
            (read, self.into), (out, written), (err, told) = os.pipe(), os.pipe(), os.pipe()
            ends = (read, written, told)
            self.outs = {out: 1, err: 2}
        self.pid = os.fork()
        if self.pid == 0:
            self._become(ends)
        for end in sorted(set(ends)):
            os.close(end)
        for end in (*self.outs, self.into):
            os.set_blocking(end, False)

    def _become(self, ends: tuple[int, int, int]) -> NoReturn:
        """In the child: run the command, which no shell reads."""
        words = self.order["command"]
        try:
            os.setsid()
            if self.order["tty"]:
                fcntl.ioctl(ends[0], termios.TIOCSCTTY, 0)
            for number, end in enumerate(ends):
                os.dup2(end, number)
            for number in sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}):
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            os.chdir(self.folder)
            os.execvpe(words[0], words, self.envs())  # noqa: S606
        except BaseException as error:
            why = getattr(error, "strerror", None) or error
            os.write(2, ("topmast: %s: %s\n" % (words[0], why)).encode(errors="replace"))  # noqa: UP031
            os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN)

    def _turn(self) -> None:
        poll = select.poll()
        for end in self.outs:
            poll.register(end, select.POLLIN)
        if not self.gone:
            poll.register(self.wire.end, select.POLLIN)
        if self.into >= 0 and self.unread:
            poll.register(self.into, select.POLLOUT)
        ready = {number for number, _ in poll.poll(1000 * EXEC_TURN_S)}
        for end in [end for end in self.outs if end in ready]:
            self._read(end)
        if self.wire.end.fileno() in ready:
            self._hear()
        self._write()
        self._reap()

    def _read(self, end: int) -> None:
        try:
            data = os.read(end, EXEC_PAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:  # nothing has the terminal open any more
            data = b""
        if data:
            self.wire.tell(op="out", stream=self.outs[end], data=base64.b64encode(data).decode())
        else:
            os.close(end)
            del self.outs[end]

    def _hear(self) -> None:
        messages = self.wire.hear()
        if messages is None:
            self.gone = True
        for message in messages or ():
            if message["op"] == "begin":
                self.begins = True
            elif message["op"] == "in":
                self.unread += base64.b64decode(message["data"])
            elif message["op"] == "eof":
                self.whole = True
        if messages is None or any(message["op"] == "end" for message in messages):
            if not self.pid:
                self.gone = True
                return
            self._hang_up(signal.SIGHUP)
            self.kill_s = min(self.kill_s, now_s() + EXEC_HANG_UP_S)

    def _hang_up(self, number: int) -> None:
        tree = [self.pid, *descendants(self.pid)]
        send(tree, number)
        send(tree, signal.SIGCONT)

    def _write(self) -> None:
        try:
            if self.unread and self.into >= 0:
                self._take(os.write(self.into, self.unread))
            if self.whole and not self.unread and self.into >= 0:
                if self.order["tty"]:
                    os.write(self.into, b"\x04")
                else:
                    self._close()
                self.whole = False
        except BlockingIOError:
            pass
        except OSError:  # it reads no more
            self._close()
        if self.into < 0:
            self._take(len(self.unread))  # nothing reads it

    def _take(self, size_bytes: int) -> None:
        """So much of its input is gone."""
        del self.unread[:size_bytes]
        self.taken += size_bytes
        if self.taken - self.told >= EXEC_TOLD_BYTES:
            self.told = self.taken
            self.wire.tell(op="read", offset=self.taken)

    def _close(self) -> None:
        os.close(self.into)
        self.into = -1

    def _reap(self) -> None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code, self.over_s = exit_code(status), now_s()
        if self.code is None and now_s() >= self.kill_s:
            self._hang_up(signal.SIGKILL)


class Courier:
    """Between the wire of a command on a far host, and home."""

    def __init__(self, ticket: Json, me: dict[str, str], order: Json, wire: Wire) -> None:
        self.ticket = ticket
        self.me = {**me, "id": order["id"]}
        self.wire = wire
        self.offsets = {1: 0, 2: 0}
        self.heard_s = now_s()

    def run(self) -> None:
        """Until home knows the end, or wants no more."""
        home = Home(self.ticket)
        answer = self._insist(home, {"begin": "1"}, None)
        if answer is None or json.loads(answer)["end"]:
            return
        self.wire.tell(op="begin")
        threading.Thread(target=self._fetch, daemon=True).start()
        while True:
            messages = self.wire.hear()
            if messages is None:
                return
            for message in messages:
                if message["op"] == "out":
                    self._bring(home, message["stream"], base64.b64decode(message["data"]))
                elif message["op"] == "read":
                    self._insist(home, {"taken": str(message["offset"])}, None)
                else:
                    self._insist(home, {"code": str(message["code"])}, b"-")
                    return

    def _bring(self, home: Home, stream: int, data: bytes) -> None:
        while data:
            offset = self.offsets[stream]
            where = {"stream": str(stream), "offset": str(offset)}
            answer = self._insist(home, where, data)
            if answer is None:
                return
            taken = json.loads(answer)["offset"] - offset
            data, self.offsets[stream] = data[taken:], offset + taken
            if data:
                time.sleep(BACKOFF_S)  # what came before is not read yet

    def _insist(self, home: Home, query: Json, body: bytes | None) -> bytes | None:
        """Home's answer; None when it wants no more."""
        path = "exec?" + urls.urlencode({**self.me, **query})
        while now_s() - self.heard_s < EXEC_SILENCE_S:
            try:
                status, answer = home.call(path, body)
            except OSError:
                status, answer = 0, b""
            if status == 200:
                self.heard_s = now_s()
                return answer
            if status in HUNG_UP or status == 400:
                break
            time.sleep(BACKOFF_S)
        self.wire.tell(op="end")
        return None

    def _fetch(self) -> None:
        """Bring what is typed; then wait until it is to end."""
        home, offset, whole = Home(self.ticket), 0, False
        while True:
            known = {"offset": str(offset), "whole": "1" if whole else ""}
            answer = self._insist(home, known, None)
            if answer is None:
                return
            told = json.loads(answer)
            if told["data"]:
                offset += len(base64.b64decode(told["data"]))
                self.wire.tell(op="in", data=told["data"])
            if told["end"]:
                self.wire.tell(op="end")
                return
            if told["whole"] and not whole:
                whole = True
                self.wire.tell(op="eof")


def attend(order: Json, envs: Any, folder: str, ticket: Json, me: Any) -> None:
    """Run a command beside a rank, with a courier in this process and its keeper in another."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        status = 1
        try:
            ours.close()
            Beside(order, envs, folder, Wire(theirs)).run()
            status = 0
        finally:
            os._exit(status)
    theirs.close()
    Courier(ticket, me, order, Wire(ours)).run()
