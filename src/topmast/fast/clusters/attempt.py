"""One attempt as its cluster manager knows it: a gang of tasks and how far each has come."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from topmast.model.job import JobSpec
from topmast.model.plan import Seat
from topmast.model.states import Outcome


class TaskPhase(StrEnum):
    """How far a task has come."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class Task(Struct, gc=False):
    """One task: ``code`` None after its end means that it left no exit status."""

    seat: Seat
    phase: TaskPhase = TaskPhase.WAITING
    code: int | None = None


class AttemptPhase(StrEnum):
    """How far the gang has come."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class Attempt(Struct, gc=False):
    """A gang between launch and its last process.

    ``deadline_s``: when the present phase has lasted too long. ``kept_until_s``: work done before
    then survives. ``why`` and ``cause`` are set when it stops: the first reason stands.
    """

    job: str
    epoch: int
    spec: JobSpec
    region: str
    tasks: list[Task]
    opened_s: float
    deadline_s: float
    time_left_s: float | None = None
    phase: AttemptPhase = AttemptPhase.STARTING
    why: Outcome | None = None
    cause: str = ""
    exit_code: int | None = None
    suspects: tuple[str, ...] = ()
    kept_until_s: float | None = None
    step: int | None = None
    metrics: dict[str, float] = {}

    @property
    def ended(self) -> bool:
        """Whether no task can run any more."""
        return all(task.phase is TaskPhase.ENDED for task in self.tasks)

    @property
    def up(self) -> bool:
        """Whether every task has started."""
        return all(task.phase is not TaskPhase.WAITING for task in self.tasks)

    @property
    def succeeded(self) -> bool:
        """Whether every task ended by itself with status 0."""
        return all(task.code == 0 for task in self.tasks)

    def limit_s(self) -> float | None:
        """When the job's time limit strikes, if it has one."""
        return None if self.time_left_s is None else self.opened_s + self.time_left_s
