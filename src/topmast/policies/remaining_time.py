"""Order `remaining-time` (SRTF): the job with the least time left first, whatever the band."""

from __future__ import annotations

from topmast.policies.base import Floats, Profile, QueueView


class RemainingTime:
    """By what is left of the run: work that was kept need not be done again."""

    by_band = False
    by_time = False

    def __init__(self, profile: Profile) -> None:
        pass

    def keys(self, view: QueueView) -> Floats:
        """The time left (n x 1)."""
        return view.remaining_s[:, None]
