"""When a plan is due, and what becomes of it: the part that plans of data and of capacity share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from topmast.fast.queue import GlobalQueue
from topmast.model.errors import TopmastError
from topmast.model.messages import Message
from topmast.slow.planning import Planning, PlanRequest

JOBS_A_LOOK = 2_000
"""So many jobs are looked at between two commits: some milliseconds."""

Problem_contra = TypeVar("Problem_contra", contravariant=True)
Problem = TypeVar("Problem")
Request = TypeVar("Request", bound=PlanRequest)
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)
T = TypeVar("T")


class Solver(Protocol[Problem_contra]):
    """Solves one problem at a time, far from the machines."""

    def plan(self, problem: Problem_contra) -> dict[str, Any]:
        """The answer; raises TopmastError."""
        ...


class System(Protocol):
    """The running system, as a cadence may use it."""

    @property
    def queue(self) -> GlobalQueue:
        """To be read within `ask` alone."""
        ...

    def ask(self, question: Callable[[], T]) -> T:
        """Read the machines between two commits."""
        ...

    def order(self, to: str, message: Message) -> None:
        """Have a machine handle a message. Raises TopmastError for one that it refuses."""
        ...


class Pending(Protocol[Answer_co]):
    """An answer in the making, such as a future."""

    def done(self) -> bool:
        """Whether it is there."""
        ...

    def result(self) -> Answer_co:
        """The answer. Raises what its maker raised."""
        ...


class Report(Struct, frozen=True):
    """What became of a plan."""

    applied: bool
    text: str


class Cadence(ABC, Generic[Problem, Request, Answer]):
    """Asks for a plan every ``every_s`` and carries out the active one.

    `step` does all that is due; a driver with its own schedule calls `ask`, `take` and `look`. A
    subclass says what to ask the planner and what to do with the answer.
    """

    kind: ClassVar[str]
    """Of its events: `KIND` for a plan that is active, `KIND-failed` for one that is not."""

    def __init__(
        self, system: System, planning: Planning[Any], every_s: float | None, look_s: float
    ) -> None:
        self.system = system
        self.every_s = every_s
        """Time between two plans; None: never."""
        self.look_s = look_s
        """Time between two looks."""
        self.next_s: float | None = None
        """When the next plan is due; None: not begun."""
        self._start: Callable[[Request], Pending[Answer]] | None = None
        self._solving: tuple[Request, Pending[Answer]] | None = None
        self._planning = planning
        self._next_look_s = 0.0

    @property
    def solving(self) -> bool:
        """Whether a plan is in the making."""
        return self._solving is not None

    # --- what differs ---------------------------------------------------------------------------

    @abstractmethod
    def request(self, now_s: float) -> Request | None:
        """What to ask the planner; None if there is nothing to plan."""

    @abstractmethod
    def solve(self, solver: Solver[Problem], request: Request) -> Answer:
        """Ask the planner; may run in another thread. Raises TopmastError."""

    @abstractmethod
    def apply(self, request: Request, answer: Answer, now_s: float) -> str | None:
        """Make a valid answer the active plan, and say what it is; None if it is outdated."""

    @abstractmethod
    def look(self, now_s: float) -> None:
        """What is done between plans, every ``look_s``."""

    @property
    def in_flight(self) -> bool:
        """Whether an order is on its way, to be looked at again."""
        return False

    # --- the cycle ------------------------------------------------------------------------------

    def begin(self, now_s: float, start: Callable[[Request], Pending[Answer]]) -> None:
        """The first plan is due one period from now; ``start`` begins to solve a request."""
        assert self.every_s is not None
        self.next_s, self._start = now_s + self.every_s, start

    def step(self, now_s: float) -> Report | None:
        """Do what is due; say what became of a plan if its answer arrived."""
        report = None
        if self._solving is None:
            if self.next_s is not None and now_s >= self.next_s:
                self.ask(now_s)
        elif self._solving[1].done():
            report = self.take(now_s)
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + self.look_s
            self.look(now_s)
        return report

    def ask(self, now_s: float) -> None:
        """Begin a plan; none if there is nothing to plan, or while another is in the making."""
        assert self.every_s is not None
        assert self._start is not None
        self.next_s = now_s + self.every_s
        request = None if self.solving else self.request(now_s)
        if request is not None:
            self._solving = request, self._start(request)

    def take(self, now_s: float) -> Report:
        """Take the answer, which is there, and carry it out if it still holds."""
        assert self._solving is not None
        (request, pending), self._solving = self._solving, None
        try:
            answer = pending.result()
        except TopmastError as error:
            return self.fail(str(error), now_s)
        text = self.apply(request, answer, now_s)
        return self._failed() if text is None else Report(applied=True, text=text)

    def fail(self, why: str, now_s: float) -> Report:
        """There is no new plan."""
        self._planning.failed(why, now_s)
        return self._failed()

    def _failed(self) -> Report:
        failure, name = self._planning.failure, self.kind.replace("-", " ")
        why = "" if failure is None else failure.why
        text = f"no new {name}: {why}; the last one stays in force"
        return Report(applied=False, text=text)
