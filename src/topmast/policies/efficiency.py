"""Reserve and pack (Weng et al., *MLaaS in the Wild*, NSDI '22, on scheduling as deployed): high-end GPUs for those who use them.

The allocation plans of a job, one for each GPU model it accepts, are ordered by *computation efficiency*: the
speed of the job on a model over the power of the model, relative to the best of them. What a job does not use of
a GPU is a cost of the plan, and a plan that wastes much of a high-end GPU is held back for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from topmast.model.job import MILLI, Accelerator
from topmast.model.plan import PlacementRequest
from topmast.policies.options import Profile, ScoreWeights


class Efficiency:
    """Hooks `score` and `reserve`. The performance model:

    A job whose accelerators say different speeds goes as fast as they say. Of others, gangs of at least
    ``reserve.least_gpus`` use any GPU to the full, and smaller ones are as fast on any.
    """

    source: ClassVar[str] = "MLaaS in the Wild (Weng et al., NSDI '22): reserving and packing"
    options: ClassVar[tuple[str, ...]] = ("reserve", "score")

    def __init__(self, profile: Profile) -> None:
        self._weights = profile.score
        self._options = profile.reserve
        self._kept = frozenset(profile.reserve.models)

    def weights(self, ask: PlacementRequest) -> ScoreWeights:
        """The profile's prices, and for each GPU model what the job would leave unused of it. O(models)."""
        listed = max((g.resources.accelerators for g in ask.groups), key=len, default=())
        if len(listed) < 2:
            return self._weights
        gpus = sum(g.count * _gpus(g.resources.accelerators) for g in ask.groups)
        found = zip(listed, self.efficiencies(listed, gpus), strict=True)
        price = self._options.price
        unused = [(a.model, price * (1.0 - value)) for a, value in found if a.model is not None]
        return replace(self._weights, models=(*self._weights.models, *unused))

    def held_back(self, listed: Sequence[Accelerator], gpus: float) -> tuple[int, ...]:
        """Which of its accelerators a job of so many GPUs has to wait for: not where it has no others."""
        wasted = [
            i
            for i, value in enumerate(self.efficiencies(listed, gpus))
            if listed[i].model in self._kept and value < self._options.least_efficiency
        ]
        return () if len(wasted) == len(listed) else tuple(wasted)

    def efficiencies(self, listed: Sequence[Accelerator], gpus: float) -> list[float]:
        """Speed over power of each plan, relative to the best; within (0, 1]."""
        power = [self._options.power.get(a.model or "", 1.0) for a in listed]
        speeds = [a.speed for a in listed]
        if len(dict.fromkeys(speeds)) < 2:
            speeds = power if gpus >= self._options.least_gpus else [1.0] * len(listed)
        found = [speed / there for speed, there in zip(speeds, power, strict=True)]
        best = max(found, default=1.0)
        return [value / best for value in found]


def _gpus(listed: Sequence[Accelerator]) -> float:
    """What a task takes of its first model, in GPUs."""
    return listed[0].gpus_milli / MILLI if listed else 0.0
