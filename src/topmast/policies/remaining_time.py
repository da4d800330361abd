"""Order `remaining-time` (SRTF): the job with the least time left first, whatever the band."""

from __future__ import annotations

from typing import ClassVar

from topmast.policies.base import Floats, QueueView
from topmast.policies.options import Profile


class RemainingTime:
    """By what is left of the run: work that was kept need not be done again."""

    source: ClassVar[str] = "Shortest remaining time first (Schrage, Operations Research 16, 1968)"
    options: ClassVar[tuple[str, ...]] = ("default_duration_s",)
    by_band = False
    by_time = False

    def __init__(self, profile: Profile) -> None:
        pass

    def keys(self, view: QueueView) -> Floats:
        """The time left (n x 1)."""
        return view.remaining_s[:, None]
