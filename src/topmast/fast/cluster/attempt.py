"""One attempt as its cluster manager knows it: a gang of tasks and how far each has come."""

from __future__ import annotations

from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType, field

from topmast.model.absent import given
from topmast.model.job import JobSpec
from topmast.model.plan import Seat
from topmast.model.states import Outcome


class TaskPhase(StrEnum):
    """How far a task has come."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class Task(Struct, gc=False, omit_defaults=True):
    """One task: ``code`` None after its end means that it left no exit status."""

    seat: Seat
    phase: TaskPhase = TaskPhase.WAITING
    code: int | None = None
    ended_s: float | UnsetType = UNSET


class AttemptPhase(StrEnum):
    """How far the gang has come."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


PAUSES_KEPT = 64
"""So many pauses are remembered one by one; older ones as a sum."""


class Turn(Struct, gc=False):
    """How an attempt takes turns with others on its GPUs."""

    service_s: float
    """Its service at ``since_s``."""
    since_s: float
    """When it got its GPUs last, or was paired or parted."""
    held: bool = False
    """It was not started yet."""
    still_s: float | None = None
    """Since when others have its GPUs; None while it has them."""
    pauses: list[tuple[float, float]] = []
    """Pauses since the last checkpoint: (from, length)."""
    paused_s: float = 0.0
    """The sum of the pauses before it."""
    rate: float | None = None
    """Steps per second with its GPUs for itself."""
    partner: str | None = None
    """The job that has the same GPUs at the same time."""
    trial_s: float | None = None
    """The end of the pair's trial."""
    beside: float | None = None
    """Steps per second beside the partner."""
    refused: dict[str, float] = {}
    """Jobs not to be tried with before a time."""

    def served_s(self, now: float) -> float:
        """The service got by ``now``, which decides about turns.

        The two of a pair get half each, as the GPUs are used once: a pair has the turns of two, and
        the gangs over it lose nothing.
        """
        part = 1.0 if self.partner is None else 0.5
        return self.service_s + (part * (now - self.since_s) if self.still_s is None else 0.0)

    def pair(self, other: str, trial_s: float, now: float) -> None:
        """Another has the same GPUs at the same time from now on."""
        self.service_s, self.since_s = self.served_s(now), now
        self.partner, self.trial_s, self.beside = other, trial_s, None

    def part(self, now: float) -> None:
        """It has its turns to itself from now on."""
        self.service_s, self.since_s = self.served_s(now), now
        self.partner = self.trial_s = self.beside = None

    def stop(self, now: float) -> None:
        """Others have the GPUs from now on."""
        self.service_s, self.since_s, self.still_s = self.served_s(now), now, now

    def go(self, now: float) -> None:
        """It has its GPUs (again)."""
        if self.still_s is not None:
            self.pauses.append((self.still_s, now - self.still_s))
            if len(self.pauses) > PAUSES_KEPT:
                self.paused_s += self.pauses.pop(0)[1]
        self.since_s, self.still_s, self.held = now, None, False

    def forget_before(self, at_s: float) -> None:
        """What was done up to a time is kept: earlier pauses matter as a sum alone."""
        while self.pauses and sum(self.pauses[0]) <= at_s:
            self.paused_s += self.pauses.pop(0)[1]

    def paused_until_s(self, at_s: float) -> float:
        """How long it stood still up to a time since the last checkpoint. O(pauses)."""
        paused_s = self.paused_s + sum(
            max(0.0, min(length_s, at_s - from_s)) for from_s, length_s in self.pauses
        )
        return paused_s + (0.0 if self.still_s is None else max(0.0, at_s - self.still_s))


class Attempt(Struct, gc=False, omit_defaults=True):
    """A gang between launch and its last process."""

    job: str
    epoch: int
    spec: JobSpec
    region: str
    tasks: list[Task]
    opened_s: float
    deadline_s: float
    """When the present phase has lasted too long."""
    time_left_s: float | None = None
    phase: AttemptPhase = AttemptPhase.STARTING
    why: Outcome | None = None
    """Set with ``cause`` when it stops: the first reason stands."""
    cause: str = ""
    exit_code: int | None = None
    suspects: tuple[str, ...] = ()
    evicted: bool | UnsetType = UNSET
    """The cluster ended it, by itself or by its own people."""
    kept_until_s: float | None = None
    """Work done before then survives."""
    step: int | None = None
    metrics: dict[str, float] = {}
    turn: Turn | UnsetType = UNSET
    """Its state among gangs that take turns."""
    colocated_with: str | UnsetType = field(name="beside", default=UNSET)
    """The job that its plan puts on the same GPUs."""

    @property
    def turns(self) -> Turn | None:
        """Its turns, if it takes turns."""
        return given(self.turn, None)

    @property
    def held(self) -> bool:
        """Whether it has to wait for its GPUs before it is started."""
        return self.turns is not None and self.turns.held

    @property
    def still(self) -> bool:
        """Whether others have its GPUs."""
        return self.turns is not None and self.turns.still_s is not None

    def ran_s(self, until_s: float) -> float:
        """How long it had its GPUs up to a time since the last checkpoint."""
        still_s = 0.0 if self.turns is None else self.turns.paused_until_s(until_s)
        return max(0.0, until_s - self.opened_s - still_s)

    @property
    def ended(self) -> bool:
        """Whether no task can run any more."""
        for task in self.tasks:  # noqa: SIM110  (a generator costs more)
            if task.phase is not TaskPhase.ENDED:
                return False
        return True

    @property
    def ended_s(self) -> float:
        """When the last of its tasks ended that did; its start if none did."""
        times = [task.ended_s for task in self.tasks if task.ended_s is not UNSET]
        return max(times, default=self.opened_s)

    def end_of_task_s(self, at_s: float, now: float) -> float | UnsetType:
        """When a task ended: as its engine says, if that was before now; else now."""
        return at_s if self.opened_s < at_s < now else UNSET

    @property
    def up(self) -> bool:
        """Whether every task has started."""
        for task in self.tasks:  # noqa: SIM110  (a generator costs more)
            if task.phase is TaskPhase.WAITING:
                return False
        return True

    def keep(self, at_s: float, step: int | None) -> None:
        """What was done up to a time is kept."""
        self.kept_until_s, self.step = at_s, step
        if self.turns is not None:
            self.turns.forget_before(at_s)

    def limit_s(self) -> float | None:
        """When the job's time limit strikes, if it has one."""
        return None if self.time_left_s is None else self.opened_s + self.time_left_s

    def next_deadline_s(self) -> float | None:
        """When its present phase, or all of it, will have lasted too long."""
        late_s = None if self.phase is AttemptPhase.RUNNING else self.deadline_s
        limit_s = None if self.phase is AttemptPhase.STOPPING else self.limit_s()
        if late_s is None or limit_s is None:
            return limit_s if late_s is None else late_s
        return min(late_s, limit_s)


def outcome_of_end(code: int | None, *, was_waiting: bool, evicted: bool) -> Outcome:
    """Why a gang stops for the end of a task, by the task's exit status; None: it left none."""
    if evicted:
        return Outcome.PREEMPTED
    if code is not None:
        return Outcome.FAILED
    return Outcome.LAUNCH_FAILED if was_waiting else Outcome.HOST_LOST


def turns_of(attempt: Attempt) -> Turn:
    """The turns of a gang that takes turns."""
    turns = attempt.turns
    assert turns is not None, attempt.job
    return turns
