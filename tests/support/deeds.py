"""What people do to jobs, by number: for tests that draw it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topmast.model import messages as m
from topmast.model.job import Band, JobChanges

ACTS: Sequence[Callable[[str], m.Message]] = (
    lambda job: m.HoldJobs((job,), "ann"),
    lambda job: m.HoldJobs((job,), "ann", "too loud", stop=True),
    lambda job: m.ReleaseJobs((job,), "ann"),
    lambda job: m.ReleaseJobs((job,)),
    lambda job: m.PreemptJobs((job,), "ann"),
    lambda job: m.RequeueJobs((job,), "ann"),
    lambda job: m.EditJobs((job,), JobChanges(band=Band.HIGH), "ann"),
    lambda job: m.EditJobs((job,), JobChanges(band=Band.LOW, max_restarts=1, preemptible=True)),
    lambda job: m.EditJobs((job,), JobChanges(time_limit_s=None)),
)
"""One for each kind of act, and of what it says."""


def act_on(job: str, number: int) -> m.Message:
    """The act of a number."""
    return ACTS[number % len(ACTS)](job)
