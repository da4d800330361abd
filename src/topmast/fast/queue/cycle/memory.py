"""The working memory of the cycle: never journalled, after a restart made anew or forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from topmast.fast.queue.cycle.auction import PendingDecision
from topmast.fast.queue.cycle.backfill import Backfill
from topmast.fast.queue.cycle.defragmentation import Defragmentation
from topmast.fast.queue.cycle.early_binding import EarlyBinding
from topmast.fast.queue.cycle.foreseen import Foreseen
from topmast.fast.queue.cycle.liveness import Reach
from topmast.fast.queue.cycle.prefetch import Prefetch
from topmast.policies.base import BindPolicy
from topmast.policies.options import Profile


class Cycle:
    """What is being decided, what regions have said, and what is kept for jobs without room."""

    def __init__(self, profile: Profile, bind: BindPolicy | None) -> None:
        self.binding = EarlyBinding(profile.bind, bind)
        self.backfill = Backfill(profile.reserve_after_s)
        self.defragmentation = Defragmentation(profile)
        self.reach = Reach()
        self.prefetch = Prefetch(profile.ask_ahead)
        self.foreseen = Foreseen()
        self.decision: PendingDecision | None = None
        """The job that regions are being asked about."""
        self.batch = 0
        """Number of the last question."""
        self.budget = 0
        """Plans to be sought yet before others get their turn."""

    def let_go_each(self, jobs: Sequence[str]) -> None:
        """Jobs wait no more. O(jobs), or O(1) where nothing is known of any job."""
        are_bound = self.binding.patience.next_s() is not None
        if self.defragmentation.knows_jobs or are_bound or self.backfill.reservation is not None:
            for job in jobs:
                self.let_go(job)

    def let_go(self, job: str) -> None:
        """A job waits no more. O(1)."""
        self.defragmentation.let_go(job)
        self.binding.patience.drop(job)
        self.backfill.let_go(job)
