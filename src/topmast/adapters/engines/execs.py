"""Commands beside tasks, as an engine holds them: what they wrote, and what they are to read.

The command itself is kept by a process on the host of the task, `far/runner/execs.py`, which brings
here what the command writes, and fetches what is typed.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator

from topmast.model.errors import TooMany
from topmast.model.exec_views import ExecPage, ExecSpec

STDOUT, STDERR = 1, 2
KEPT_BYTES = 1 << 20
"""Of each stream, until it is read: a command that writes more waits. Of its input, as much again
is with its keeper."""
MOST_AT_ONCE = 32
"""In one cluster."""
PATIENCE_S = 60.0
"""A command that is not asked about for so long is ended: its user is gone."""
STARTS_WITHIN_S = 60.0
"""A command that has not begun by then never does."""
NEVER_RAN = 255
"""The exit code of a command that did not begin, or of which the end is not known."""


class Kept:
    """Bytes of a stream from an offset on."""

    def __init__(self) -> None:
        self.begin = 0
        self.data = bytearray()

    @property
    def end(self) -> int:
        """The offset of the next byte."""
        return self.begin + len(self.data)

    def add(self, offset: int, data: bytes) -> int:
        """Append what is new of a piece, as far as there is room; returns the end."""
        new = data[max(0, self.end - offset) :] if offset <= self.end else b""
        self.data += new[: KEPT_BYTES - len(self.data)]
        return self.end

    def read(self, offset: int, most_bytes: int) -> bytes:
        """From an offset on, and forget what is before it."""
        past = min(max(0, offset - self.begin), len(self.data))
        del self.data[:past]
        self.begin += past
        return bytes(self.data[:most_bytes])


class LiveExec:
    """One command: `ports.Exec`, and what the process that keeps it needs. Safe for any thread."""

    look_s = 0.0

    def __init__(self, spec: ExecSpec) -> None:
        self.spec = spec
        self.ended = False
        """It is to end."""
        self.heard = False
        """Its keeper has come."""
        self._id = secrets.token_hex(16)
        self._changed = threading.Condition()
        self._out = {STDOUT: Kept(), STDERR: Kept()}
        self._input = Kept()
        self._taken = 0
        """Bytes of its input that the command took, as far as its keeper said."""
        self._input_is_whole = False
        self._code: int | None = None
        self._error = ""
        self._asked_s = self._made_s = time.monotonic()
        self._bells: list[Callable[[], None]] = []

    # --- its user -------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Tells it from all others."""
        return self._id

    def page(self, stdout: int, stderr: int, most_bytes: int) -> ExecPage:
        """What it has written."""
        with self._changed:
            self._asked_s = time.monotonic()
            kept, kept_err = self._out[STDOUT], self._out[STDERR]
            out, err = kept.read(stdout, most_bytes), kept_err.read(stderr, most_bytes)
            out_next, err_next = kept.begin + len(out), kept_err.begin + len(err)
            self._changed.notify_all()
            if self._code is None or (out_next, err_next) != (kept.end, kept_err.end):
                return ExecPage(out, err, out_next, err_next)
            return ExecPage(out, err, out_next, err_next, self._code, self._error)

    def write(self, offset: int, data: bytes, *, last: bool) -> int:
        """Give it input."""
        with self._changed:
            self._asked_s = time.monotonic()
            end = self._input.add(offset, data)
            self._input_is_whole = self._input_is_whole or (last and end == offset + len(data))
            self._ring()
            return end

    def end(self) -> None:
        """Have it ended; one that has not begun is over at once."""
        with self._changed:
            self.ended = True
            if not self.heard:
                self._finish(NEVER_RAN, "it was ended before it began")
            self._ring()

    def on_news(self, bell: Callable[[], None]) -> None:
        """Ring once, when something changes."""
        with self._changed:
            self._bells.append(bell)

    # --- its keeper -----------------------------------------------------------------------------

    def may_begin(self) -> bool:
        """Asked before it runs: whether it is to run still. Then it counts as begun."""
        with self._changed:
            self._judge()
            self.heard = self.heard or not self.ended
            return not self.ended

    def add(self, stream: int, offset: int, data: bytes) -> int:
        """Take what it wrote, as far as there is room; returns the end of what was taken."""
        with self._changed:
            self.heard = True
            before = self._out[stream].end
            end = self._out[stream].add(offset, data)
            if end > before:
                self._ring()
            return end

    def add_all(self, stream: int, data: bytes) -> None:
        """Take all of what it wrote; waits for room."""
        with self._changed:
            self.heard = True
        begin = offset = self._out[stream].end
        while offset < begin + len(data):
            taken = self.add(stream, offset, data[offset - begin :])
            if taken == offset and self.over:
                return
            offset = taken
            with self._changed:
                if offset < begin + len(data):
                    self._changed.wait(1.0)

    def input(self, offset: int) -> tuple[bytes, bool]:
        """What it is to read from an offset on, and whether that is all.

        No more than its keeper has room for.
        """
        with self._changed:
            self.heard = True
            data = self._input.read(offset, self._room(offset))
            return data, self._input_is_whole and offset + len(data) == self._input.end

    def wait_input(self, offset: int, timeout_s: float, *, knows_whole: bool) -> tuple[bytes, bool]:
        """The same, once there is something new to tell or the time is over."""

        def is_new() -> bool:
            if self._input.end > offset:
                return self._room(offset) > 0 or self.over
            return (self._input_is_whole and not knows_whole) or self.over

        with self._changed:
            self._input.read(offset, 0)  # what its keeper has makes room for what is typed
            self._changed.wait_for(is_new, timeout_s)
        return self.input(offset)

    def took(self, offset: int) -> None:
        """The command has taken its input up to an offset: its keeper has room for more."""
        with self._changed:
            self._taken = max(self._taken, offset)
            self._ring()

    def _room(self, offset: int) -> int:
        """Bytes that its keeper may be given, which has all up to an offset."""
        return max(0, self._taken + KEPT_BYTES - offset)

    def finish(self, code: int, error: str = "") -> None:
        """It has ended, and written all."""
        with self._changed:
            self._finish(code, error)

    def _finish(self, code: int, error: str) -> None:
        if self._code is None:
            self._code, self._error, self.ended = code, error, True
            self._ring()

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self._code is not None

    @property
    def over(self) -> bool:
        """Whether it has ended, or is to: nothing more is given to it."""
        with self._changed:
            self._judge()
            return self.ended

    def _judge(self) -> None:
        now_s = time.monotonic()
        if now_s - self._asked_s > PATIENCE_S:
            self.ended = True
        if not self.heard and now_s - self._made_s > STARTS_WITHIN_S:
            self._finish(NEVER_RAN, "its host did not begin it in time")

    def _ring(self) -> None:
        """Under the lock: wake all that wait."""
        self._changed.notify_all()
        bells, self._bells = self._bells, []
        for bell in bells:
            bell()


