"""Policy `random-pairs`: the baseline that Gavel's evaluation calls Gandiva.

Every job has the same time on every type. Where more is asked for than there is, jobs of one width
are paired at random; a pair stays until one of the two ends, or does less than one job alone on all
types together. Of Gandiva itself it has neither migration nor grow-shrink, and nothing is measured.
"""

from __future__ import annotations

import random

import numpy as np

from topmast.policies.base import Floats
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.shares import Shares

SOURCE = "Gavel's evaluation (Narayanan et al., OSDI '20): its ad hoc packing after Gandiva"
NAME = "random-pairs"
SEED = 0
KEPT = 1.0
"""A pair stays if the speeds of both, over those alone, are so much on all types together."""


def solve(columns: Columns) -> Shares:
    """A problem that stands by itself: pairs are drawn anew. O(n + p)."""
    return RandomPairs()(columns)


class RandomPairs:
    """Remembers which jobs are paired, from one problem to the next."""

    def __init__(self) -> None:
        self._random = random.Random(SEED)
        self._partner: dict[str, str | None] = {}
        """Of each job that was looked at while too much was asked for; None: it is alone."""

    def __call__(self, columns: Columns) -> Shares:
        """Equal time for all pairs and jobs alone. O(n + p)."""
        columns.need_speeds(NAME, columns.runs_alone)
        number = {job: row for row, job in enumerate(columns.ids)}
        pairs = {
            (min(one, other), max(one, other)): at
            for at, (one, other) in enumerate(columns.pair_jobs.tolist())
        }
        self._part(columns, number, pairs)
        single, pair = np.zeros(columns.runs.shape), np.zeros(columns.pair_runs.shape)
        if columns.scale.sum() <= columns.workers.sum():
            single[:] = _equal(columns, columns.count, columns.scale)
        else:
            self._draw(columns)
            together = [(j, p) for j, p in self._partner.items() if p is not None and j < p]
            alone = [job for job in columns.ids if self._partner[job] is None]
            parts = len(together) + len(alone)
            for job in alone:
                row = number[job]
                single[row] = _equal(columns, parts, columns.scale[row : row + 1])[0]
            for one, other in together:
                rows = sorted((number[one], number[other]))
                at = pairs.get((rows[0], rows[1]))
                if at is not None:
                    scale = columns.scale[rows[0] : rows[0] + 1]
                    pair[at] = _equal(columns, parts, scale)[0]
        single, pair = single * columns.runs, pair * columns.pair_runs
        return Shares(float(columns.speeds_of(single, pair).sum()), single, pair)

    def _part(
        self, columns: Columns, number: dict[str, int], pairs: dict[tuple[int, int], int]
    ) -> None:
        """Keep pairs of which both are there and that were worth it; all others draw again."""
        self._partner = {
            job: partner
            for job, partner in self._partner.items()
            if partner is not None
            and job in number
            and partner in number
            and self._gain(columns, number, pairs, job) >= KEPT
        }

    def _gain(
        self,
        columns: Columns,
        number: dict[str, int],
        pairs: dict[tuple[int, int], int],
        job: str,
    ) -> float:
        """Of the pair of a job: the speeds of both over those alone, on all types together."""
        one, other = sorted((number[job], number[self._partner[job] or job]))
        at = pairs.get((one, other))
        if at is None:
            return 0.0
        alone = np.stack([columns.speeds[one], columns.speeds[other]], axis=1)
        worth: Floats = columns.pair_speeds[at] / np.where(alone > 0, alone, np.inf)
        return float(worth.sum())

    def _draw(self, columns: Columns) -> None:
        """Pair those that are new, two drawn at a time: those of one width. O(n^2) at worst."""
        scale = dict(zip(columns.ids, columns.scale.tolist(), strict=True))
        left = [job for job in columns.ids if job not in self._partner]
        for _ in range(len(left)):
            if len(left) < 2:
                break
            one, other = self._random.sample(left, 2)
            if scale[one] == scale[other]:
                left.remove(one)
                left.remove(other)
                self._partner[one], self._partner[other] = other, one
        self._partner.update(dict.fromkeys(left))


def _equal(columns: Columns, parts: int, scale: Floats) -> Floats:
    """An equal part of every type for jobs of these widths (rows x m), at most all of the time."""
    part = columns.workers / parts / scale[:, None]
    capped: Floats = part / np.maximum(1.0, part.sum(axis=1, keepdims=True))
    return capped
