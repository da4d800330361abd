"""Which leader may still change a store: none that a later one has replaced.

A leader that was halted between its look at the clock and a change would carry the change out when
it goes on: delete an object of the replica that the next leader has put there, say. So the epoch of
the last leader that changed a store is in the store, and each change looks at it.

A folder also has a lock that is held from the look to the effect: see `LeaderFence`. Buckets have
no locks: of a leader that is halted there just between the two, one change may come late.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from topmast.adapters.engines.leader import LeaderFence

PLACE = "leaders"
"""The part of the hidden folder of a store with an entry for each database that leaders share."""


class Fence(Protocol):
    """Guards the changes of one store."""

    def held(self) -> AbstractContextManager[bool]:
        """Whether a change may be made, as long as this lasts."""
        ...

    def close(self) -> None:
        """Nothing is changed any more."""
        ...


class NoFence:
    """Only one process ever changes the store."""

    @contextmanager
    def held(self) -> Iterator[bool]:
        """It may."""
        yield True

    def close(self) -> None:
        """Nothing is held."""


class Term(Struct, frozen=True):
    """Of a leader: which among those of one database, by its epoch."""

    leaders: str
    """Tells the database from others: a restored one begins with lower epochs."""
    epoch: int


class FolderFence:
    """The fence of a folder. Threads of this process are let in together."""

    def __init__(self, hidden: Path, term: Term) -> None:
        self._leaders = LeaderFence(hidden / PLACE / term.leaders)
        self._epoch = term.epoch
        self._lock = threading.Lock()
        self._taken = False
        self._inside = 0
        self._leads = False
        self._let_go = ExitStack()

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Shut out earlier leaders with the first change; later ones wait until this is over."""
        with self._lock:
            if not self._inside:
                self._leads = self._enter()
            self._inside += 1
            leads = self._leads
        try:
            yield leads
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._let_go.close()

    def _enter(self) -> bool:
        if not self._taken:
            self._taken = self._leaders.admits(self._epoch)
        if not self._taken and self._leaders.highest <= self._epoch:
            raise OSError("the epoch of the leader cannot be written there")
        return self._taken and self._let_go.enter_context(self._leaders.held())

    def close(self) -> None:
        """Let go of the lock file."""
        with self._lock:
            self._taken = False
            self._leaders.close()


class Recorded(Struct, frozen=True):
    """What a bucket says of its leaders."""

    epoch: int
    """Of the last one that changed something."""


class BucketFence:
    """The fence of a bucket: an object with the epoch, which is read before each change."""

    def __init__(
        self,
        load: Callable[[str, type[Any]], Any],
        write: Callable[[str, Any], None],
        hidden: str,
        term: Term,
    ) -> None:
        """``load`` and ``write``: objects of the bucket by their keys, unfenced."""
        self._load = load
        self._write = write
        self._key = f"{hidden}/{PLACE}/{term.leaders}.json"
        self._epoch = term.epoch
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Whether no later leader has changed something. Raises `StoreError`."""
        found = self._recorded()
        if found < self._epoch:
            with self._lock:
                if self._recorded() < self._epoch:
                    self._write(self._key, Recorded(self._epoch))
                found = self._recorded()
        yield found == self._epoch

    def _recorded(self) -> int:
        found: Recorded | None = self._load(self._key, Recorded)
        return 0 if found is None else found.epoch

    def close(self) -> None:
        """Nothing is held."""
