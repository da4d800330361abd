"""On the way of a job that runs: its first mini-batches, and what it says of its length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from topmast.model import ids
from topmast.model import messages as m
from topmast.model.ids import Address
from topmast.model.job import JobChanges
from topmast.sim.marks import Marks
from topmast.sim.sharing import EARLY_STEPS, Sharing
from topmast.sim.workload import Arrival


class OnWay:
    """Sets the marks of jobs when they are submitted."""

    def __init__(
        self,
        marks: Marks,
        sharing: Sharing | None,
        post: Callable[[Address, Sequence[m.Message]], object],
    ) -> None:
        """``sharing``: counts mini-batches; None: they are not counted."""
        self.early_s: dict[str, float] = {}
        """By job: when the first mini-batches were done that people wait for."""
        self._marks = marks
        self._sharing = sharing
        self._post = post

    def submitted(self, job: str, arrival: Arrival) -> None:
        """O(what it will say)."""
        if self._sharing is not None:
            early_s = EARLY_STEPS / self._sharing.steps_per_s(job)
            first_s = min(early_s, arrival.duration_s)
            self._marks.add(job, first_s, self.early_s.__setitem__)
        for share, expected_s in arrival.expects:
            self._marks.add(job, share * arrival.duration_s, partial(self._say, expected_s))

    def _say(self, expected_s: float, job: str, now: float) -> None:
        """It is expected to run for so long in all, as its user would say."""
        changes = JobChanges(duration_s=expected_s)
        self._post(ids.QUEUE, (m.EditJobs((job,), changes),))
