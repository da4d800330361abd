"""Deletions that the mover has not carried out: until then no other dataset gets their folders."""

from __future__ import annotations

from collections.abc import Iterable

from topmast.fast.timers import Timers
from topmast.model.dataset import Deletion, overlap

RETRY_DELETION_S = 30.0
"""How long a failed deletion is not tried again."""

Key = tuple[str, str]
"""A region, and a path in its store."""


class Deletions:
    """Open deletions. The time of a retry is working memory: after a start all are ordered."""

    def __init__(self, found: Iterable[Deletion] = ()) -> None:
        self._open: dict[Key, Deletion] = {(d.region, d.path): d for d in found}
        self.retries: Timers[Key] = Timers()

    def all(self) -> list[Deletion]:
        """Every open deletion, the oldest first."""
        return list(self._open.values())

    def get(self, region: str, path: str) -> Deletion | None:
        """The open deletion of exactly this folder."""
        return self._open.get((region, path))

    def begin(self, deletion: Deletion) -> None:
        """The mover is told to delete it."""
        self._open[deletion.region, deletion.path] = deletion

    def end(self, deletion: Deletion) -> None:
        """It is gone."""
        self._open.pop((deletion.region, deletion.path))
        self.retries.drop((deletion.region, deletion.path))

    def at(self, region: str, path: str) -> Deletion | None:
        """One that would take files at ``path`` in the region with it. O(open ones)."""
        for deletion in self._open.values():
            if deletion.region == region and overlap(deletion.path, path):
                return deletion
        return None

    def hinders(self, name: str, path: str) -> Deletion | None:
        """One because of which no dataset may have this name or path yet. O(open ones)."""
        for deletion in self._open.values():
            if deletion.dataset == name or overlap(deletion.path, path):
                return deletion
        return None

    def failed(self, deletion: Deletion, now: float) -> None:
        """Try it again, but not at once."""
        self.retries.set((deletion.region, deletion.path), now + RETRY_DELETION_S)

    def take_due(self, now: float) -> list[Deletion]:
        """Those to be tried again by now."""
        return [self._open[key] for key in self.retries.take_due(now)]
