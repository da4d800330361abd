"""How long a job will run: as its submitter says, as predicted, as jobs like it took, or a guess.

Only jobs that succeeded are learned from, and a job is looked at when it begins to wait, so that
nothing from the future leaks.
"""

from __future__ import annotations

import hashlib
import math
import re
import statistics
from array import array
from functools import lru_cache

from msgspec import Struct

from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.job import MILLI, JobSpec, TaskGroup
from topmast.model.messages import GrowTree
from topmast.model.tree import Tree
from topmast.model.units import gb_of_bytes
from topmast.policies.options import Predict
from topmast.predict.experience import FEATURES, SHORTEST_S, Experience, Known, Row

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


WIDTH = len(FEATURES) + 1
"""Numbers of a finished job: its features, and the logarithm of its duration over the guess."""
WINDOW = 50_000
"""The tree is grown on so many of the latest jobs."""
FIRST = 100
"""So many jobs have to finish before the first tree."""
GROWTH = 1.25
MOST_BETWEEN = 10_000
"""A tree is grown anew when a quarter more jobs have finished, or so many."""


class Learned(Struct):
    """What a snapshot holds."""

    experience: Experience
    noted: dict[str, Row] = {}
    """By job that is not over, what was known of it when it was submitted."""
    samples: bytes = b""
    """`WIDTH` doubles for each finished job, in the order of time."""
    tree: Tree | None = None
    finished: int = 0
    """Jobs learned from in all."""
    grown_at: int = 0
    """``finished`` when the tree was grown."""


class Learning:
    """The growing store of one queue; changed only as facts are applied."""

    def __init__(self, learned: Learned | None = None) -> None:
        self._state = learned or Learned(Experience())
        self._samples = array("d", self._state.samples)
        self._ordered = False
        """Whether a tree is being grown: working memory."""

    def submitted(self, job: str, spec: JobSpec) -> None:
        """Note what is known of a job now. O(1)."""
        row = self._state.experience.row(known_of(spec))
        if row is not None:
            self._state.noted[job] = row

    def succeeded(self, job: str, spec: JobSpec, took_s: float) -> None:
        """Learn from a job. O(RUNS_KEPT)."""
        state = self._state
        row = state.noted.pop(job, None)
        if row is not None:
            missed = math.log(max(took_s, SHORTEST_S)) - row[0]
            self._samples.extend((*row[1:], missed))
            if len(self._samples) >= 2 * WINDOW * WIDTH:
                del self._samples[: -WINDOW * WIDTH]
        state.experience.learn(known_of(spec), took_s)
        state.finished += 1

    def over(self, job: str) -> None:
        """Nothing will be learned from a job any more. O(1)."""
        self._state.noted.pop(job, None)

    def predicted_s(self, spec: JobSpec) -> float | None:
        """The guess times what the tree says jobs like it take in the mean. O(depth).

        None while no job has finished.
        """
        row = self._state.experience.row(known_of(spec))
        if row is None:
            return None
        tree = self._state.tree
        return math.exp(row[0]) * (1.0 if tree is None else tree.mean[tree.leaf_of(row[1:])])

    def wants_tree(self) -> GrowTree | None:
        """The order for a tree, if one is due and none is on its way. O(WINDOW) then."""
        state = self._state
        due = max(FIRST, min(state.grown_at * GROWTH, state.grown_at + MOST_BETWEEN))
        if self._ordered or state.finished < due or len(self._samples) < FIRST * WIDTH:
            return None
        self._ordered = True
        return GrowTree(self._samples[-WINDOW * WIDTH :].tobytes(), WIDTH)

    def take_tree(self, tree: Tree) -> None:
        """Predict by this tree from now on."""
        self._ordered = False
        self._state.tree, self._state.grown_at = tree, self._state.finished

    def saved(self) -> Learned:
        """For a snapshot. O(WINDOW)."""
        self._state.samples = self._samples.tobytes()
        return self._state


def known_of(spec: JobSpec) -> Known:
    """A job as it is known at its submission. O(groups)."""
    tasks = spec.tasks
    first = spec.groups[0].resources
    models = "|".join(a.model or "" for a in first.accelerators)
    if len(spec.groups) == 1:
        cpus, memory_bytes = first.cpus, float(first.memory_bytes)
    else:
        cpus = sum(g.count * g.resources.cpus for g in spec.groups) / tasks
        memory_bytes = sum(g.count * g.resources.memory_bytes for g in spec.groups) / tasks
    gpus = spec.gpus_milli() / MILLI / tasks
    return Known(spec.group, spec.user, gpus, tasks, cpus, gb_of_bytes(memory_bytes), models)


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
