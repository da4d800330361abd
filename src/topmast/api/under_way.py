"""How many requests of one account may be under way: each holds a connection to its answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from topmast.model.access import Caller
from topmast.model.errors import TooMany

MOST_OF_ONE = 128
"""Requests of one account at a time."""
FEW_OF_ONE = 16
"""The same, while all accounts together have half of all connections: however many accounts wait
for whatever, the others get in."""


class UnderWay:
    """Counts the requests that are not answered yet; used on the event loop alone."""

    def __init__(self, connections: int) -> None:
        """``connections``: how many the process serves at a time."""
        self._crowded = connections // 2
        self._all = 0
        self._of: Counter[str] = Counter()

    @contextmanager
    def one(self, caller: Caller | None) -> Iterator[None]:
        """One request, until it is answered. Raises TooMany. O(1)."""
        if caller is None or caller.principal.trusted:
            yield
            return
        name = caller.principal.subject
        most = MOST_OF_ONE if self._all < self._crowded else FEW_OF_ONE
        if self._of[name] >= most:
            why = f"{self._of[name]} requests of {name} are under way, and {most} may be"
            raise TooMany(why, 1.0)
        self._all += 1
        self._of[name] += 1
        try:
            yield
        finally:
            self._all -= 1
            self._of[name] -= 1
            if not self._of[name]:
                del self._of[name]
