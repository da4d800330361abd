"""When running work may be moved for a waiting job, and what room for that job is worth.

Working memory, never journalled: after a restart a job waits again before others move for it.
"""

from __future__ import annotations

import copy

from topmast.fast.preemption_cost import gpu_seconds, weight_of
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.job import Band
from topmast.policies.options import Profile

ASK_EVERY_S = 10.0
"""A job's moves are not looked for more often than that."""


class Defragmentation:
    """The jobs that found no room, since when, and when to ask about moves again."""

    def __init__(self, profile: Profile) -> None:
        self.is_on = profile.defragment
        self.after_s = profile.defragment_after_s
        self.cap_s = profile.defragment_cap_s
        self._refused_s: dict[str, float] = {}
        self._asked_s: dict[str, float] = {}

    def may_ask(self, job: str, now: float) -> bool:
        """Whether a job found no room for so long that others may be moved for it now."""
        due_s = self._due_s(job)
        return due_s is not None and due_s <= now

    def asked(self, job: str, now: float) -> None:
        """Moves for a job are looked for: not again for a while, whatever comes of it."""
        self._asked_s[job] = now

    def found_no_room(self, job: str, now: float) -> float | None:
        """A job found no room; returns when moves may be looked for, which is not now."""
        if not self.is_on:
            return None
        self._refused_s.setdefault(job, now)
        due_s = self._due_s(job)
        return due_s if due_s is not None and due_s > now else now + ASK_EVERY_S

    def refused(self, job: str, now: float) -> tuple[Defragmentation, float | None]:
        """As it would be if a job found no room now, and when the queue would look for moves."""
        other = copy.copy(self)
        other._refused_s, other._asked_s = dict(self._refused_s), dict(self._asked_s)
        if self.may_ask(job, now):
            other.asked(job, now)
        return other, other.found_no_room(job, now)

    @property
    def knows_jobs(self) -> bool:
        """Whether there is any job that waits for room."""
        return bool(self._refused_s or self._asked_s)

    def let_go(self, job: str) -> None:
        """A job waits no more."""
        self._refused_s.pop(job, None)
        self._asked_s.pop(job, None)

    def worth_gpu_s(self, record: JobRecord, band: Band, now: float) -> float:
        """What room for a job is worth: its GPUs x its time without room x the weight of its band.

        The time so far, up to the cap, is the guess of the time to come.
        """
        waited_s = min(now - self._refused_s.get(record.id, now), self.cap_s)
        return weight_of(band) * gpu_seconds(waited_s, record.spec.gpus_milli())

    def _due_s(self, job: str) -> float | None:
        refused_s = self._refused_s.get(job)
        if refused_s is None:
            return None
        due_s = refused_s + self.after_s
        if job in self._asked_s:
            due_s = max(due_s, self._asked_s[job] + max(self.after_s, ASK_EVERY_S))
        return due_s
