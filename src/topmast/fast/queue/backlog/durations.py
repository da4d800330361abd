"""How long a job will run: as its submitter says, as predicted, as jobs like it took, or a guess.

Only jobs that succeeded are learned from, and a job is looked at when it begins to wait, so that
nothing from the future leaks.
"""

from __future__ import annotations

import hashlib
import re
import statistics
from functools import lru_cache

from msgspec import Struct

from topmast.fast.queue.backlog.learning import Learned, Learning
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.job import JobSpec, TaskGroup
from topmast.model.messages import GrowTree
from topmast.model.tree import Tree
from topmast.policies.options import Predict

RUNS_KEPT = 101
"""The median is taken over so many of the latest runs."""
GROUPS_KEPT = 10_000
SCRIPTS_KEPT = 64
"""So many scripts are told apart without another look; each may have 200 kB."""
LONGEST_S = 1e12
_NUMBERED = re.compile(r"(.*?[^\W\d].*?)[-_. ]?\d+")
"""A name with a number behind it, as the jobs of a sweep have."""


class History(Struct):
    """The latest runs of one recurring job, and their median."""

    runs_s: list[float]
    median_s: float


class Durations:
    """Running medians of jobs that are alike (`keys_of`), and a tree if the profile wants one."""

    def __init__(self, default_s: float, predict: Predict = Predict.MEDIAN) -> None:
        self.default_s = default_s
        self.histories: dict[str, History] = {}
        self._learning = Learning() if predict is Predict.TREE else None

    @property
    def predicts(self) -> bool:
        """Whether runs are predicted from the jobs that were submitted before."""
        return self._learning is not None

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
        for key in keys_of(record.spec):
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
        """The whole run: the hint, the prediction, the median, the limit, or the default.

        O(depth of the tree).
        """
        limit_s = LONGEST_S if spec.time_limit_s is None else spec.time_limit_s
        if spec.duration_s is not None:
            return min(spec.duration_s, limit_s)
        predicted_s = self.predicted_s(spec)
        if predicted_s is not None:
            return min(predicted_s, limit_s)
        key = self.key_of(spec)
        if key is not None:
            return min(self.histories[key].median_s, limit_s)
        return self.default_s if spec.time_limit_s is None else limit_s

    def key_of(self, spec: JobSpec) -> str | None:
        """The key with runs of jobs like this one; None if none of them has ended. O(script)."""
        histories = self.histories
        return next((key for key in keys_of(spec) if key in histories), None) if histories else None

    def predicted_s(self, spec: JobSpec) -> float | None:
        """What the tree predicts for a job submitted now.

        None where no tree is kept, or no job has finished yet.
        """
        return None if self._learning is None else self._learning.predicted_s(spec)

    def remaining_s(self, record: JobRecord) -> float:
        """What is left of the run when the job starts again from what it has kept. O(1)."""
        return left_of(self.expected_s(record.spec), record)

    # --- the tree ---------------------------------------------------------------------------------

    def wants_tree(self) -> GrowTree | None:
        """The order to grow a tree anew, once, when enough jobs have finished since the last.

        O(jobs learned from).
        """
        return None if self._learning is None else self._learning.wants_tree()

    def take_tree(self, tree: Tree) -> None:
        """Predict by this tree from now on."""
        if self._learning is not None:
            self._learning.take_tree(tree)

    def learned(self) -> Learned | None:
        """What a snapshot has to hold beside the histories."""
        return None if self._learning is None else self._learning.saved()

    def restore(self, histories: dict[str, History], learned: Learned | None) -> None:
        """Take up what a snapshot held, but not what another profile had learned for a tree."""
        self.histories = histories
        if self._learning is not None and learned is not None:
            self._learning = Learning(learned)


def left_of(expected_s: float, record: JobRecord) -> float:
    """What is left of a run that takes so long in all, at the speed of the first model listed."""
    return max(0.0, expected_s - record.worked_s)


def keys_of(spec: JobSpec) -> list[str]:
    """Under what the runs of a job are remembered, the closest likeness first. O(script).

    That is its group alone, if it names one. Else it is the same script in the same folder, then
    the same name but for a number behind it. All are of one user. Jobs of a trace have no script,
    and are alike by their group alone.
    """
    if spec.group:
        return [f"{spec.group}/{spec.user}"]
    if not spec.user or not any(group.run for group in spec.groups):
        return []
    stem = stem_of(spec)
    by_name = [f"//name/{stem}/{spec.user}"] if stem else []
    return [f"//script/{_digest_of(spec.workdir, spec.groups)}/{spec.user}", *by_name]


@lru_cache(SCRIPTS_KEPT)
def _digest_of(workdir: str, groups: tuple[TaskGroup, ...]) -> str:
    """What tells scripts in a folder apart. O(script), O(groups) for one that came lately."""
    parts = [workdir, *(text for group in groups for text in (group.setup, group.run))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def stem_of(spec: JobSpec) -> str:
    """The name of a job without the number behind it; empty if there is none."""
    found = _NUMBERED.fullmatch(spec.name)
    return "" if found is None else found[1]
