"""What is known of a job when it is submitted, as numbers that a tree can split on.

Only jobs that *finished* before this one was submitted may contribute. The owner of an `Experience`
calls `learn` when a job succeeds and `features` when one is submitted, in the order of time, so
that nothing leaks from the future. The features follow Weng et al., *MLaaS in the Wild*, NSDI '22,
on recurring tasks: group tag, user, request, and the history of the group.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort

from msgspec import Struct

RUNS_KEPT = 101
"""So many of the latest runs count."""
KEPT = 50_000
"""The most groups, users and kinds of requests remembered; the longest unseen goes first."""
SHORTEST_S = 1.0
"""Durations count from here on: the logarithm of less tells nothing."""
UNKNOWN = -1.0
"""In place of what no history tells; logarithms of durations are not below 0."""

FEATURES = (
    "gpus", "tasks", "cpus", "memory_gb",
    "group_runs", "group_middle", "group_last", "group_mean", "group_spread",
    "request_runs", "request_middle", "user_runs", "user_middle", "model_middle",
)  # fmt: skip
"""Middles, means and the last run are natural logarithms of seconds."""
Row = tuple[float, ...]
"""The estimate that a tree corrects (a natural logarithm of seconds), and a job's `FEATURES`."""


class Known(Struct, frozen=True):
    """A job at its submission."""

    group: str
    user: str
    gpus: float
    """Per task, on average."""
    tasks: int
    cpus: float
    """Per task, on average."""
    memory_gb: float
    """Per task, on average."""
    model: str


class Runs(Struct):
    """The latest runs of like jobs."""

    logs: list[float]
    """Natural logarithms of seconds, in order of time."""
    ordered: list[float]
    """The same, the shortest first."""
    count: int
    """Of all runs that there were."""
    middle: float
    """The mean of the middle half: robust to outliers, and more accurate than the median."""
    mean: float
    spread: float
    """Half of the distance between the quartiles."""

    def add(self, log: float) -> None:
        """One more. O(RUNS_KEPT)."""
        self.logs.append(log)
        insort(self.ordered, log)
        if len(self.logs) > RUNS_KEPT:
            del self.ordered[bisect_left(self.ordered, self.logs.pop(0))]
        size = len(self.ordered)
        self.count += 1
        self.middle = sum(self.ordered[size // 4 : size - size // 4]) / (size - 2 * (size // 4))
        self.mean = sum(self.logs) / size
        self.spread = (self.ordered[3 * (size - 1) // 4] - self.ordered[(size - 1) // 4]) / 2


class Experience(Struct):
    """Histories by group, by user and by kind of request, as of now."""

    runs: dict[str, Runs] = {}

    def learn(self, job: Known, duration_s: float) -> None:
        """Take note of a job that succeeded. O(RUNS_KEPT)."""
        log = math.log(max(duration_s, SHORTEST_S))
        for key in _keys(job):
            if key is not None:
                self._add(key, log)

    def _add(self, key: str, log: float) -> None:
        known = self.runs.pop(key, None)
        if known is None:
            self.runs[key] = Runs([log], [log], 1, log, log, 0.0)
        else:
            self.runs[key] = known  # the latest last
            known.add(log)
        if len(self.runs) > KEPT:
            del self.runs[next(iter(self.runs))]

    def row(self, job: Known) -> Row | None:
        """The estimate and `FEATURES` of a job submitted now; None before any job finished. O(1).

        The estimate is the middle of its group, else of like requests, of its user, or of all.
        """
        group, request, user, model, everybody = (
            None if key is None else self.runs.get(key) for key in _keys(job)
        )
        guess = next((r.middle for r in (group, request, user, everybody) if r is not None), None)
        if guess is None:
            return None
        return (
            guess, job.gpus, float(job.tasks), job.cpus, job.memory_gb,
            *((float(group.count), group.middle, group.logs[-1], group.mean, group.spread)
              if group else (0.0, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)),
            *((float(request.count), request.middle) if request else (0.0, UNKNOWN)),
            *((float(user.count), user.middle) if user else (0.0, UNKNOWN)),
            model.middle if model else UNKNOWN,
        )  # fmt: skip


def _keys(job: Known) -> tuple[str | None, str, str | None, str, str]:
    """The keys of a run: a user's group, like requests, the user, the model, all jobs."""
    shape = f"{job.gpus:g}/{job.tasks}/{job.cpus:g}/{job.memory_gb:.4g}/{job.model}"
    return (
        f"g/{job.group}/{job.user}" if job.group else None,
        f"r/{job.user}/{shape}",
        f"u/{job.user}" if job.user else None,
        f"m/{job.model}",
        "all",
    )
