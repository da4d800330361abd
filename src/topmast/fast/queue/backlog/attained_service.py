"""The total service of jobs that succeeded, for orders that use its distribution (`Empirical`)."""

from __future__ import annotations

import numpy as np

from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.job import MILLI
from topmast.policies.base import Empirical, OrderPolicy

KEPT = 10_000
"""The total service is kept of so many of the latest jobs."""
RENEWED_EVERY = 16
"""The order takes up a new sample when a sixteenth more jobs than it knows have ended."""


class AttainedService:
    """Total GPU-seconds of the latest jobs, oldest first.

    Kept only for an order that learns from them.
    """

    def __init__(self, order: OrderPolicy) -> None:
        self._order = order if isinstance(order, Empirical) else None
        self.total_gpu_s: list[float] = []
        self._unknown = 0
        """Jobs that ended since the order took up a sample."""

    def learn(self, record: JobRecord, gpus: float) -> bool:
        """Note a job that succeeded; whether the keys of all jobs changed.

        Amortised O(log KEPT).
        """
        if self._order is None:
            return False
        if len(self.total_gpu_s) >= KEPT:
            del self.total_gpu_s[: KEPT // RENEWED_EVERY]
        if record.spec.elastic is None:
            self.total_gpu_s.append(record.held_s * gpus)
        else:
            own_gpus = record.spec.gpus_milli() / MILLI
            self.total_gpu_s.append(record.held_s * own_gpus + record.extra_gpu_s)
        self._unknown += 1
        if self._unknown * RENEWED_EVERY < len(self.total_gpu_s):
            return False
        self._renew()
        return True

    def restore(self, total_gpu_s: list[float]) -> None:
        """Take up what a snapshot holds."""
        self.total_gpu_s = total_gpu_s
        if self._order is not None:
            self._renew()

    def _renew(self) -> None:
        assert self._order is not None
        self._unknown = 0
        self._order.learn(np.array(self.total_gpu_s))
