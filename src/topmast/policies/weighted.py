"""Scoring `weighted`: the same prices for every job, those of the profile."""

from __future__ import annotations

from typing import ClassVar

from topmast.model.plan import PlacementRequest
from topmast.policies.options import Profile, ScoreWeights


class Weighted:
    """The profile's ``score`` options."""

    source: ClassVar[str] = "MAST (Choudhury et al., OSDI '24): the score of a plan"
    options: ClassVar[tuple[str, ...]] = ("score",)

    def __init__(self, profile: Profile) -> None:
        self._weights = profile.score

    def weights(self, ask: PlacementRequest) -> ScoreWeights:
        """The same for every question."""
        return self._weights
