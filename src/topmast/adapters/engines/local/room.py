"""Whether the engine can write its files: while it cannot, its cluster takes no new work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from topmast.adapters.engines.closings import Closings
from topmast.adapters.engines.local import files
from topmast.model.messages import HostClosed, HostOpened

LOOK_S = 2.0


class Room:
    """Closes the hosts after a write that failed, and opens them when writes succeed again.

    All hosts are of one machine, and use the same folders. Belongs to the engine's thread.
    """

    def __init__(
        self, folders: tuple[Path, ...], hosts: Callable[[], Iterable[str]], closings: Closings
    ) -> None:
        self._folders = folders
        self._hosts = hosts
        self._closings = closings
        self._told: list[str] = []
        self.why = ""
        """Why no host takes new work; empty: all do."""
        self.next_s: float | None = None
        """When to look again, by the monotonic clock."""

    def failed(self, error: OSError) -> None:
        """A write failed: that may be the disk's fault, or have another cause."""
        if not self.why:
            self._shut(self._fault() or self._of(self._folders[0], error))

    def look(self) -> None:
        """Something failed, perhaps for the disk."""
        if not self.why:
            self._shut(self._fault())

    def tick(self) -> bool:
        """Look again if it is time to; whether the hosts were opened just now."""
        if self.next_s is None or self.next_s > time.monotonic():
            return False
        self.next_s = time.monotonic() + LOOK_S
        if self._fault():
            return False
        self.why, self.next_s = "", None
        for host in self._told:
            self._closings.post(HostOpened(host))
        return True

    def tell(self) -> None:
        """Say it of all hosts, also of new ones."""
        self._told = list(self._hosts()) if self.why else []
        for host in self._told:
            self._closings.post(HostClosed(host, self.why))

    @property
    def closed(self) -> dict[str, str]:
        """Why which hosts take no new work."""
        return dict.fromkeys(self._hosts(), self.why) if self.why else {}

    def _shut(self, why: str) -> None:
        if why:
            self.why, self.next_s = why, time.monotonic() + LOOK_S
            self.tell()

    def _fault(self) -> str:
        for folder in self._folders:
            error = files.write_fault(folder)
            if error is not None:
                return f"{folder} cannot be written: {error.strerror}"
        return ""

    def _of(self, folder: Path, error: OSError) -> str:
        is_disk = error.errno in files.UNWRITABLE
        return f"{folder} cannot be written: {error.strerror}" if is_disk else ""
