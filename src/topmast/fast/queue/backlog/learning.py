"""What is learned from jobs that succeeded, for a profile that predicts by a tree.

A job is looked at when it is submitted, so that nothing from the future leaks.
"""

from __future__ import annotations

import math
from array import array

from msgspec import Struct

from topmast.model.job import MILLI, JobSpec
from topmast.model.messages import GrowTree
from topmast.model.tree import Tree
from topmast.model.units import gb_of_bytes
from topmast.predict.experience import FEATURES, SHORTEST_S, Experience, Known, Row

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
