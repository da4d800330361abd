"""Reserve and pack: high-end GPUs for the jobs that use them.

After the scheduler of Weng et al., *MLaaS in the Wild*, NSDI '22. A job has an allocation plan for
each GPU model that it accepts. The plans are ordered by *computation efficiency*: the job's speed
on the model over the model's power, relative to the best plan. What a job does not use of a GPU is
a cost of the plan. A plan that wastes much of a high-end GPU is held back for a while.
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

    A job that states different speeds for its accelerators has these speeds. Otherwise a gang of at
    least ``reserve.least_gpus`` uses any GPU to the full, and a smaller one is equally fast on any
    model.
    """

    source: ClassVar[str] = "MLaaS in the Wild (Weng et al., NSDI '22): reserving and packing"
    options: ClassVar[tuple[str, ...]] = ("reserve", "score")

    def __init__(self, profile: Profile) -> None:
        self._weights = profile.score
        self._options = profile.reserve
        self._kept = frozenset(profile.reserve.models)

    def weights(self, ask: PlacementRequest) -> ScoreWeights:
        """The profile's prices, and by GPU model the part that the job would not use. O(models)."""
        listed = max((g.resources.accelerators for g in ask.groups), key=len, default=())
        if len(listed) < 2:
            return self._weights
        gpus = sum(g.count * _gpus(g.resources.accelerators) for g in ask.groups)
        found = zip(listed, self.efficiencies(listed, gpus), strict=True)
        price = self._options.price
        unused = [(a.model, price * (1.0 - value)) for a, value in found if a.model is not None]
        return replace(self._weights, models=(*self._weights.models, *unused))

    def held_back(self, listed: Sequence[Accelerator], gpus: float) -> tuple[int, ...]:
        """Which accelerators a job of so many GPUs has to wait for, if it accepts others."""
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
