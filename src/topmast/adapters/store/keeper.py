"""What a leader does beside deciding: it proves that it leads, and forgets what is too old."""

from __future__ import annotations

import threading
from collections.abc import Callable

from topmast.adapters.store.journal import SqlJournal
from topmast.adapters.store.months import month_start_s
from topmast.adapters.store.retention import HOUR_S

LOOK_S = 0.25
JOBS_AT_ONCE = 500
"""Forgotten in one transaction: commits of others wait for it."""
PAUSE_S = 0.2
"""Between two of these transactions."""


class Keeper:
    """A thread that renews the lease of a journal, each second that nothing else is written.

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


class Sweeper:
    """A thread of the leader that forgets, each hour, the jobs that ended too many months ago.

    ``lost`` is called, from that thread, when it cannot.
    """

    def __init__(
        self,
        journal: SqlJournal,
        months: int,
        now: Callable[[], float],
        lost: Callable[[BaseException], object],
    ) -> None:
        self._journal = journal
        self._months = months
        self._now = now
        self._lost = lost
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                before_s = month_start_s(self._now(), self._months)
                while self._journal.forget(before_s, JOBS_AT_ONCE):
                    if self._closed.wait(PAUSE_S):
                        return
                self._closed.wait(HOUR_S)
        except BaseException as error:
            if not self._closed.is_set():
                self._lost(error)

    def close(self) -> None:
        """Forget no more; to be called before the journal is closed."""
        self._closed.set()
        self._thread.join()
