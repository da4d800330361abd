"""The running jobs in the order of waiting ones, where a job may stop those that rank behind it.

They are put in order once for all candidates that are tried while nothing is decided.
"""

from __future__ import annotations

from bisect import bisect_right

from msgspec import Struct

from topmast.fast.queue.backlog.ordered_index import Key
from topmast.fast.queue.jobs.record import JobRecord


class RunningOrder(Struct, frozen=True):
    """All running jobs, the first in rank first."""

    as_of: tuple[float, int, int]
    """The time, the facts that were decided, and how often all jobs were ranked."""
    keys: list[Key]
    jobs: tuple[str, ...]

    def behind(self, key: Key) -> tuple[str, ...]:
        """The jobs that rank behind a key, the last first. O(these)."""
        return self.jobs[bisect_right(self.keys, key) :][::-1]


def running_order(
    as_of: tuple[float, int, int], keys: list[Key], running: list[JobRecord]
) -> RunningOrder:
    """The order of running jobs with these keys. O(jobs log jobs)."""
    ranked = sorted(zip(keys, [record.id for record in running], strict=True))
    return RunningOrder(as_of, [key for key, _ in ranked], tuple(job for _, job in ranked))
