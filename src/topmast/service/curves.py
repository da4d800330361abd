"""Metrics of jobs over their steps, thinned out as they grow; never journalled."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from msgspec import Struct

from topmast.model.history_views import CurveView

MOST_POINTS = 400
"""Of a curve; when they are so many, every second one goes."""
MOST_METRICS = 8
"""Of a job; those that come later are left out."""
MOST_JOBS = 1_000
"""The job that reported longest ago goes first."""


class _Points(Struct):
    steps: list[int] = []
    """Ascending."""
    values: dict[str, list[float | None]] = {}
    """By metric, one for each step; None: not reported then."""
    apart: float = 0.0
    """Steps between two points, at least; the newest point may be nearer."""

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take a report. O(points) after a restart or when points are thinned out, else O(1)."""
        steps = self.steps
        known = bisect_left(steps, step)
        if known == len(steps) > 1 and steps[-1] - steps[-2] < self.apart:
            known -= 1  # the newest point was kept for being the newest
        if known < len(steps):
            self._keep(slice(known))
        self.steps.append(step)
        for name, value in metrics.items():
            if name not in self.values and len(self.values) < MOST_METRICS:
                self.values[name] = [None] * (len(self.steps) - 1)
            if name in self.values:
                self.values[name].append(value)
        for row in self.values.values():
            row += [None] * (len(self.steps) - len(row))
        if len(self.steps) > MOST_POINTS:
            self._keep(slice(None, None, 2))
            self.apart = (self.steps[-1] - self.steps[0]) / (len(self.steps) - 1)

    def _keep(self, kept: slice) -> None:
        self.steps = self.steps[kept]
        self.values = {name: row[kept] for name, row in self.values.items()}


class Curves:
    """Those of the jobs that reported last. One thread at a time."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Points] = {}

    def add(self, job: str, step: int, metrics: Mapping[str, float]) -> None:
        """Take a report of a job."""
        points = self._jobs.pop(job, None) or _Points()
        points.add(step, metrics)
        self._jobs[job] = points
        if len(self._jobs) > MOST_JOBS:
            del self._jobs[next(iter(self._jobs))]

    def of(self, job: str) -> tuple[CurveView, ...]:
        """The metrics of a job by name."""
        points = self._jobs.get(job)
        if points is None:
            return ()
        return tuple(
            CurveView(name, tuple(points.steps), tuple(row))
            for name, row in sorted(points.values.items())
        )
