"""Order `attained-service` (2D-LAS): the job with the fewest GPU-seconds first, queue by queue.

It needs no estimate of how long jobs run.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from topmast.policies.base import Floats, QueueView
from topmast.policies.feedback import Feedback
from topmast.policies.options import Profile


class AttainedService:
    """By queue, then in the order that the profile keeps inside a queue; whatever the band."""

    source: ClassVar[str] = "Tiresias (Gu et al., NSDI '19): discretised 2D-LAS"
    options: ClassVar[tuple[str, ...]] = ("queues",)
    by_band = False
    by_time = False

    def __init__(self, profile: Profile) -> None:
        self._feedback = Feedback(profile.queues, profile.rounds_s)

    def keys(self, view: QueueView) -> Floats:
        """The queue and two keys inside it (n x 3)."""
        return np.column_stack((self._feedback.numbers(view), self._feedback.inside(view)))

    def drifts_s(self, view: QueueView) -> Floats:
        """When jobs leave their queue (n)."""
        return self._feedback.drifts_s(view)
