"""Pairs: gangs that a plan put on the same GPUs at the same time (Gavel, OSDI '20: space sharing).

Both run all the time, without turns. The placer is told the partner of each, and when one is alone.
"""

from __future__ import annotations

from msgspec import UNSET

from topmast.fast.cluster.attempt import Attempt
from topmast.fast.cluster.gangs import GangLifecycle
from topmast.fast.cluster.hooks import GangHooks
from topmast.model import messages as m

TOGETHER = "its round has both on the same GPUs"
ALONE = "the other is over"


class JobPairs(GangHooks):
    """Knows which gang was launched on the GPUs of which."""

    def __init__(self, gangs: GangLifecycle) -> None:
        self._gangs = gangs

    def on_launched(self, attempt: Attempt) -> None:
        """Of both it is told that they are together."""
        other = self._other(attempt)
        if other is not None:
            tell = self._gangs.tell
            tell(m.AttemptPacked(attempt.job, attempt.epoch, other.job, TOGETHER))
            tell(m.AttemptPacked(other.job, other.epoch, attempt.job, TOGETHER))

    def on_closed(self, attempt: Attempt) -> None:
        """The other has the GPUs for itself."""
        other = self._other(attempt)
        if other is not None:
            self._gangs.tell(m.AttemptPacked(other.job, other.epoch, "", ALONE))

    def apply_opened(self, attempt: Attempt, event: m.LaunchGang) -> None:
        """The gang is beside the one that its plan names, if that has not ended."""
        other = self._gangs.state.attempts.get(event.colocated_with or "")
        if other is not None:
            attempt.colocated_with, other.colocated_with = other.job, attempt.job

    def apply_closed(self, attempt: Attempt) -> None:
        """The other is beside none."""
        other = self._other(attempt)
        if other is not None:
            other.colocated_with = UNSET

    def _other(self, attempt: Attempt) -> Attempt | None:
        """The gang that has the same GPUs by a plan."""
        return self._gangs.state.attempts.get(attempt.colocated_with or "")
