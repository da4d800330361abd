"""An act on jobs, as a request says it, and what it does to each of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from msgspec import UNSET, Struct

from topmast.fast.queue import JUDGES, Effect, JobRecord, Judgement, judge_edit, judge_requeue
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.access import Permission
from topmast.model.act_views import JobEffect
from topmast.model.job import JobChanges
from topmast.model.states import JobState
from topmast.model.views import JobView


class JobsAct(Struct, frozen=True):
    """An act on jobs, as a request says it."""

    verb: str
    jobs: tuple[str, ...] = ()
    selector: str = ""
    """Instead of naming jobs."""
    by: str = ""
    reason: str = ""
    dry_run: bool = False
    changes: JobChanges = JobChanges()
    """What `edit` changes."""

    def judge(self, tenants: Collection[str]) -> Callable[[JobRecord], Judgement]:
        """What it would do to a job, with these tenants in the fleet."""
        if self.verb == "edit":
            return partial(judge_edit, changes=self.changes)
        if self.verb == "requeue":
            return partial(judge_requeue, tenants=tenants)
        return JUDGES[self.verb]

    def leaves_out(self, record: JobRecord) -> bool:
        """Whether a sweep or a selector does not mean a job here, which by itself is refused."""
        return self.verb == "requeue" and record.state is JobState.SUCCEEDED

    @property
    def is_on_one(self) -> bool:
        """Whether it is about one job at most, by its name."""
        return len(self.jobs) == 1 and ids.job_number(self.jobs[0]) >= 0

    @property
    def permission(self) -> Permission:
        """What it takes to act so on own jobs."""
        return Permission.JOBS_CANCEL if self.verb == "cancel" else Permission.JOBS_EDIT

    def order(self, by: str) -> Callable[[tuple[str, ...]], m.Message]:
        """The message to the queue about jobs."""
        more = {"changes": self.changes} if self.verb == "edit" else {}
        return partial(ORDERS[self.verb], by=by, reason=self.reason or UNSET, **more)


ORDERS: dict[str, Callable[..., m.Message]] = {
    "cancel": m.CancelJobs,
    "hold": m.HoldJobs,
    "release": m.ReleaseJobs,
    "suspend": partial(m.HoldJobs, stop=True),
    "resume": m.ReleaseJobs,
    "preempt": m.PreemptJobs,
    "requeue": m.RequeueJobs,
    "edit": m.EditJobs,
}
"""By verb: the message to the queue."""
NAMED_LENGTH = 200
"""Characters of what a request names, in the audit log."""
STOPS = frozenset({"cancel", "suspend", "preempt", "requeue"})
"""Acts that take the GPUs of jobs."""


class Target(Struct):
    """A job that was named or selected, and what the act does to it."""

    job: str
    tenant: str = ""
    user: str = ""
    judgement: Judgement = Judgement()
    gpus: float = 0.0
    lost_gpu_h: float = 0.0
    forbidden: str = ""
    """The permission that the caller lacks, in words."""
    is_hidden: bool = False
    """It is there, but the caller may not see it, and is told that there is none."""
    view: JobView | None = None
    """The job as it stands after the act."""

    @property
    def is_done(self) -> bool:
        return self.judgement.effect is Effect.DONE

    def forbid(self, why: str) -> None:
        self.judgement, self.forbidden = Judgement(Effect.REFUSED, why), why

    def effect(self) -> JobEffect:
        judgement = self.judgement
        cost = (self.gpus, self.lost_gpu_h) if self.is_done else (0.0, 0.0)
        return JobEffect(self.job, judgement.effect.value, judgement.why, *cost)


ENDED = Judgement(Effect.UNCHANGED, "has ended")
LATE = Judgement(Effect.UNCHANGED, "another request did something to it at the same time")


def named(jobs: Sequence[str]) -> str:
    """Jobs as a request names them, in a few characters; also names that no job can have."""
    others = [job for job in jobs if ids.job_number(job) < 0]
    ours = ids.compact([job for job in jobs if ids.job_number(job) >= 0])
    return ",".join([*([ours] if ours else []), *others])[:NAMED_LENGTH]
