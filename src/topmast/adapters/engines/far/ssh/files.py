"""Files and folders of a host: ours alone, written as a whole, and read whatever a job put there.

It is sent to hosts with `remote`: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from topmast.adapters.engines.far.ssh.machine import Json, Refused

MOST_BYTES = 1 << 20
"""Of a file, more than any of ours has."""
NO_FILE = (errno.ENOENT, errno.ENXIO, errno.ELOOP, errno.EISDIR, errno.EACCES)
"""How what is no file of ours, and not to be read or locked, says so."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
"""How a disk says that it takes nothing now."""
MUTEX_S = 3.0
"""How long a request waits for those of other connections, which take far less each."""


def private_folder(folder: Path) -> Path:
    """Make a folder that only this account can use. Raises Refused when others can write there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        why = "a file has its place" if folder.exists() else os.strerror(error.errno or 0)
        raise Refused(f"option folder: {folder} cannot be made: {why}") from None
    seen = folder.stat()
    if seen.st_uid != os.getuid() or seen.st_mode & 0o022:
        raise Refused(f"{folder} can be changed by others: `chmod 700` it, or set option `folder`")
    return folder


def hindrance(folder: Path) -> str:
    """Why `private_folder` would fail, as far as that can be told while nothing is made; else
    nothing.
    """
    there = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    if there == folder and folder.is_dir():
        try:
            private_folder(folder)
        except Refused as error:
            return str(error)
    if not there.is_dir():
        return f"option folder: {folder} cannot be made: {there} is no folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"option folder: {folder} cannot be made: the account may not write to {there}"
    room = os.statvfs(there)
    if not (room.f_bavail if os.geteuid() else room.f_bfree):
        return f"option folder: the disk with {there} is full: make room, or name another folder"
    return ""


def inner_folder(folder: Path) -> Path:
    """The same within a folder of ours: what is no folder there was put there by a job."""
    if os.path.lexists(folder) and not folder.is_dir():
        remove(folder)
    return private_folder(folder)


def write(file: Path, text: str) -> None:
    """A new file, as a whole and durably, for our eyes only."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(number, "w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        put(draft, file)
    except OSError:
        draft.unlink()
        raise
    sync(file.parent)


def put(draft: Path, file: Path) -> None:
    """Give a new file its name, also where a job has made a folder of that name."""
    if file.is_dir() and not file.is_symlink():
        remove(file)
    draft.replace(file)


def sync(path: Path) -> None:
    """Have the names in a folder, or what is in a file, on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def read(file: Path) -> str:
    """The end of a file, at once; empty without one. A job may put a pipe or a device there."""
    try:
        number = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in NO_FILE:
            return ""
        raise
    try:
        seen = os.fstat(number)
        if not stat.S_ISREG(seen.st_mode):
            return ""
        said = os.pread(number, MOST_BYTES, max(0, seen.st_size - MOST_BYTES))
        return said.decode(errors="replace")
    finally:
        os.close(number)


def document(file: Path) -> Json:
    """The object that a file has; an empty one when it was deleted or damaged."""
    try:
        found = json.loads(read(file))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def identity(part: Path) -> Json:
    """Which part a folder is of; empty when it does not say so any more."""
    found = document(part / "part.json")
    return found if {"id", "submitted_s", "runner"} <= found.keys() else {}


@contextlib.contextmanager
def alone(file: Path) -> Iterator[None]:
    """Nothing else that takes the same lock runs meanwhile: connections may overlap.

    Jobs have the account, so one of them may hold it for ever, or put something else there. That is
    removed; what must not be done twice has a lock of its own.
    """
    number = _locked(file)
    if number is None:
        remove(file)
        number = _locked(file)
    try:
        yield
    finally:
        if number is not None:
            os.close(number)


def _locked(file: Path) -> int | None:
    """A descriptor that holds the lock; None when it cannot be had. Raises FileNotFoundError."""
    try:
        number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ENOENT or error.errno not in NO_FILE:
            raise
        return None
    until_s = time.monotonic() + MUTEX_S
    while True:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < until_s:
                time.sleep(0.01)
                continue
            os.close(number)
            return None
        return number


def remove(path: Path) -> None:
    """Remove what has the place of something of ours, whatever it is."""
    gone = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with contextlib.suppress(FileNotFoundError):
        path.rename(gone)
        if gone.is_dir() and not gone.is_symlink():
            shutil.rmtree(gone, ignore_errors=True)
        else:
            gone.unlink()


def lock(part: Path, make: int = 0) -> int | None:
    """A descriptor that holds the lock of a part; None when its runner holds it.

    ``make`` is `os.O_CREAT`, or 0: FileNotFoundError without the file.
    """
    number = os.open(part / "lock", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | make, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        return None
    return number
