"""What pairs on the same GPUs were measured to gain, by kind of work: the forecast for the next.

A kind is the job's name for its work, and the GPUs of its gang: many jobs differ in little
(Gandiva, OSDI '18). Jobs without such a name teach nothing. Working memory of the code that
decides on trials: what a restart loses is measured again.
"""

from __future__ import annotations

from topmast.model.absent import given
from topmast.model.job import JobSpec

KINDS_KEPT = 65_536
"""Of so many pairs of kinds the gain is remembered."""
MEASURED = 3
"""Measurements before the mean of a kind counts: one bad pair may be the other kind's fault."""
WEIGHT = 0.5
"""Of the last measurement, in the mean that is kept."""

Kind = tuple[str, int]


class PackingSpeedups:
    """Steps per second of both, each over that alone, summed: turns make 1."""

    def __init__(self) -> None:
        self._known: dict[tuple[Kind, Kind, str], float] = {}
        self._means: dict[tuple[Kind, str], tuple[int, float]] = {}

    def note(self, one: Kind | None, two: Kind | None, model: str, gain: float) -> None:
        """Two were measured beside one another on GPUs of a model. O(1)."""
        if one is None or two is None:
            return
        key = (min(one, two), max(one, two), model)
        known = self._known.pop(key, gain)
        self._known[key] = known + WEIGHT * (gain - known)
        if len(self._known) > KINDS_KEPT:
            del self._known[next(iter(self._known))]
        for kind in (one, two):
            count, mean = self._means.pop((kind, model), (0, 0.0))
            self._means[kind, model] = count + 1, mean + (gain - mean) / (count + 1)
        if len(self._means) > KINDS_KEPT:
            del self._means[next(iter(self._means))]

    def expected(self, one: Kind | None, two: Kind | None, model: str) -> float | None:
        """What a pair is expected to gain; None: unknown. O(1).

        Two kinds that were never measured together count by the mean gain of each. A kind that
        keeps its GPU busy goes well with few.
        """
        if one is None or two is None:
            return None
        known = self._known.get((min(one, two), max(one, two), model))
        if known is not None:
            return known
        means = self._means.get((one, model)), self._means.get((two, model))
        if means[0] is None or means[1] is None or min(means[0][0], means[1][0]) < MEASURED:
            return None
        return (means[0][1] + means[1][1]) / 2


def kind_of(spec: JobSpec, gpus: int) -> Kind | None:
    """The kind of a job on so many GPUs; None if it does not say what it does."""
    work = given(spec.work, "")
    return (work, gpus) if work else None
