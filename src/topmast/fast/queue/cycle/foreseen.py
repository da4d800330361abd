"""What was asked about jobs behind a candidate, and the plans that came (see `behind`)."""

from __future__ import annotations

from collections import deque

from msgspec import Struct, UnsetType

from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.backlog.placement_class import JobClass
from topmast.model.messages import CommitPlan
from topmast.model.plan import Plan

MOST = 200
"""Jobs behind one that are asked about with it."""
LEAST = 8
"""Fewer than that are asked about one by one."""
PAUSE = 32
"""After an answer in vain so many candidates are asked about one by one."""


class Kind(Struct, frozen=True, gc=False):
    """What decides the request for a common job: jobs of one kind have the same."""

    job_class: JobClass
    over_quota: bool
    choices: tuple[int, ...]

    def covers(self, candidate: Candidate, job_class: JobClass, choices: tuple[int, ...]) -> bool:
        """Whether a candidate is of this kind."""
        alike = self.job_class is job_class and self.over_quota is candidate.over_quota
        return alike and self.choices == choices


class Foreseen:
    """Plans for the jobs behind the last candidate, and how many are worth asking about."""

    def __init__(self) -> None:
        self.asked: dict[str, Kind] = {}
        """By job, in order."""
        self.plans: deque[Plan] = deque()
        """For the first of those."""
        self.commits: dict[str, list[CommitPlan]] = {}
        """By region, those of these plans that were chosen, not sent yet."""
        self.last = ""
        """The job before the first of these plans."""
        self.gathers = False
        """Whether commits are sent together, before the next request."""
        self.awaited = False
        """Whether an answer about them is to come."""
        self.most = MOST
        """How many jobs to ask about at once."""
        self.pause = 0
        """How many candidates to ask about one by one."""

    def ask(self, asked: dict[str, Kind], last: str) -> None:
        """The fleet placer is asked about these jobs, behind another."""
        self.asked, self.last, self.awaited = asked, last, True

    def hear(self, plans: tuple[Plan, ...] | UnsetType) -> None:
        """The fleet placer has answered."""
        if not self.awaited:
            return
        self.awaited, self.plans = False, deque(plans or ())
        self.gathers = bool(self.plans)
        if len(self.plans) == len(self.asked):
            self.most = min(MOST, 2 * self.most)
        else:
            self.most = max(LEAST, 2 * len(self.plans))
            self.pause = 0 if self.plans else PAUSE

    def forget(self) -> None:
        """Something else happens, or other events get their turn: it may be true no more."""
        self.plans.clear()
        self.gathers = False