class Execs:
    """The commands of one cluster."""

    def __init__(self) -> None:
        self._known: dict[str, LiveExec] = {}
        self._lock = threading.Lock()

    def begin(self, spec: ExecSpec) -> LiveExec:
        """A new one. Raises TooMany."""
        with self._lock:
            self._known = {id: one for id, one in self._known.items() if not self._is_gone(one)}
            if len(self._known) >= MOST_AT_ONCE:
                raise TooMany(f"{MOST_AT_ONCE} commands run beside tasks of this cluster", 5.0)
            made = LiveExec(spec)
            self._known[made.id] = made
            return made

    @staticmethod
    def _is_gone(one: LiveExec) -> bool:
        return one.over and one.finished

    def get(self, id: str) -> LiveExec | None:
        """One by its id."""
        return self._known.get(id)

    def of_attempt(self, job: str, epoch: int) -> Iterator[LiveExec]:
        """Those beside tasks of an attempt that have not ended."""
        return (x for x in self.running() if (x.spec.job, x.spec.epoch) == (job, epoch))

    def running(self) -> list[LiveExec]:
        """Those that have not ended."""
        return [one for one in list(self._known.values()) if not one.finished]

    def close(self) -> None:
        """End all."""
        for one in list(self._known.values()):
            one.end()
            one.finish(NEVER_RAN, "the server that it ran through has ended")
