"""Grows the trees by which durations are predicted, in a thread: it takes seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from topmast.model import messages as m
from topmast.predict.growing import answer

log = structlog.get_logger(__name__)


class Grower:
    """Carries out the queue's orders to grow a tree, one at a time; ``post`` returns the tree."""

    def __init__(self, post: Callable[[m.Message], None]) -> None:
        self._post = post

    def order(self, message: m.GrowTree) -> None:
        """Begin to grow a tree; returns at once. The thread ends with the process."""
        threading.Thread(
            target=self._grow, args=(message,), name="topmast-grower", daemon=True
        ).start()

    def _grow(self, message: m.GrowTree) -> None:
        try:
            tree = answer(message)
        except Exception as error:  # predictions go on by the tree that there is
            log.error("no tree could be grown for predictions of durations", exc_info=error)
            return
        self._post(m.TreeGrown(tree))
