"""A large gang must not starve: room is reserved for it, and others use it only until then (EASY).

The first job in order that finds no room and has waited long enough gets a reservation: the seats,
over all regions, where it is expected to start first. The job keeps it until it starts or leaves,
so that none can overtake it for ever. Reservations are working memory, never journalled: the first
job that finds no room after a restart gets one again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.job import Band
from topmast.model.plan import Reservation

REFRESH_PART = 0.005
"""Of the time until it begins: so long a reservation stands at least."""
REFRESH_S = 1.0
"""The shortest time between two reservations: one at each end of a job would fill a large fleet's
day."""


class Backfill:
    """The reservation, if there is one. ``after_s`` None never reserves anything."""

    def __init__(self, after_s: float | None) -> None:
        self.after_s = after_s
        self.reservation: Reservation | None = None
        self.due_s: float | None = None
        """When the next job will have waited long enough."""
        self.freed: dict[tuple[str, str], None] = {}
        """Regions and clusters where seats were kept that are there for others now."""
        self._made_s, self._made_over_quota = -math.inf, False
        self._band = Band.OPPORTUNISTIC
        self._gpus_milli = 0

    def may_reserve(self, record: JobRecord, now: float) -> bool:
        """Whether room may be reserved for a job that finds none: it waited, and was the first to.

        Not anew for one for which that was done just now.
        """
        # The sum that is waited for: a rounded difference may be too short at that very moment.
        if self.after_s is None or now < record.submit_s + self.after_s:
            return False
        if self.reservation is None:
            return True
        held = self.reservation
        return held.job == record.id and now >= self._anew_s(held)

    def binds(
        self, job: str, band: Band, gpus_milli: int, remaining_s: float, now: float
    ) -> Reservation | None:
        """The reservation that a job must respect, for it would not be gone in time.

        Not its own; and not that of a job of a lower band that is no larger: one that could be
        stopped for it as soon as it ran.
        """
        held = self.reservation
        if held is None or held.job == job or remaining_s <= held.from_s - now:
            return None
        return None if band > self._band and gpus_milli >= self._gpus_milli else held

    def blocks_from_s(self, held: Reservation | None, now: float) -> float:
        """How long a job must need, at least, to fail as one did that respected ``held``."""
        return -math.inf if held is None else math.nextafter(held.from_s - now, math.inf)

    def found_no_room(
        self,
        record: JobRecord,
        band: Band,
        over_quota: bool,
        offered: Iterable[Reservation | None],
        now: float,
    ) -> float | None:
        """A job found no room now, and regions told where it would first; returns its next turn.

        The room kept before may be taken now if its job is expected elsewhere, or later: jobs that
        were refused for it deserve another look.
        """
        if self.after_s is None:
            return None
        before = self.reservation
        there = [offer for offer in offered if offer is not None]
        if there and (before is None or before.job == record.id):
            self.reservation = min(there, key=lambda r: (r.from_s, r.region, r.cluster))
            # Asked within quota and over it, the job keeps the better of its bands.
            self._band = band if before is None else max(band, self._band)
            self._gpus_milli = record.spec.gpus_milli()
            self._made_s, self._made_over_quota = now, over_quota
            self.due_s = None
            after = self.reservation
            if before and (before.seats != after.seats or after.from_s > before.from_s):
                self.freed[before.region, before.cluster] = None
            # An attempt that should have ended by then may be late, and another place better.
            return self._late_s(self.reservation, now)
        if before is not None and before.job == record.id and now < self._anew_s(before):
            other_mode = now == self._made_s and over_quota is not self._made_over_quota
            return self._late_s(before, now) if other_mode else self._anew_s(before)
        due_s = record.submit_s + self.after_s
        if before is None and now < due_s:
            self.due_s = due_s if self.due_s is None else min(self.due_s, due_s)
        return None

    def _anew_s(self, reservation: Reservation) -> float:
        """When it may be made anew: the farther off its time is, the less often."""
        return self._made_s + max(REFRESH_S, (reservation.from_s - self._made_s) * REFRESH_PART)

    def _late_s(self, reservation: Reservation, now: float) -> float:
        """When a job should have started that has not."""
        return max(now, reservation.from_s) + REFRESH_S

    def let_go(self, job: str) -> None:
        """A job waits no more: if room was reserved for it, that is there for others."""
        held = self.reservation
        if held is not None and held.job == job:
            self.freed[held.region, held.cluster] = None
            self.reservation = None

    @property
    def holder(self) -> str | None:
        """The job that room is reserved for."""
        return None if self.reservation is None else self.reservation.job

    @property
    def is_given(self) -> bool:
        """Whether no other job can get a reservation now."""
        return self.after_s is None or self.reservation is not None

    def take_freed(self) -> list[tuple[str, str]]:
        """Regions and clusters of seats that are kept no more; told once."""
        freed, self.freed = list(self.freed), {}
        return freed

    def is_due(self, now: float) -> bool:
        """Whether a job has waited long enough now; told once."""
        if self.due_s is None or self.due_s > now:
            return False
        self.due_s = None
        return True
