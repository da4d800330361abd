"""One process at a time owns a state directory: a lock file, held until the process ends."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from topmast.model.errors import Conflict

# A POSIX lock belongs to the process, and is not inherited by forked children: tasks that outlive
# the server do not keep it. The price: it cannot see a second owner in this process. This set does.
_OWNED_HERE: set[Path] = set()


class OwnerLock:
    """An exclusive lock on ``path``; raises `Conflict` naming the owner when there is one."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        # Looked up first: to close another descriptor of the file would drop this process's lock.
        if self._path in _OWNED_HERE:
            raise Conflict(f"{self._path.parent} is in use by this process (pid {os.getpid()})")
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise Conflict(
                f"{self._path.parent} is in use by another process (pid {owner}): "
                f"stop it first, or name another state directory"
            ) from error
        _OWNED_HERE.add(self._path)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Let the next owner in. The file stays: to unlink it would race with that owner."""
        if self._path in _OWNED_HERE:
            _OWNED_HERE.discard(self._path)
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
