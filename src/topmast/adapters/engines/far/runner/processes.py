"""Processes of Linux: which descend from which, how to end them, and how ours talk."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterable
from typing import Any

MARK = "TOPMAST_TASK"
"""The variable by which processes of a task are known that lost their supervisor."""
ADDRESS = "TOPMAST_ADDRESS"
"""The variable in which a launcher may say how other hosts reach this one."""
TURN_S = 0.5
"""How often keeper and caller look at each other at least."""
RETRY_S = 0.05
LEFTOVER_GRACE_S = 2.0
OBEY_S = 2.0
"""How long after SIGKILL a supervisor may need to see that nothing is left."""
FROZEN_S = 15.0
"""A process that did not turn for so long stands still; with a short lease, for a quarter of it."""
PAGE_BYTES = 256 * 1024
SHIP_S = 0.1
CALL_S = 30.0
BACKOFF_S = 0.2
PATIENCE_S = 3600.0
"""How long home may be silent when there is no lease."""
REFUSED, NO_HOME = 3, 75
KEPT = "kept"
"""A file in the folder of an attempt: its host, the nonce of its runner, and when nothing was found
to hold the file any more. Its lock is held while the folder is in use.
"""
LEFT_S = 24 * 3600.0
LEFT_AT_ONCE = 4
"""So many folders that others left does a runner delete at its end, which its host waits for."""
HUNG_UP = (401, 404, 409, 410)
"""What home says to a runner that has no business here."""

Json = Any


def now_s() -> float:
    """A clock that runs on while the machine sleeps, and that is never set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its parent: none can leave the tree."""
    if ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def read_bytes(path: str) -> bytes:
    """What a file has."""
    with open(path, "rb") as file:
        return file.read()


def write_bytes(path: str, content: bytes) -> None:
    """Make or replace a file."""
    with open(path, "wb") as file:
        file.write(content)


def stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on; none without the process."""
    try:
        text = read_bytes("/proc/%d/stat" % pid)  # noqa: UP031
    except OSError:
        return []
    return text[text.rindex(b")") + 2 :].split()


def start_ticks(pid: int) -> int:
    """When a living process began, which tells it from a later one of its number; 0: it is dead."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in b"ZX" else 0


def all_pids() -> list[int]:
    """Every process there is."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(root: int) -> list[int]:
    """Processes below one; one that is forked meanwhile may be missing."""
    below: dict[int, list[int]] = {}
    for pid in all_pids():
        fields = stat_fields(pid)
        if fields and fields[0] not in b"ZX":
            below.setdefault(int(fields[1]), []).append(pid)
    found, queue = [], list(below.get(root, ()))
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += below.get(pid, ())
    return found


def marked(nonce: str) -> list[int]:
    """Processes that bear the mark of this runner's tasks in their environment."""
    mark = ("%s=%s." % (MARK, nonce)).encode()  # noqa: UP031
    found = []
    for pid in all_pids():
        with contextlib.suppress(OSError):
            if mark in read_bytes("/proc/%d/environ" % pid):  # noqa: UP031
                found.append(pid)
    return found


def send(pids: Iterable[int], number: int) -> None:
    """Signal each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def exit_code(status: int) -> int:
    """From what `waitpid` gives: 128 + N for signal N."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class Wire:
    """JSON lines over a socket to another process of ours."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.over = False
        """Whether the other process has closed its end: nothing more is to be waited for."""
        self._rest = b""
        self._lock = threading.Lock()

    def tell(self, **message: Json) -> None:
        """Send; a reader that is gone is noticed elsewhere."""
        with self._lock, contextlib.suppress(OSError):
            self.end.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> list[Json] | None:
        """What came; None when the other process is gone."""
        try:
            got = self.end.recv(1 << 20)
        except OSError:
            got = b""
        self.over = not got
        *lines, self._rest = (self._rest + got).split(b"\n")
        return [json.loads(line) for line in lines] if got else None


def fork(body: Any, keep: Iterable[int] = ()) -> tuple[int, Wire]:
    """A child that runs ``body(wire)`` and ends, and our end of the wire to it.

    It keeps none of our descriptors but the first three, and those that it is told to ``keep``: our
    death must end each wire.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, Wire(ours)
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) not in (theirs.fileno(), *keep):
                with contextlib.suppress(OSError):
                    os.close(int(name))
        status = body(Wire(theirs)) or 0
    except BaseException as error:
        os.write(2, ("topmast runner: %r\n" % error).encode(errors="replace"))  # noqa: UP031
    finally:
        os._exit(status)


def remove(folder: str) -> None:
    """Delete a folder with all that is in it, as far as we may."""
    with contextlib.suppress(OSError):
        os.waitpid(os.posix_spawnp("rm", ["rm", "-rf", "--", folder], os.environ), 0)
    if os.path.lexists(folder):  # there is no such program
        shutil.rmtree(folder, ignore_errors=True)


def hold_folder(folder: str, nonce: str) -> list[int]:
    """A lock that says that a folder is in use; tasks have it too. None where files have no locks.

    It is of the kernel, and ends with the last process that has it, however that ends.
    """
    number = os.open(folder + "/" + KEPT, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_SH)
        os.write(number, ("%s\n%s\n" % (os.uname().nodename, nonce)).encode())  # noqa: UP031
    except OSError:
        os.close(number)
        return []
    os.set_inheritable(number, True)
    return [number]


def remove_left(parent: str) -> None:
    """Delete what killed runners left of attempts on this host: a few folders at a time.

    Each stays for a day after its runner was killed, as people may want what is in it.
    """
    few = 0
    with contextlib.suppress(OSError):  # the folder cannot be listed
        for name in sorted(os.listdir(parent)):
            folder = os.path.join(parent, name)
            if few < LEFT_AT_ONCE and name.startswith("topmast-") and is_left(folder):
                few += 1
                remove(folder)


def is_left(folder: str) -> bool:
    """Whether an attempt of ours was on this host, and nothing of it was there a day ago, and now.

    The first runner that finds that nothing holds the folder notes the time in its file.
    """
    try:
        if os.path.islink(folder) or os.lstat(folder).st_uid != os.getuid():
            return False
        number = os.open(folder + "/" + KEPT, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # it is no such folder
        return False
    try:
        host, nonce, seen_s = os.read(number, 4096).decode().split("\n")
        if host != os.uname().nodename:
            return False
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not seen_s:
            os.write(number, ("%d" % time.time()).encode())  # noqa: UP031
            return False
        return time.time() - int(seen_s) >= LEFT_S and not marked(nonce)
    except (OSError, ValueError):  # something works in it
        return False
    finally:
        os.close(number)


def temporary() -> str:
    """The folder for temporary files, as `tempfile` has it, without its import where that is easy.

    Every import counts in an image without compiled modules.
    """
    usual = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108
    if os.access(usual, os.W_OK | os.X_OK):
        return usual
    return tempfile.gettempdir()
