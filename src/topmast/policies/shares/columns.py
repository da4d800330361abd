"""What the policies read: jobs, types and pairs in columns, and the cells that may hold time."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from topmast.model.errors import InvalidInput
from topmast.policies.base import Bools, Floats, Ints
from topmast.policies.shares.problem import Problem


class Columns:
    """A problem in columns: n jobs, m types, p pairs. To be read only.

    ``speeds`` (n x m, steps/s) are what the policy uses, ``true_speeds`` what was measured. They
    differ for a policy that must not know types. ``runs`` (n x m): where a job can run, that is
    with a speed and enough workers. ``pair_jobs`` (p x 2) are rows of jobs, ``pair_speeds`` is p x
    m x 2, and ``pair_runs`` (p x m) says where both make progress. NaN: not given.
    """

    def __init__(self, problem: Problem, *, agnostic: bool = False, pairs: bool = True) -> None:
        """Complexity: O(n m + p m)."""
        jobs = problem.jobs
        self.types = tuple(problem.workers)
        self.ids = [job.id for job in jobs]
        self.workers: Floats = np.array([problem.workers[t] for t in self.types], float)
        self.scale: Floats = np.array([job.scale_factor for job in jobs], float)
        self.weight: Floats = np.array([job.weight for job in jobs], float)
        self.steps_left = _optional([job.steps_left for job in jobs])
        self.elapsed_s: Floats = np.array([job.elapsed_s for job in jobs], float)
        self.isolated_s: Floats = np.array([job.isolated_s for job in jobs], float)
        self.deadline_s = _optional([job.deadline_s for job in jobs])
        self.arrival_s: Floats = np.array([job.arrival_s for job in jobs], float)
        self.costs = _optional([problem.costs.get(t) for t in self.types])
        self.entities = problem.entities
        self.entity = [job.entity for job in jobs]
        self.true_speeds: Floats = np.array(
            [[job.throughputs.get(t, 0.0) for t in self.types] for job in jobs], float
        )
        self.before: Floats = np.array(
            [[job.before.get(t, 0.0) for t in self.types] for job in jobs], float
        )
        room = self.scale[:, None] <= self.workers
        self.runs: Bools = (self.true_speeds > 0) & room
        best = self.true_speeds.max(axis=1, keepdims=True)
        self.speeds: Floats = np.where(self.runs, best, 0.0) if agnostic else self.true_speeds
        self.agnostic = agnostic
        self.is_warm = False
        """Whether compiled methods are at hand already, so that small problems may use them too."""
        self._take_pairs(problem if pairs and not agnostic else None)

    def _take_pairs(self, problem: Problem | None) -> None:
        """The pairs, but for those that get nowhere together."""
        pairs = problem.pairs if problem is not None else []
        number = {name: row for row, name in enumerate(self.ids)} if pairs else {}
        none = (0.0, 0.0)
        # Flat, for numpy takes its time with lists of lists.
        both = [number[name] for pair in pairs for name in pair.ids]
        speeds = [
            speed for pair in pairs for t in self.types for speed in pair.throughputs.get(t, none)
        ]
        self.pair_jobs: Ints = np.array(both, np.int64).reshape(-1, 2)
        self.pair_speeds: Floats = np.array(speeds, float).reshape(-1, len(self.types), 2)
        room = self.scale[self.pair_jobs[:, :1]] <= self.workers
        self.pair_runs: Bools = (self.pair_speeds > 0).all(axis=2) & room
        some = self.pair_runs.any(axis=1)
        if not some.all():
            self.pair_jobs, self.pair_speeds = self.pair_jobs[some], self.pair_speeds[some]
            self.pair_runs = self.pair_runs[some]

    @property
    def count(self) -> int:
        """How many jobs there are (n)."""
        return len(self.ids)

    @cached_property
    def runs_alone(self) -> Bools:
        """Which jobs (n) can run somewhere alone."""
        return self.runs @ np.ones(len(self.types), bool)

    @cached_property
    def can_run(self) -> Bools:
        """Which jobs (n) can run somewhere, alone or in a pair."""
        can = self.runs_alone.copy()
        can[self.pair_jobs.ravel()] = True
        return can

    @cached_property
    def has_measure(self) -> Bools:
        """Which jobs (n) would make progress on an equal part of the workers, at any width."""
        return self.true_speeds @ self.workers > 0

    @cached_property
    def best_speeds(self) -> Floats:
        """Steps/s (n) at best: all of the time in the best cell."""
        cells = self.cells
        best = np.zeros(self.count)
        np.maximum.at(best, cells.one, cells.one_speed)
        paired = cells.other >= 0
        np.maximum.at(best, cells.other[paired], cells.other_speed[paired])
        return best

    @cached_property
    def equal_speeds(self) -> Floats:
        """Steps/s (n) of a job that has its part of every type: the mean over all workers."""
        equal: Floats = self.speeds @ (self.workers / self.workers.sum())
        return equal

    @cached_property
    def isolated_speeds(self) -> Floats:
        """Steps/s (n) of a job that has the n-th part of every type for itself."""
        part = self.workers / (self.count * self.scale[:, None])
        part = part / np.maximum(1.0, part.sum(axis=1, keepdims=True))
        alone: Floats = (self.speeds * part).sum(axis=1)
        return alone

    @cached_property
    def cells(self) -> Cells:
        """The cells that may hold time."""
        return Cells(self)

    def speeds_of(self, single: Floats, pair: Floats) -> Floats:
        """Steps/s (n) of all jobs for singles (n x m) and pairs (p x m). O((n + p) m)."""
        speeds: Floats = (self.speeds * single).sum(axis=1)
        for side in (0, 1):
            shared = (self.pair_speeds[:, :, side] * pair).sum(axis=1)
            speeds = speeds + np.bincount(self.pair_jobs[:, side], shared, self.count)
        return speeds

    def need(self, values: Floats, field: str, policy: str, rows: Bools | None = None) -> None:
        """Raise `InvalidInput` for the first job that lacks a value which the policy needs."""
        missing = np.isnan(values) if rows is None else np.isnan(values) & rows
        if missing.any():
            row = int(np.argmax(missing))
            raise InvalidInput(
                f"missing, and {policy} needs it",
                field=f"jobs[{row}].{field}",
                remedy="give it for this job",
            )

    def need_speeds(self, policy: str, rows: Bools | None = None) -> None:
        """Raise `InvalidInput` for the first job that runs nowhere, where that has no answer."""
        stuck = ~(self.can_run if rows is None else rows)
        if not stuck.any():
            return
        row = int(np.argmax(stuck))
        if self.true_speeds[row].any():
            message = f"it can run on no type: too few workers for {int(self.scale[row])} at once"
        else:
            message = "it can run on no type: no throughput above 0"
        raise InvalidInput(
            f"{message}, and {policy} has no value then",
            field=f"jobs[{row}].throughputs",
            remedy="leave the job out, or give a type on which it runs",
        )


class Cells:
    """Where time can be given: the cells (k) of singles and pairs that may differ from 0.

    ``one`` and ``other`` (k) are rows of jobs; ``other`` is -1 for a single job. ``one_speed`` and
    ``other_speed`` are in steps/s. ``kind`` (k) is the type, ``scale`` (k) how many workers the
    cell uses.
    """

    def __init__(self, columns: Columns) -> None:
        """Complexity: O((n + p) m)."""
        self._columns = columns
        job, kind = np.nonzero(columns.runs)
        pair, pair_kind = np.nonzero(columns.pair_runs)
        self._single, self._pair = (job, kind), (pair, pair_kind)
        both = columns.pair_jobs[pair]
        speeds = columns.pair_speeds[pair, pair_kind]
        self.singles = len(job)
        self.one: Ints = np.concatenate([job, both[:, 0]])
        self.other: Ints = np.concatenate([np.full(len(job), -1), both[:, 1]])
        self.kind: Ints = np.concatenate([kind, pair_kind])
        self.one_speed: Floats = np.concatenate([columns.speeds[job, kind], speeds[:, 0]])
        self.other_speed: Floats = np.concatenate([np.zeros(len(job)), speeds[:, 1]])
        self.scale: Floats = columns.scale[self.one]

    def spread(self, values: Floats) -> tuple[Floats, Floats]:
        """Values of cells (k) as an allocation: singles (n x m), pairs (p x m)."""
        single = np.zeros(self._columns.runs.shape)
        pair = np.zeros(self._columns.pair_runs.shape)
        single[self._single] = values[: self.singles]
        pair[self._pair] = values[self.singles :]
        return single, pair


def _optional(values: list[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], float)
