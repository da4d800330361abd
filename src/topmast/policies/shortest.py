"""Order `shortest` (SJF): the job with the shortest expected run first, whatever the band."""

from __future__ import annotations

from typing import ClassVar

from topmast.policies.base import Floats, QueueView
from topmast.policies.options import Profile


class Shortest:
    """By the expected duration of the whole run: what a job has behind it does not count."""

    source: ClassVar[str] = "Shortest job first (Smith, Naval Research Logistics 3, 1956)"
    options: ClassVar[tuple[str, ...]] = ("default_duration_s",)
    by_band = False
    by_time = False

    def __init__(self, profile: Profile) -> None:
        pass

    def keys(self, view: QueueView) -> Floats:
        """The expected duration (n x 1)."""
        return view.duration_s[:, None]
