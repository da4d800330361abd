"""Commands beside tasks of running jobs: what they write, as it comes, and what they read."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from topmast.client.transport import Transport, path_of
from topmast.model.exec_views import ExecInput, ExecPage, ExecStarted

WAIT_S = 20.0
PIECE_BYTES = 64 * 1024
FULL_S = 0.2
"""How long input waits that a command does not read yet."""
Sink = Callable[[bytes], object]


class Source(Protocol):
    """Where input comes from: a file, or the like of it."""

    def read1(self, size: int, /) -> bytes:
        """What is there, at most so many bytes; empty at the end."""
        ...


class ExecResult(Struct, frozen=True):
    """How a command ended, with all that it wrote."""

    code: int
    stdout: bytes
    stderr: bytes
    error: str
    """Why it ended, if not by itself."""


class Execution:
    """A command that was begun beside a task. It is ended if the block is left before that."""

    def __init__(self, transport: Transport, started: ExecStarted) -> None:
        self.started = started
        self._transport = transport
        self._path = path_of("jobs", started.job, "exec", started.id)
        self._read = [0, 0]
        self._written = 0
        self._over = False

    def __enter__(self) -> Execution:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._over:
            self.end()

    def next(self, wait_s: float = WAIT_S) -> ExecPage:
        """What it has written since the last call, after so long at most; its code at the end."""
        page = self._transport.get(
            ExecPage, self._path, stdout=self._read[0], stderr=self._read[1], wait_s=wait_s
        )
        self._read = [page.stdout_next, page.stderr_next]
        self._over = page.code is not None
        return page

    def write(self, data: bytes, *, last: bool = False) -> None:
        """Give it input; returns when all of it was taken."""
        end = self._written + len(data)
        while True:
            piece = data[len(data) - (end - self._written) :][:PIECE_BYTES]
            whole = last and self._written + len(piece) == end
            answer = self._transport.send(
                "POST", f"{self._path}/input", content=piece,
                params={"offset": self._written, "last": str(whole).lower()},
                headers={"Content-Type": "application/octet-stream"},
            )  # fmt: skip
            before, self._written = self._written, self._transport.decoded(ExecInput, answer).next
            if self._written >= end or self._over:
                return
            if self._written == before:
                threading.Event().wait(FULL_S)

    def end(self) -> None:
        """Have it ended: SIGHUP, and SIGKILL soon after."""
        self._transport.send("POST", f"{self._path}/end", content=b"")

    def forget(self) -> None:
        """There is nothing to end any more."""
        self._over = True

    def run(self, stdout: Sink, stderr: Sink, stdin: Source | None = None) -> ExecPage:
        """Pass all through until it ends; its last page has the code.

        Without ``stdin`` its input is empty.
        """
        if stdin is None:
            self.write(b"", last=True)
        else:
            threading.Thread(target=self._feed, args=(stdin,), daemon=True).start()
        while True:
            page = self.next()
            if page.stdout:
                stdout(page.stdout)
            if page.stderr:
                stderr(page.stderr)
            if page.code is not None:
                return page

    def _feed(self, source: Source) -> None:
        from topmast.model.errors import TopmastError

        try:
            while data := source.read1(PIECE_BYTES):
                self.write(data)
            self.write(b"", last=True)
        except (TopmastError, OSError, ValueError):
            return  # it has ended, or there is nothing to read any more


class ExecCalls:
    """The methods of a client about commands beside tasks."""

    _transport: Transport

    def start_command(
        self, job: str, command: Sequence[str], *, task: int = 0, tty: bool = False,
        rows: int = 24, columns: int = 80,
    ) -> Execution:  # fmt: skip
        """Begin a command beside a task of a running job, and talk with it while it runs."""
        body = {
            "command": list(command), "task": task, "tty": tty, "rows": rows, "columns": columns,
        }  # fmt: skip
        answer = self._transport.send(
            "POST", path_of("jobs", job, "exec"), content=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"}, repeatable=False,
        )  # fmt: skip
        return Execution(self._transport, self._transport.decoded(ExecStarted, answer))

    def execute(
        self, job: str, command: Sequence[str], *, task: int = 0, stdin: bytes = b""
    ) -> ExecResult:
        """Run a command beside a task of a running job: on its host, in its folder.

        ``command``: the program and its arguments, which no shell reads.
        """
        out, err = bytearray(), bytearray()
        with self.start_command(job, command, task=task) as running:
            page = running.run(out.extend, err.extend, io.BytesIO(stdin))
        assert page.code is not None
        return ExecResult(page.code, bytes(out), bytes(err), page.error)
