"""Order `gittins-index` (2D-Gittins): in each queue, the job most likely to end for its service.

The index of a job with service a is the maximum, over how far one looks ahead, of a ratio: the
chance that the job ends within that much more service, over the service that it is expected to use
until then. Both follow the empirical distribution of the total service of jobs, counted in quanta.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from topmast.model.errors import InvalidInput
from topmast.policies.base import Floats, Ints, QueueView
from topmast.policies.feedback import HAIR_GPU_S, Feedback, reaches_s
from topmast.policies.options import GittinsOptions, Profile

QUANTA_MOST = 100_000
"""Longer tables take more memory than they are worth: beyond, jobs count as never ending."""


class GittinsIndex:
    """By queue, then by index (larger first), then in the profile's order inside a queue."""

    source: ClassVar[str] = "Tiresias (Gu et al., NSDI '19): discretised 2D-Gittins"
    options: ClassVar[tuple[str, ...]] = ("queues", "gittins")
    by_band = False
    by_time = False

    def __init__(self, profile: Profile) -> None:
        _check(profile.gittins)
        self._options = profile.gittins
        self._feedback = Feedback(profile.queues, profile.rounds_s)
        self._known = bool(profile.gittins.known_gpu_s)
        self._take_up(np.array(profile.gittins.known_gpu_s, dtype=np.float64))

    def learn(self, total_gpu_s: Floats) -> None:
        """Go by another sample, unless the distribution is known beforehand."""
        if not self._known:
            self._take_up(total_gpu_s)

    def _take_up(self, total_gpu_s: Floats) -> None:
        options = self._options
        self._index = index_of(total_gpu_s, options.quantum_gpu_s, options.quanta_ahead)
        self._falls_at = _next_fall(self._index)

    def _quanta(self, view: QueueView) -> Ints:
        quanta = ((view.attained_gpu_s + HAIR_GPU_S) / self._options.quantum_gpu_s).astype(np.int64)
        return np.minimum(quanta, len(self._index) - 1)

    def keys(self, view: QueueView) -> Floats:
        """The queue, minus the index, and two keys inside it (n x 4)."""
        index = self._index[self._quanta(view)]
        return np.column_stack((self._feedback.numbers(view), -index, self._feedback.inside(view)))

    def drifts_s(self, view: QueueView) -> Floats:
        """When jobs leave their queue, and when the index of running ones falls (n)."""
        falls = reaches_s(view, self._falls_at[self._quanta(view)] * self._options.quantum_gpu_s)
        drifts_s = self._feedback.drifts_s(view)
        return np.where(view.running, np.minimum(drifts_s, falls), drifts_s)


def index_of(total_gpu_s: Floats, quantum_gpu_s: float, ahead: int | None = None) -> Floats:
    """The Gittins index after 0, 1, 2, ... quanta of service, per GPU-second; 0 beyond every job.

    F(k) is the share of jobs that end within k quanta, M(k) the mean service of jobs up to k
    quanta. The index after k, looking m ahead, is (F(k + m) - F(k)) / (M(k + m) - M(k)): a slope
    between two points of the curve (M, F). The best m is the next corner of the upper hull of the
    points to the right, found by a stack from the right. O(n log n + quanta).
    """
    total = np.sort(total_gpu_s)
    if not len(total):
        return np.zeros(1)
    quanta = min(int(total[-1] // quantum_gpu_s) + 2, QUANTA_MOST)
    service = np.arange(quanta + 1) * quantum_gpu_s
    ended = np.searchsorted(total, service, side="right")
    sums = np.concatenate(([0.0], np.cumsum(total)))
    share = ended / len(total)
    mean = (sums[ended] + service * (len(total) - ended)) / len(total)
    to = (
        _corners(mean, share)
        if ahead is None
        else np.minimum(np.arange(quanta + 1) + ahead, quanta)
    )
    taken, won = mean[to] - mean, share[to] - share
    index: Floats = np.divide(won, taken, out=np.zeros(quanta + 1), where=taken > 0)
    return index


def _corners(x: Floats, y: Floats) -> Ints:
    """For each point of a rising curve, the nearest later one with the largest slope (n).

    O(n): the stack holds the upper hull of the points to the right.
    """
    xs, ys = x.tolist(), y.tolist()
    to: Ints = np.arange(len(xs))
    hull: list[int] = []
    for at in range(len(xs) - 1, -1, -1):
        while len(hull) > 1 and _below(xs, ys, at, hull[-1], hull[-2]):
            hull.pop()
        if hull:
            to[at] = hull[-1]
        hull.append(at)
    return to


def _below(xs: list[float], ys: list[float], a: int, b: int, c: int) -> bool:
    """Whether point b lies below the line from a to c."""
    return (ys[b] - ys[a]) * (xs[c] - xs[a]) < (ys[c] - ys[a]) * (xs[b] - xs[a])


def _next_fall(index: Floats) -> Floats:
    """For each number of quanta, after how many the index falls next; inf: never again (quanta)."""
    at = np.arange(1, len(index) + 1, dtype=np.float64)
    falls = np.where(np.append(np.diff(index) < 0, False), at, np.inf)
    return np.minimum.accumulate(falls[::-1])[::-1]


def _check(options: GittinsOptions) -> None:
    if options.quanta_ahead == 0:
        remedy = "1 or more; null: as far as is best"
        raise InvalidInput("must not be 0", field="--set gittins.quanta_ahead", remedy=remedy)
    if any(not 0 <= value < np.inf for value in options.known_gpu_s):
        remedy = "GPU-seconds, for example [600, 7200]"
        raise InvalidInput("are not all above 0", field="--set gittins.known_gpu_s", remedy=remedy)
