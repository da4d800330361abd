"""What uploaded work folders may take of the server's disk and of its database."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from topmast.model.errors import Full
from topmast.model.units import format_bytes
from topmast.ports import ActFilter, Journal

MOST_KEPT_BYTES = 100 * 1024**3
"""All work folders that are kept, unless the server was told another bound."""
LEAST_FREE_BYTES = 1024**3
"""So much of a disk is left to the journal and to the output of tasks,"""
LEAST_FREE_PART = 20
"""but of a small disk one part of so many."""
MOST_UPLOADS = 1_000_000
"""Of more uploads the oldest count for no account."""


class Room:
    """Counts the work folders that are kept. Safe to use from any thread.

    The room is what is kept, and what may come: up to ``most_bytes``, and as long as the disk has
    more free than its floor. One principal may have half of it, so that others can go on.
    ``load`` tells how long each kept folder is, by digest.
    """

    def __init__(self, root: Path, load: Callable[[], dict[str, int]]) -> None:
        self.most_bytes = MOST_KEPT_BYTES
        self.owners: Callable[[], Iterable[tuple[str, str]]] = tuple
        """The principal and the digest of each upload of earlier servers; asked once."""
        self._root = root
        self._load = load
        self._kept: dict[str, int] | None = None
        self._coming: dict[str, int] = {}
        """Those that are being written: not yet in what `_load` finds."""
        self._of: dict[str, dict[str, None]] | None = None
        self._lock = threading.Lock()

    @contextmanager
    def for_one(self, digest: str, size_bytes: int, owner: str) -> Iterator[None]:
        """Room for a folder that is written within. Raises Full."""
        with self._lock:
            self._take(digest, size_bytes, owner)
        try:
            yield
        finally:
            with self._lock:
                del self._coming[digest]

    def _take(self, digest: str, size_bytes: int, owner: str) -> None:
        if self._kept is None or self._fault(size_bytes, owner):
            self._kept = {**self._load(), **self._coming}  # some were removed, or not written
        fault = self._fault(size_bytes, owner)
        if fault:
            raise Full(f"the server does not take this work folder: {fault}")
        self._kept[digest] = self._coming[digest] = size_bytes
        if owner:
            self._owned(owner)[digest] = None

    def _fault(self, size_bytes: int, owner: str) -> str:
        """Why there is no room; empty if there is. O(folders of the owner)."""
        assert self._kept is not None
        kept_bytes = sum(self._kept.values())
        disk = shutil.disk_usage(self._root)
        least_bytes = min(LEAST_FREE_BYTES, disk.total // LEAST_FREE_PART)
        spare_bytes = disk.free - sum(self._coming.values()) - least_bytes
        if size_bytes > spare_bytes:
            remedy = "ask for more room for the state folder of the server"
            return f"its disk would have less than {format_bytes(least_bytes)} free ({remedy})"
        if kept_bytes + size_bytes > self.most_bytes:
            kept, most = format_bytes(kept_bytes), format_bytes(self.most_bytes)
            remedy = "ask for old ones to be removed, or for more: topmast up --keep-workdirs"
            return f"it keeps {kept} of at most {most} ({remedy})"
        most_own_bytes = min(self.most_bytes, kept_bytes + spare_bytes) // 2
        own_bytes = sum(self._kept.get(one, 0) for one in self._owned(owner)) if owner else 0
        if owner and own_bytes + size_bytes > most_own_bytes:
            own, most = format_bytes(own_bytes), format_bytes(most_own_bytes)
            remedy = "leave out what the job does not need, or ask for old ones to be removed"
            return f"it keeps {own} of {owner}, of at most {most} for one account ({remedy})"
        return ""

    def _owned(self, owner: str) -> dict[str, None]:
        if self._of is None:
            self._of = {}
            for name, digest in self.owners():
                self._of.setdefault(name, {})[digest] = None
        return self._of.setdefault(owner, {})


def uploads(journal: Journal) -> Iterator[tuple[str, str]]:
    """The principal and the digest of each upload that the audit log has. O(the log)."""
    for act in journal.acts(ActFilter(verb="upload", outcome="done", limit=MOST_UPLOADS)):
        yield act.actor, act.object
