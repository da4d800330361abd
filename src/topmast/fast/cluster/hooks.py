"""Hooks for sharing GPUs: the lifecycle of gangs calls them, and knows none of them."""

from __future__ import annotations

from topmast.fast.cluster.attempt import Attempt
from topmast.model import messages as m


class GangHooks:
    """Called at the steps of a gang's life. As it stands here, it changes nothing."""

    def may_start(self, attempt: Attempt) -> bool:
        """Whether a gang that was launched is started now; else the hook starts it later."""
        return True

    def on_launched(self, attempt: Attempt) -> None:
        """A gang was launched, perhaps once more; it need not have started."""

    def on_up(self, attempt: Attempt) -> None:
        """One more task of a gang is up or over."""

    def may_stop(self, attempt: Attempt) -> bool:
        """Whether to tell a stopping gang's tasks now; else the hook sees to its end."""
        return True

    def on_closed(self, attempt: Attempt) -> None:
        """No task of a gang runs any more, and its end was reported."""

    def before_wake(self) -> None:
        """Time has come for something; deadlines have not been looked at."""

    def on_wake(self) -> None:
        """Time has come for something; what lasted too long was told to stop."""

    def next_wakeup_s(self) -> float | None:
        """When the hook has something to do next."""
        return None

    def on_recovered(self) -> None:
        """The process began anew; the engine was told again what starts and stops."""

    def apply_opened(self, attempt: Attempt, event: m.LaunchGang) -> None:
        """A fact: a gang was launched. Nothing is decided here."""

    def apply_closed(self, attempt: Attempt) -> None:
        """A fact: a gang is over; it is still among the attempts. Nothing is decided here."""
