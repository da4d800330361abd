"""Pairs: gangs that a plan put on the same GPUs at the same time (Gavel, OSDI '20: space sharing).

Nobody takes turns here: both run. The manager tells, of both, beside whom they are, and when one is alone again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from msgspec import UNSET

from topmast.fast.cluster.attempt import Attempt
from topmast.fast.cluster.facts import Closed, Opened
from topmast.fast.cluster.machine import ClusterManager
from topmast.fast.machine import Fact
from topmast.model import messages as m

TOGETHER = "its round has both on the same GPUs"
ALONE = "the other is over"


class PairedManager(ClusterManager):
    """A cluster manager that knows who was launched on whose GPUs."""

    def _launch(self, event: m.LaunchGang) -> None:
        super()._launch(event)
        attempt = self._attempt(event.job, event.epoch)
        other = None if attempt is None else self._other(attempt)
        if attempt is not None and other is not None:
            self._tell(m.AttemptPacked(attempt.job, attempt.epoch, other.job, TOGETHER))
            self._tell(m.AttemptPacked(other.job, other.epoch, attempt.job, TOGETHER))

    def _close(self, attempt: Attempt) -> None:
        other = self._other(attempt)
        super()._close(attempt)
        if other is not None:
            self._tell(m.AttemptPacked(other.job, other.epoch, "", ALONE))

    def _other(self, attempt: Attempt) -> Attempt | None:
        """Who has the same GPUs by its plan."""
        return self.state.attempts.get(attempt.beside) if attempt.beside else None

    def _apply_opened(self, fact: Opened, event: m.LaunchGang) -> None:
        super()._apply_opened(fact, event)
        attempt = self.state.attempts[event.job]
        other = self.state.attempts.get(event.beside) if event.beside else None
        if other is not None:
            attempt.beside, other.beside = other.job, attempt.job

    def _apply_closed(self, fact: Closed, event: m.Message) -> None:
        other = self._other(self.state.attempts[fact.job])
        if other is not None:
            other.beside = UNSET
        super()._apply_closed(fact, event)

    handlers: ClassVar[dict[type[m.Message], Callable[..., Any]]] = {
        **ClusterManager.handlers,
        m.LaunchGang: _launch,
    }
    appliers: ClassVar[dict[type[Fact], Callable[..., None]]] = {
        **ClusterManager.appliers,
        Opened: _apply_opened,
        Closed: _apply_closed,
    }
