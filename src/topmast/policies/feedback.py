"""Queues by attained service (multi-level feedback): what the orders that use them share.

A job begins in the top queue. It sinks to the next one when its attained service, GPUs x executed
time, reaches a threshold (Tiresias, NSDI '19: discretised 2D-LAS). A job that starves rises to the
top again, and its attained service starts from 0.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from topmast.model.errors import InvalidInput
from topmast.policies.base import Floats, QueueView
from topmast.policies.options import InsideQueue, QueueOptions

HAIR_GPU_S = 1e-3
"""So much short of a threshold counts as there: times are whole microseconds."""
HAIR_S = 1e-3
"""A job that begins to run at a threshold has not sunk in this run."""
RUNS, STOPPED, CAME = range(3)
"""Places in a list, the first in front; what came last, by arrival or from above, is at its end."""


class Feedback:
    """In which queue jobs are, and when they get into another."""

    def __init__(self, options: QueueOptions, rounds_s: float | None = None) -> None:
        """Raises InvalidInput for thresholds that do not ascend from above 0, or a knob of 0.

        ``rounds_s``: jobs are tried at multiples of it only, as `Profile.rounds_s`.
        """
        _check(options)
        self._options = options
        self._rounds_s = rounds_s or 0.0
        self._ends: Floats = np.array([*options.thresholds_gpu_s, np.inf])

    def numbers(self, view: QueueView) -> Floats:
        """The queue of every job, 0 on top (n). O(n log queues)."""
        reached = view.attained_gpu_s + HAIR_GPU_S
        return np.searchsorted(self._ends, reached, side="right").astype(np.float64)

    def inside(self, view: QueueView) -> Floats:
        """Keys inside a queue (n x 2). O(n)."""
        if self._options.within is InsideQueue.FIRST_START:
            return np.column_stack((view.first_start_s, view.submit_s))
        if self._options.within is InsideQueue.LISTED:
            return self._listed(view)
        since_s = np.where(view.running, view.first_start_s, view.since_s)
        return np.column_stack((~view.running, since_s))

    def _listed(self, view: QueueView) -> Floats:
        """As in a list for each queue, of which no place has to be kept (n x 2). O(n log queues).

        At its front are the jobs that run, in the order in which they began to run in this queue.
        A job that is stopped stays before all that wait; a job that comes, or sinks while it runs,
        goes behind them. If nothing stops it at that moment, it runs on, with those at the front.
        In rounds, what sank since the last one sinks when the next one begins: less than a round
        of service in this queue is none yet.
        """
        begins_gpu_s = np.concatenate(([0.0], self._ends))[self.numbers(view).astype(np.int64)]
        had_gpu_s = view.attained_gpu_s - begins_gpu_s
        round_gpu_s = self._rounds_s * view.gpus
        ran_here = had_gpu_s > np.maximum(2 * HAIR_GPU_S, round_gpu_s - HAIR_GPU_S)
        with np.errstate(divide="ignore", invalid="ignore"):
            entered_s = np.where(view.gpus > 0, view.now_s - had_gpu_s / view.gpus, -np.inf)
        if self._rounds_s:
            entered_s = np.ceil((entered_s - HAIR_S) / self._rounds_s) * self._rounds_s
        sank = entered_s > view.since_s + HAIR_S
        has_sunk = view.running & ~ran_here & sank
        # What sinks comes behind what began to run at that moment.
        began_s = np.where(sank, entered_s + HAIR_S, view.since_s)
        waits = np.where(ran_here, STOPPED, CAME)
        place = np.where(view.running, np.where(has_sunk, CAME, RUNS), waits)
        waits_s = np.where(ran_here, -view.since_s, view.since_s)
        return np.column_stack((place, np.where(view.running, began_s, waits_s)))

    def drifts_s(self, view: QueueView) -> Floats:
        """When each job leaves its queue by itself (n); inf: never. O(n log queues)."""
        queue = self.numbers(view)
        sinks_s = reaches_s(view, self._ends[queue.astype(np.int64)])
        return np.where(view.running, sinks_s, self._rises_s(view, queue))

    def _rises_s(self, view: QueueView, queue: Floats) -> Floats:
        knob = self._options.promote_knob
        if knob is None:
            return np.full(len(queue), np.inf)
        starves_s = view.since_s + knob * view.executed_s
        return np.where((queue > 0) & (view.executed_s > 0), starves_s, np.inf)


def reaches_s(view: QueueView, service_gpu_s: Floats) -> Floats:
    """When each job, if it runs on, has had so much service; inf for one without GPUs (n). O(n)."""
    left_gpu_s = np.maximum(0.0, service_gpu_s - view.attained_gpu_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        left_s = left_gpu_s / view.gpus
    return np.where(view.gpus > 0, view.now_s + left_s, np.inf)


def _check(options: QueueOptions) -> None:
    bounds = (0.0, *options.thresholds_gpu_s)
    if not all(low < high < math.inf for low, high in pairwise(bounds)):
        raise InvalidInput(
            "do not ascend from above 0",
            field="--set queues.thresholds_gpu_s",
            remedy="GPU-seconds, for example [3250, 7200]",
        )
    if options.promote_knob == 0:
        raise InvalidInput(
            "0 is out of range",
            field="--set queues.promote_knob",
            remedy="more than 0, or null for no promotion",
        )
