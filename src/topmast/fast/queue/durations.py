"""How long a job will run: what its people say, what is predicted, what jobs like it took, its limit, or a guess.

Only jobs that succeeded are learned from, and a job is looked at when it begins to wait, so that nothing from the
future leaks.
"""

from __future__ import annotations

import statistics

from msgspec import Struct

from topmast.fast.queue.learning import Learned, Learning
from topmast.fast.queue.record import JobRecord
from topmast.model.job import JobSpec
from topmast.model.messages import GrowTree
from topmast.model.tree import Tree
from topmast.policies.options import Predict

RUNS_KEPT = 101
"""The median is taken over so many of the latest runs."""
GROUPS_KEPT = 10_000
LONGEST_S = 1e12


class History(Struct):
    """The latest runs of one recurring job, and their median."""

    runs_s: list[float]
    median_s: float


class Durations:
    """Running medians by recurrence: the job's ``group`` and user; and a tree, where the profile wants one."""

    def __init__(self, default_s: float, predict: Predict = Predict.MEDIAN) -> None:
        self.default_s = default_s
        self.histories: dict[str, History] = {}
        self._learning = Learning() if predict is Predict.TREE else None

    def submitted(self, record: JobRecord) -> None:
        """Look at a job when it is submitted. O(1)."""
        if self._learning is not None:
            self._learning.submitted(record.id, record.spec)

    def learn(self, record: JobRecord) -> None:
        """Take note of a job that succeeded. O(RUNS_KEPT log RUNS_KEPT).

        Of an elastic one counts what it would have taken with as many tasks as it asked for.
        """
        run_s = record.held_s if record.spec.elastic is None else record.worked_s
        if self._learning is not None:
            self._learning.succeeded(record.id, record.spec, run_s)
        key = recurrence(record.spec)
        if key is None:
            return
        history = self.histories.pop(key, None) or History([], 0.0)
        history.runs_s = [*history.runs_s[1 - RUNS_KEPT :], run_s]
        history.median_s = statistics.median(history.runs_s)
        self.histories[key] = history  # the latest last: the longest unseen is forgotten first
        if len(self.histories) > GROUPS_KEPT:
            del self.histories[next(iter(self.histories))]

    def over(self, job: str) -> None:
        """A job is over, however it ended. O(1)."""
        if self._learning is not None:
            self._learning.over(job)

    def expected_s(self, spec: JobSpec) -> float:
        """The whole run: the hint, the prediction, the median, the limit, or the default. O(depth of the tree)."""
        limit_s = LONGEST_S if spec.time_limit_s is None else spec.time_limit_s
        if spec.duration_s is not None:
            return min(spec.duration_s, limit_s)
        predicted_s = self.predicted_s(spec)
        if predicted_s is not None:
            return min(predicted_s, limit_s)
        history = self.histories.get(recurrence(spec) or "")
        if history is not None:
            return min(history.median_s, limit_s)
        return self.default_s if spec.time_limit_s is None else limit_s

    def predicted_s(self, spec: JobSpec) -> float | None:
        """What the tree predicts for a job submitted now; None where none is kept, or nobody has finished yet."""
        return None if self._learning is None else self._learning.predicted_s(spec)

    def remaining_s(self, record: JobRecord) -> float:
        """What is left of the run when the job starts again from what it has kept. O(1)."""
        return left_of(self.expected_s(record.spec), record)

    # --- the tree -----------------------------------------------------------------------------------

    def wants_tree(self) -> GrowTree | None:
        """The order to grow a tree anew, once, when enough jobs have finished since the last. O(jobs learned from)."""
        return None if self._learning is None else self._learning.wants_tree()

    def take_tree(self, tree: Tree) -> None:
        """Predict by this tree from now on."""
        if self._learning is not None:
            self._learning.take_tree(tree)

    def learned(self) -> Learned | None:
        """What a snapshot has to hold beside the histories."""
        return None if self._learning is None else self._learning.saved()

    def restore(self, histories: dict[str, History], learned: Learned | None) -> None:
        """Take up what a snapshot held; what another profile had learned for a tree is left alone."""
        self.histories = histories
        if self._learning is not None and learned is not None:
            self._learning = Learning(learned)


def left_of(expected_s: float, record: JobRecord) -> float:
    """What is left of a run that takes so long in all, at the speed of the first model listed."""
    return max(0.0, expected_s - record.worked_s)


def recurrence(spec: JobSpec) -> str | None:
    """Under what the runs of jobs like this one are remembered; None for one that recurs not."""
    return f"{spec.group}/{spec.user}" if spec.group else None
