"""Process trees of Linux: which processes descend from which, and how to end all of them.

Standard library only: supervisors, which must be small, use it too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
MARK = "TOPMAST_TASK"
"""The variable by which a process without a supervisor is known: the path of its task's claim."""

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)

PID_END = 1 << 22
"""No kernel gives this number to a process, nor any above."""


def _prctl(option: int, value: int | ctypes.c_char_p) -> None:
    if _libc.prctl(option, value, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def signal_on_parent_death(number: int) -> None:
    """Have this process sent a signal when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its parent: none can leave the tree."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: str) -> None:
    """The name that `ps` and `top` show."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()))


def boot_id() -> str:
    """Tells this run of the machine from all others."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """When a process began, in the kernel's count; tells it from a later one of the same number."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def has_ended(pid: int, started_ticks: int) -> bool:
    """Whether a process is gone: its number is free, reused, or kept for its parent to see."""
    fields = _stat(pid)
    return fields is None or int(fields[19]) != started_ticks or fields[0] in b"ZX"


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the state on."""
    try:
        text = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    return text[text.rindex(b")") + 2 :].split()  # the name before may contain anything


def namespace() -> str:
    """In which numbers of processes mean the same; empty where there is no telling."""
    try:
        return str((PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def identity(pid: int) -> dict[str, object]:
    """What names one process, also after its number was given to another."""
    return {"pid": pid, "start_ticks": start_ticks(pid), "boot": boot_id()}


def command_of(pid: int) -> list[str]:
    """The program of a process and its arguments; empty if it has ended."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(part) for part in text.split(b"\0")][:-1]


def pid_of(known: dict[str, object]) -> int | None:
    """The number in an identity, if a process can have it: tasks can write there."""
    pid = known.get("pid")
    return pid if type(pid) is int and 1 < pid < PID_END else None


def kill_if_same(known: dict[str, object]) -> None:
    """SIGKILL the process with this identity, and no other that has its number now."""
    send_if_same(known, signal.SIGKILL)


def wake_if_same(known: dict[str, object]) -> None:
    """SIGCONT to the process with this identity: it goes on, if it was halted."""
    send_if_same(known, signal.SIGCONT)


def is_stopped(known: dict[str, object]) -> bool:
    """Whether the process with this identity was halted by a signal or a debugger."""
    pid = pid_of(known)
    if pid is None or known.get("boot") != boot_id():
        return False
    fields = _stat(pid)
    return fields is not None and int(fields[19]) == known.get("start_ticks") and fields[0] in b"Tt"


def send_if_same(known: dict[str, object], number: int) -> None:
    """Signal the process with this identity, and no other that has its number now."""
    pid = pid_of(known)
    if pid is None or known.get("boot") != boot_id():
        return
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # Asked only now that the descriptor holds on to the process: it cannot be another's.
        if start_ticks(pid) == known.get("start_ticks"):
            signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(fd)


def numbers(folder: Path) -> list[int]:
    """The entries of a folder of /proc that are numbers: processes, threads, descriptors."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 -- a Path each, for every process, is too slow
    except OSError:
        return []
    return [int(name) for name in names if name.isdigit()]


def descendants(root: int) -> list[int]:
    """Processes below `root`, parents first; one that forks meanwhile may be missing."""
    found: list[int] = []
    queue = children(root)
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children(pid)
    return found


def children(pid: int) -> list[int]:
    """The children of all threads of a process."""
    found: list[int] = []
    for thread in numbers(PROC / str(pid) / "task"):
        try:
            text = (PROC / str(pid) / "task" / str(thread) / "children").read_bytes()
        except FileNotFoundError:
            if not _kernel_lists_children():
                return all_children(pid)
            continue
        except OSError:
            continue
        found += [int(word) for word in text.split()]
    return found


def _kernel_lists_children() -> bool:
    return (PROC / "self" / "task" / str(os.getpid()) / "children").exists()


def all_children(pid: int) -> list[int]:
    """As `children`, by looking at every process: slower, and misses none that stays."""
    found = []
    for other in numbers(PROC):
        fields = _stat(other)
        if fields and int(fields[1]) == pid:
            found.append(other)
    return found


def send(pids: Iterable[int], number: int) -> None:
    """Signal each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def marked(claims: set[str]) -> list[int]:
    """Processes that bear the mark of one of these tasks in their environment."""
    marks = {f"{MARK}={claim}".encode() for claim in claims}
    prefix = f"{MARK}=".encode()
    found = []
    for pid in numbers(PROC):
        try:
            environ = (PROC / str(pid) / "environ").read_bytes()
        except OSError:
            continue
        if prefix in environ and not marks.isdisjoint(environ.split(b"\0")):
            found.append(pid)
    return found
