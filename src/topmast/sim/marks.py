"""Points in the work of jobs at which something is to be said: each is passed once.

Work is in seconds on the reference GPU, counted from the beginning of the job. What a job has to do
again after a failure passes no mark for a second time.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

Note = Callable[[str, float], object]
"""Called with the job and the time."""
MARGIN = 1e-6
"""Times are rounded: so much less than the work counts as all of it."""


class Mark(Struct, frozen=True, order=False, gc=False):
    """``note`` is called when so much work of a job is done."""

    work_s: float
    note: Note


class Marks:
    """The marks that are not passed yet, by job."""

    def __init__(self) -> None:
        self._ahead: dict[str, list[Mark]] = {}

    def add(self, job: str, work_s: float, note: Note) -> None:
        """One more. O(marks of the job)."""
        ahead = self._ahead.setdefault(job, [])
        ahead.append(Mark(work_s, note))
        ahead.sort(key=lambda mark: mark.work_s)

    def next_s(self, job: str) -> float | None:
        """The work at the next one; None if there is none. O(1)."""
        ahead = self._ahead.get(job)
        return ahead[0].work_s if ahead else None

    def done(self, job: str, work_s: float, now: float) -> None:
        """So much is done: what that passes is noted."""
        ahead = self._ahead.get(job, [])
        while ahead and work_s >= ahead[0].work_s * (1 - MARGIN):
            ahead.pop(0).note(job, now)
        if not ahead:
            self._ahead.pop(job, None)
