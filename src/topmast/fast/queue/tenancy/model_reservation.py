"""GPU models that are kept for the jobs that need them: which may not use them, until when."""

from __future__ import annotations

from collections.abc import Sequence

from topmast.model.job import Accelerator
from topmast.policies.base import ReservePolicy


class ModelReservation:
    """Asks the policy `reserve`; without one every job may use every model."""

    def __init__(self, reserve: ReservePolicy | None, patience_s: float | None) -> None:
        self._reserve = reserve
        self._patience_s = patience_s
        self.is_anything = reserve is not None
        """Whether any model may be kept."""

    def wasted(
        self, listed: Sequence[Accelerator], gpus: float, waited_s: float
    ) -> tuple[int, ...]:
        """The accelerators that a job of so many GPUs may not use yet, having waited so long.

        O(accelerators).
        """
        if self._reserve is None or len(listed) < 2:
            return ()
        if self._patience_s is not None and waited_s >= self._patience_s:
            return ()
        return self._reserve.held_back(listed, gpus)

    def until_s(
        self, listed: Sequence[Accelerator], gpus: float, submit_s: float, now: float
    ) -> float | None:
        """When it may use them all; None if it may now, or never will."""
        if self._patience_s is None or not self.wasted(listed, gpus, now - submit_s):
            return None
        return submit_s + self._patience_s
