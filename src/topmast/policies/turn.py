"""Order `turn` (Gavel's rounds): a job's place in this round, as the shares of time demand."""

from __future__ import annotations

from typing import ClassVar

from topmast.policies.base import Floats, QueueView
from topmast.policies.options import Profile


class TurnOrder:
    """By place in the round: the job that has received least of its due share comes first."""

    source: ClassVar[str] = "Gavel (Narayanan et al., OSDI '20): rounds"
    options: ClassVar[tuple[str, ...]] = ("shares",)
    by_band = False
    by_time = True

    def __init__(self, profile: Profile) -> None:
        pass

    def keys(self, view: QueueView) -> Floats:
        """The place in the round (n x 1)."""
        return view.turn[:, None]
