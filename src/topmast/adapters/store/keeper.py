"""A leader that has nothing to write proves all the same, each second, that it leads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from topmast.adapters.store.journal import SqlJournal

LOOK_S = 0.25


class Keeper:
    """A thread that renews the lease of a journal while nothing else does.

    ``lost`` is called, from that thread, when it cannot be renewed.
    """

    def __init__(self, journal: SqlJournal, lost: Callable[[BaseException], object]) -> None:
        self._journal = journal
        self._lost = lost
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        if journal.must_renew:
            self._thread.start()

    def _run(self) -> None:
        try:
            while not self._closed.wait(LOOK_S):
                self._journal.renew()
        except BaseException as error:
            if not self._closed.is_set():
                self._lost(error)

    def close(self) -> None:
        """Renew no more; to be called before the journal is closed."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
