"""How long a job will run, as a range and with what that rests on: for looking ahead."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from topmast.fast.queue import LONGEST_S, Durations, JobRecord, stem_of
from topmast.model.job import JobSpec
from topmast.model.states import JobState

ENOUGH_RUNS = 5
"""So many finished jobs tell how far given durations are off; with fewer the usual error is
taken.
"""
LOW, MIDDLE, HIGH = 0.1, 0.5, 0.9
USUAL_ERROR = (0.8, 1.25)
LIMIT_ERROR = (0.1, 1.0)
DEFAULT_ERROR = (0.25, 4.0)
OVERRUN = (1.0, 1.1, 2.0)
"""A job past all that was expected of it: the longer it ran, the longer it goes on."""


class Basis(StrEnum):
    """What an expected duration rests on."""

    GIVEN = "given"
    HISTORY = "history"
    LIKE = "like"
    LIMIT = "limit"
    DEFAULT = "default"
    OVERRUN = "overrun"


MEASURED = (Basis.HISTORY, Basis.LIKE)
"""Runs from launch to end: the start and the checkpoints are in them."""


class Estimate(Struct, frozen=True):
    """The whole run, in seconds: early, as expected, late. ``source``: the group of a history, or
    what the jobs that are alike are called.
    """

    early_s: float
    run_s: float
    late_s: float
    basis: Basis
    source: str = ""
    runs: int = 0


class Estimates:
    """Durations with their ranges, from what a queue knows at one moment."""

    def __init__(self, durations: Durations, records: Iterable[JobRecord]) -> None:
        """O(records): the finished ones tell by how much given durations were off."""
        self._default_s = durations.default_s
        self._durations = durations
        self._histories = durations.histories
        self._sorted: dict[str, list[float]] = {}
        ratios = sorted(
            record.held_s / record.spec.duration_s
            for record in records
            if record.state is JobState.SUCCEEDED and record.spec.duration_s
        )
        self.given_error = USUAL_ERROR
        if len(ratios) >= ENOUGH_RUNS:
            self.given_error = (quantile(ratios, LOW), quantile(ratios, HIGH))

    def of(self, spec: JobSpec, done_s: float = 0.0) -> Estimate:
        """The whole run of a job of which ``done_s`` are done already. O(log runs)."""
        found = self._unlimited(spec, done_s)
        limit_s = LONGEST_S if spec.time_limit_s is None else max(spec.time_limit_s, done_s)
        if found.late_s <= limit_s:
            return found
        early_s, run_s = min(found.early_s, limit_s), min(found.run_s, limit_s)
        return Estimate(early_s, run_s, limit_s, found.basis, found.source, found.runs)

    def _unlimited(self, spec: JobSpec, done_s: float) -> Estimate:
        if spec.duration_s is not None:
            return _around(spec.duration_s, self.given_error, Basis.GIVEN, done_s)
        key = self._durations.key_of(spec)
        if key is not None:
            return self._historical(key, spec, done_s)
        if spec.time_limit_s is not None:
            return _around(spec.time_limit_s, LIMIT_ERROR, Basis.LIMIT, done_s)
        found = _around(self._default_s, DEFAULT_ERROR, Basis.DEFAULT, done_s)
        return replace(found, source=spec.group)

    def _historical(self, key: str, spec: JobSpec, done_s: float) -> Estimate:
        """Quantiles of the runs that lasted longer than this one has."""
        runs = self._sorted.get(key)
        if runs is None:
            runs = self._sorted[key] = sorted(self._histories[key].runs_s)
        first = bisect_right(runs, done_s)
        if first == len(runs):
            return _overrun(done_s)
        low, middle, high = (quantile(runs, q, first) for q in (LOW, MIDDLE, HIGH))
        if spec.group:
            return Estimate(low, middle, high, Basis.HISTORY, spec.group, len(runs))
        return Estimate(low, middle, high, Basis.LIKE, stem_of(spec) or spec.name, len(runs))


def _around(run_s: float, error: tuple[float, float], basis: Basis, done_s: float) -> Estimate:
    if run_s <= done_s and done_s > 0:
        return _overrun(done_s)
    early_s, late_s = max(done_s, min(1.0, error[0]) * run_s), max(1.0, error[1]) * run_s
    return Estimate(early_s, run_s, late_s, basis)


def _overrun(done_s: float) -> Estimate:
    early, middle, late = (factor * done_s for factor in OVERRUN)
    return Estimate(early, middle, late, Basis.OVERRUN)


def quantile(ordered: Sequence[float], share: float, first: int = 0) -> float:
    """A quantile of ``ordered[first:]``, between neighbours in proportion. O(1)."""
    place = first + share * (len(ordered) - 1 - first)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
