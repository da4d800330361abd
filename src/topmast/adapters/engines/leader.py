"""Which leaders may still order an engine: none that a later one has replaced."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from topmast.adapters.engines.local import files
from topmast.model.errors import Unavailable

log = structlog.get_logger(__name__)


UNLED_S = 0.05
"""How often an engine asks again whether its process leads."""
FILE = "leader"
LOCK = "leader.lock"
PATIENCE_S = 0.3
"""So long may an order of the leader before take, when a new one gives its first. A process that
was halted in the middle of an order would hold the new leader up for ever: it is killed then.
"""
_POLL_S = 0.01
_FLOCK = "hhqqi4x"
"""`struct flock` of Linux: type, whence, start, length, pid."""


def highest_in(folders: Iterable[Path]) -> int:
    """The highest epoch that the engines of these folders remember; 0 if there is none."""
    return max((LeaderFence(folder).highest for folder in folders), default=0)


class LeaderFence:
    """Remembers the highest epoch of a leader in a file of the engine's folder.

    It is read with each order: two processes may have the folder at the same time, and the one
    that lost the leadership need not know it yet. While an order is carried out (`held`), no
    later leader can give its first one: else a process that is halted between the look and the
    effect would carry out an old order when it goes on.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._lock = folder / LOCK
        self._highest = 0
        self._admitted = 0
        """The highest epoch of an order that was admitted by this process."""
        self._fd = -1
        """Of the lock file; closed last, as that gives up the lock."""
        self._mutex = threading.Lock()
        """A lock of the file is the process's: it keeps no thread out."""

    @property
    def highest(self) -> int:
        """The epoch of the last leader that gave an order."""
        return max(self._highest, self._recorded())

    def admits(self, leader: int) -> bool:
        """Whether no later leader gave orders; a new one is remembered durably first."""
        try:
            return self._admits(leader)
        except OSError as error:
            log.error("no order of the new leader is accepted", leader=leader, why=str(error))
            return False

    def _admits(self, leader: int) -> bool:
        self._highest = self.highest
        if leader > self._highest:
            self._raise(leader)
        elif leader < self._highest:
            log.error(
                "an order of a leader that was replaced", leader=leader, highest=self._highest
            )
        if leader == self._highest:
            self._admitted = leader
        return leader == self._highest

    def take_over(self, leader: int) -> None:
        """Shut out all earlier leaders, before what they left is read.

        With 0 the first order does. Raises Unavailable if it cannot be done.
        """
        folder = self._file.parent
        try:
            self.open()
            admitted = not leader or self._admits(leader)
        except OSError as error:
            is_full = error.errno in files.NO_ROOM
            remedy = "make room on its disk" if is_full else "let this user write files there"
            raise Unavailable(
                f"leader {leader} cannot take over {folder}: {error.strerror or error}; {remedy}, "
                "and start again"
            ) from None
        if not admitted:
            raise Unavailable(
                f"leader {leader} cannot take over {folder}: the last one to order it is leader "
                f"{self.highest}"
            )

    def leads(self) -> bool:
        """Whether no later leader has given orders since; only `held` says that none begins to."""
        return int(os.pread(self.open(), 32, 0) or b"0") <= self._admitted

    def open(self) -> int:
        """Open the lock file, if it is not open; returns its descriptor."""
        if self._fd < 0:
            self._fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._fd

    def close(self) -> None:
        """Let go of the lock file; nothing is carried out any more."""
        with self._mutex:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Carry out what was admitted, unless a later leader has given orders since.

        As long as this lasts none can begin to.
        """
        with self._mutex:
            try:
                fcntl.lockf(self.open(), fcntl.LOCK_SH)
            except OSError as error:
                log.error("no order is carried out", why=str(error))
                yield False
                return
            try:
                yield self.leads()
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def _raise(self, leader: int) -> None:
        """Remember a new leader, once no order of an earlier one is under way."""
        files.make_folder(self._file.parent)
        with self._mutex:
            self._shut_out()
            try:
                if leader > self._recorded():
                    files.write_file(self._file, f"{leader}\n".encode())
                    # For `held`, which must not need to open a file: there may be too many.
                    os.pwrite(self._fd, f"{leader:>20}\n".encode(), 0)
                self._highest = self._recorded()
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def _shut_out(self) -> None:
        """Lock the file for this process alone. Raises OSError if another one does not let go."""
        fd, until_s = self.open(), time.monotonic() + PATIENCE_S
        while True:
            with suppress(BlockingIOError, PermissionError):
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            if time.monotonic() > until_s:
                self._kill_holder(fd)
                until_s = time.monotonic() + PATIENCE_S
            time.sleep(_POLL_S)

    def _kill_holder(self, fd: int) -> None:
        """End a process that carries out an order of an earlier leader, and does not get on."""
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
        if kind == fcntl.F_UNLCK:
            return
        if pid <= 0 or not self._has_open(pid):
            raise OSError(f"a process that cannot be seen from here (pid {pid}) holds {self._lock}")
        log.warning("a process of an earlier leader hangs in an order: it is killed", pid=pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _has_open(self, pid: int) -> bool:
        """Whether a process of this machine has the lock file: a number alone may be another's."""
        ours = self._lock.stat()
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                if os.path.samestat(file.stat(), ours):
                    return True
        return False

    def _recorded(self) -> int:
        content = files.read_bytes(self._file)
        text = "0" if content is None else content.decode(errors="replace").strip()
        if text.isascii() and text.isdecimal() and len(text) < 19:
            return int(text)
        log.error("not the epoch of a leader", file=str(self._file), found=text[:40])
        return 0
