"""How the server fares, from what its runtime counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from topmast.model.system_views import TimingView
from topmast.runtime.meter import Histogram, Meter

COMMIT = "commit"


def timings(meter: Meter) -> tuple[TimingView, ...]:
    """How long commits and machines take. O(bounds x machines)."""
    steps = sorted(meter.handle_s.members.items())
    found = [(COMMIT, meter.commit_s), *((" ".join(labels), each) for labels, each in steps)]
    return tuple(_timing(name, each) for name, each in found)


def _timing(step: str, figures: Histogram) -> TimingView:
    count = sum(figures.counts)
    mean_s = figures.sum / count if count else 0.0
    return TimingView(
        step, count, mean_s, *(quantile(figures.bounds, figures.counts, q) for q in (0.5, 0.99))
    )


def quantile(bounds: Sequence[float], counts: Sequence[int], part: float) -> float:
    """The upper bound of the class that a part of all observations reaches; 0 without any."""
    wanted, seen = part * sum(counts), 0
    for bound, count in zip((*bounds, math.inf), counts, strict=True):
        seen += count
        if seen and seen >= wanted:
            return min(bound, bounds[-1])
    return 0.0
