"""The mix of task sizes seen lately: what GPUs that a plan leaves should still be good for."""

from __future__ import annotations

from topmast.model.job import MILLI, JobSpec
from topmast.model.plan import DEFAULT_MIX

HALF_LIFE_JOBS = 1_000
"""After so many jobs with GPUs one counts for half."""
FADE = 0.5 ** (1.0 / HALF_LIFE_JOBS)
FEWEST_JOBS = 20
"""With fewer seen, nothing is concluded from them."""
SIZES = 8
PARTS = 64
"""Shares are told in these parts, so that the mix changes seldom."""

Sizes = tuple[tuple[int, float], ...]


class Mix:
    """Weights of sizes, in whole GPUs of a task. A job counts once, whatever its number of tasks.

    ``current`` holds still between calls of `settle`, so that prices do not change with each job.
    """

    def __init__(self, weights: dict[int, float] | None = None) -> None:
        self.weights: dict[int, float] = dict(weights or {})
        self.current: Sizes = DEFAULT_MIX
        self.settle()

    def saw(self, spec: JobSpec) -> None:
        """A job was submitted. O(groups + sizes)."""
        sizes = [
            max(1, listed[0].gpus_milli // MILLI)
            for group in spec.groups
            if (listed := group.resources.accelerators)
        ]
        if not sizes:
            return
        for size in self.weights:
            self.weights[size] *= FADE
        for size in sizes:
            self.weights[size] = self.weights.get(size, 0.0) + 1.0 / len(sizes)

    def settle(self) -> None:
        """Let the mix be what was seen up to now: the most frequent sizes and their shares."""
        if sum(self.weights.values()) < FEWEST_JOBS:
            return
        most = sorted(self.weights, key=lambda size: (-self.weights[size], size))[:SIZES]
        total = sum(self.weights[size] for size in most)
        parts = {size: round(PARTS * self.weights[size] / total) for size in sorted(most)}
        told = sum(parts.values())
        self.current = tuple((size, count / told) for size, count in parts.items() if count)
