"""How long a job will run: what its people say, what jobs like it took, its limit, or a guess.

A better predictor takes the place of `History`: it learns from jobs that finished, and is asked when a
job begins to wait, so that nothing from the future leaks.
"""

from __future__ import annotations

import statistics

from msgspec import Struct

from topmast.fast.queue.record import JobRecord
from topmast.model.job import JobSpec

RUNS_KEPT = 101
"""The median is taken over so many of the latest runs."""
GROUPS_KEPT = 10_000
LONGEST_S = 1e12


class History(Struct):
    """The latest runs of one recurring job, and their median."""

    runs_s: list[float]
    median_s: float


class Durations:
    """Running medians by recurrence: the job's ``group`` and user."""

    def __init__(self, default_s: float) -> None:
        self.default_s = default_s
        self.histories: dict[str, History] = {}

    def learn(self, record: JobRecord) -> None:
        """Take note of a job that succeeded. O(RUNS_KEPT log RUNS_KEPT)."""
        key = recurrence(record.spec)
        if key is None:
            return
        history = self.histories.pop(key, None) or History([], 0.0)
        history.runs_s = [*history.runs_s[1 - RUNS_KEPT :], record.held_s]
        history.median_s = statistics.median(history.runs_s)
        self.histories[key] = history  # the latest last: the longest unseen is forgotten first
        if len(self.histories) > GROUPS_KEPT:
            del self.histories[next(iter(self.histories))]

    def expected_s(self, spec: JobSpec) -> float:
        """The whole run: the hint, else the median, else the limit, else the default. O(1)."""
        limit_s = LONGEST_S if spec.time_limit_s is None else spec.time_limit_s
        if spec.duration_s is not None:
            return min(spec.duration_s, limit_s)
        history = self.histories.get(recurrence(spec) or "")
        if history is not None:
            return min(history.median_s, limit_s)
        return self.default_s if spec.time_limit_s is None else limit_s

    def remaining_s(self, record: JobRecord) -> float:
        """What is left of the run when the job starts again from what it has kept. O(1)."""
        return left_of(self.expected_s(record.spec), record)


def left_of(expected_s: float, record: JobRecord) -> float:
    """What is left of a run that takes so long in all."""
    return max(0.0, expected_s - record.kept_s)


def recurrence(spec: JobSpec) -> str | None:
    """Under what the runs of jobs like this one are remembered; None for one that recurs not."""
    return f"{spec.group}/{spec.user}" if spec.group else None
