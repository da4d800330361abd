"""Copies on demand: whether one is cheaper than to wait for the data, and how many there may be.

Waiting is compared with copying, in seconds. The length of the wait is unknown; known are when
room near the data is expected if no other job takes it, and how long the job has waited. A copy
is ordered when the greater of the two reaches the time of the copy times ``copy_patience``. With
a useless forecast that costs at most twice the better choice (the rule of ski rental; Karlin et
al., Competitive snoopy caching, 1988).
"""

from __future__ import annotations

import bisect

from msgspec import Struct

from topmast.fast.queue.jobs.record import JobRecord
from topmast.policies.options import Profile


class Wait(Struct, frozen=True):
    """Why a job waits near its data though there is room elsewhere, and until when at most."""

    why: str
    until_s: float


class Fetches:
    """The jobs that had data copied on demand in the last period. Changed by facts alone."""

    def __init__(self, profile: Profile) -> None:
        self._patience = profile.copy_patience
        self.most = profile.copies_per_period
        """For so many jobs at most data may be copied in one period."""
        self._period_s = profile.copy_period_s
        self.noted: list[tuple[float, str]] = []
        """When, and for which job."""

    @property
    def weighs(self) -> bool:
        """Whether anything stands between a job that finds room away from its data and a copy."""
        return self._patience > 0 or self.most is not None

    def note(self, job: str, now: float) -> None:
        """A copy was begun for a job; several at once are one. Amortised O(1)."""
        if self.noted and self.noted[-1] == (now, job):
            return
        self.noted.append((now, job))
        if self.noted[0][0] <= now - 2 * self._period_s:
            del self.noted[: self._first(now)]

    def count(self, now: float) -> int:
        """For how many jobs within the last period. O(log n)."""
        return len(self.noted) - self._first(now)

    def _first(self, now: float) -> int:
        # The sum that `next_s` gives: a rounded difference may still be too long ago by then.
        return bisect.bisect_right(self.noted, now, key=lambda noted: noted[0] + self._period_s)

    def price_s(self, copy_s: float) -> float:
        """What waiting may cost, in seconds, before a copy of ``copy_s`` is the better choice."""
        return copy_s * self._patience

    def waits_until_s(self, record: JobRecord, copy_s: float) -> float:
        """When a job will have waited for as long as that."""
        return waits_since_s(record) + self.price_s(copy_s)

    def wait(
        self, region: str, copy_s: float, room_s: float | None, since_s: float, now: float
    ) -> Wait | None:
        """Whether to wait rather than copy to ``region``, which takes ``copy_s``; None: copy.

        ``room_s``: when room is expected near the data. ``since_s``: since when the job waits.
        """
        again_s = self.next_s(now)
        if again_s is not None:
            why = f"data was copied for {self.count(now)} jobs in this period, which is the limit"
            return Wait(why, again_s)
        price_s = self.price_s(copy_s)
        until_s = since_s + price_s
        if now >= until_s or room_s is None or room_s >= now + price_s:
            return None
        left_s = max(0.0, room_s - now)
        near = f"room is expected where its data is in {left_s:.0f} s"
        why = f"{near}, and a copy to {region} would take {copy_s:.0f} s"
        return Wait(why, min(until_s, room_s))

    def next_s(self, now: float) -> float | None:
        """None if data may be copied for one more job now; else when it may again."""
        if self.most is None or self.count(now) < self.most:
            return None
        if not self.most:
            return now + self._period_s
        return self.noted[len(self.noted) - self.most][0] + self._period_s


def waits_since_s(record: JobRecord) -> float:
    """Since when a job waits: since it was submitted, or stopped last."""
    return record.submit_s if record.stopped_s is None else record.stopped_s
