"""Scoring `skew`: jobs of models with one large tensor run on few hosts."""

from __future__ import annotations

from typing import ClassVar

from topmast.model.job import JobSpec, Level, Topology
from topmast.model.plan import PlacementRequest
from topmast.policies.options import Profile, ScoreWeights


class Consolidate:
    """The profile's ``score`` options, and a topology that goes by the job's ``skew``.

    A job of no known skew is placed freely, and so is one that names a topology itself.
    """

    source: ClassVar[str] = "Tiresias (Gu et al., NSDI '19): profile-based placement"
    options: ClassVar[tuple[str, ...]] = ("skew", "score")

    def __init__(self, profile: Profile) -> None:
        self._weights = profile.score
        self._options = profile.skew

    def weights(self, ask: PlacementRequest) -> ScoreWeights:
        """The same for every question."""
        return self._weights

    def topology(self, spec: JobSpec, on_one_host: bool) -> Topology:
        """One host for a job of large skew; as close as possible if no host could hold it."""
        own = spec.topology
        if spec.skew is None or spec.skew <= self._options.threshold or own != Topology():
            return own
        waits = on_one_host and self._options.strict
        return Topology(required=Level.HOST if waits else None, preferred=Level.HOST)
