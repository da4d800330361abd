"""The processes of parts on a host, found by what their environment says.

It is sent to hosts with `remote`: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

PROC = "/proc"
MARK = "TOPMAST_PART"
"""Names a part in the environment of all its processes."""
PLACE = "TOPMAST_PLACE"
"""And tells fleet, host, id and time of submission, should its folder be deleted."""
KILL_ROUNDS = 50
SETTLE_S = 0.02


def variable(pid: int, name: str) -> str:
    """What a variable of a process was when that began; empty: it has none, or is gone."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    start = f"{name}=".encode()
    found = (os.fsdecode(one[len(start) :]) for one in variables if one.startswith(start))
    return next(found, "")


def processes() -> dict[str, list[int]]:
    """Those of parts, by the name of the part."""
    found: dict[str, list[int]] = {}
    for name in os.listdir(PROC):  # noqa: PTH208
        part = variable(int(name), MARK) if name.isdigit() else ""
        if part:
            found.setdefault(part, []).append(int(name))
    return found


def parents() -> dict[int, int]:
    """The parent of each process that is not dead."""
    found = {}
    for name in os.listdir(PROC):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{name}/stat").read_bytes()
                fields = text[text.rindex(b")") + 2 :].split()
                if fields[0] not in b"ZX":
                    found[int(name)] = int(fields[1])
    return found


def send(pids: list[int], number: int) -> None:
    """Signal each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill(name: str) -> None:
    """End everything of a part: the tasks first, the runner that would lose sight of them last."""
    for round_ in range(KILL_ROUNDS):
        parent_of = parents()
        own = set(processes().get(name, ()))
        tree = {pid for pid in parent_of if own.intersection(_line(pid, parent_of))}
        if not tree:
            return
        runners = {pid for pid in tree if b"/runner-" in command(pid)}
        tasks = sorted(tree - runners)
        if not tasks or round_ > KILL_ROUNDS // 2:
            tasks = sorted(tree)
        send(tasks, signal.SIGKILL)
        time.sleep(SETTLE_S)


def _line(pid: int, parent_of: dict[int, int]) -> Iterator[int]:
    while pid in parent_of:
        yield pid
        pid = parent_of[pid]


def command(pid: int) -> bytes:
    """Its arguments, as one text with NULs between them."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def began(pid: int) -> str:
    """When it began, in ticks since the boot: with its number, no other has that."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    return text[text.rindex(b")") + 2 :].split()[19].decode()
