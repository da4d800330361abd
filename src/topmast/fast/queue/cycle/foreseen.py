"""What was asked about jobs behind a candidate, and the plans that came (see `behind`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, UnsetType, field

from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.backlog.placement_class import JobClass, Verdict
from topmast.model.columns import PlanColumns

PER_REQUEST = 16
"""So many jobs with a plan that was foreseen take as long as one that is asked about by itself."""
MOST = 3_200
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

    @property
    def verdicts(self) -> Mapping[bool, Verdict]:
        """What jobs of its placement class have heard."""
        return self.job_class.placement[self.over_quota].verdicts

    def covers(self, candidate: Candidate, job_class: JobClass, choices: tuple[int, ...]) -> bool:
        """Whether a candidate is of this kind."""
        alike = self.job_class is job_class and self.over_quota is candidate.over_quota
        return alike and self.choices == choices


class Asked(Struct, frozen=True):
    """Jobs behind a candidate, in their order."""

    jobs: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ()
    kind: tuple[int, ...] = ()
    """By job, which of the kinds."""
    are_all: bool = False
    """Whether no job is asked about behind these, in this mode: none is left."""


class Chosen(Struct):
    """Plans of one answer that won and were not sent yet, in columns as in `CommitPlans`."""

    plans: PlanColumns
    rows: list[int] = []
    columns: tuple[list[Any], ...] = field(default_factory=lambda: ([], [], [], [], []))
    """Epochs, requests, bands, what is left of time limits, expected runs."""


class Foreseen:
    """Plans for the jobs behind the last candidate, and how many are worth asking about."""

    def __init__(self) -> None:
        self.asked = Asked()
        """The jobs behind."""
        self.plans: PlanColumns | None = None
        """For the candidate, and the first of those."""
        self.row = 0
        """Which of the plans is the last that was taken."""
        self.chosen: Chosen | None = None
        self.last = ""
        """The job before the next of these plans."""
        self.awaited = False
        """Whether an answer about them is to come."""
        self.are_chosen = False
        """Whether the plans are chosen of those of several regions, and in no event."""
        self.most = MOST
        """How many jobs to ask about at once."""
        self.pause = 0
        """How many candidates to ask about one by one."""

    @property
    def left(self) -> int:
        """How many plans are there for the next jobs."""
        return 0 if self.plans is None else len(self.plans) - 1 - self.row

    def ask(self, asked: Asked, last: str) -> None:
        """The fleet placer is asked about these jobs, behind another."""
        self.asked, self.last, self.awaited = asked, last, True

    def hear(self, plans: PlanColumns | UnsetType, *, are_chosen: bool = False) -> None:
        """The fleet placer has answered, or (``are_chosen``) each of the regions."""
        if not self.awaited:
            return
        self.awaited, self.row, self.are_chosen = False, 0, are_chosen
        self.plans = plans or None
        found, asked = self.left, len(self.asked.jobs)
        if found == asked:
            self.most = min(MOST, 2 * self.most)
        else:
            self.most = max(LEAST, 2 * found)
            self.pause = 0 if found else PAUSE

    def kind_of(self, row: int) -> Kind:
        """Of the job behind that has this plan."""
        return self.asked.kinds[self.asked.kind[row - 1]]

    def choose(self, rows: Iterable[int], *columns: Iterable[Any]) -> None:
        """Some of these plans won; ``columns``: what there is to say of each (see `Chosen`)."""
        assert self.plans is not None
        chosen = self.chosen = self.chosen or Chosen(self.plans)
        chosen.rows += rows
        for known, more in zip(chosen.columns, columns, strict=True):
            known += more

    def forget(self) -> None:
        """Something else happens, or other events get their turn: it may be true no more."""
        self.plans = None
