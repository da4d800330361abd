"""A planner on a cadence beside the running system; the fast path never waits for it.

One thread looks every few seconds what is to do, another waits for the planner. The machines are looked at in small
portions between their commits. The first thread alone changes what is known; others read it by taking one
reference, so that nobody waits for a lock.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import structlog
from msgspec import Struct

from topmast.model.errors import TopmastError
from topmast.ports import Audit, Clock, HistoryRow
from topmast.runtime.loop import Runtime
from topmast.service.hub import Hub

JOBS_A_LOOK = 2_000
"""So many jobs are looked at between two commits: some milliseconds."""
ANSWER_S = 30.0
"""How long a machine may take to answer an order before that counts as an error."""

Problem_contra = TypeVar("Problem_contra", contravariant=True)
Question = TypeVar("Question")
Answer = TypeVar("Answer")
T = TypeVar("T")

log = structlog.get_logger(__name__)


class Solver(Protocol[Problem_contra]):
    """Solves one problem at a time, far from the machines."""

    def plan(self, problem: Problem_contra) -> dict[str, Any]:
        """The answer; raises TopmastError."""
        ...

    def close(self) -> None:
        """Stop, also in the middle of a problem."""
        ...


class _Solving(Struct, Generic[Question, Answer]):
    """A plan in the making."""

    question: Question
    answer: Future[Answer]


class Cadence(ABC, Generic[Problem_contra, Question, Answer]):
    """Plans every ``every_s``; `open` begins, `close` ends it. Without that it only answers what it is asked.

    ``solver`` makes the planner. A subclass says what to ask it and what to do with the answer.
    """

    kind: ClassVar[str]
    """Of its events: `KIND` for a plan that is in force, `KIND-failed` for one that is not."""
    wait_s: ClassVar[float]
    """How often it is seen what is to do."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        hub: Hub,
        every_s: float | None,
        solver: Callable[[], Solver[Problem_contra]],
    ) -> None:
        self._runtime, self._clock, self._hub = runtime, clock, hub
        self._every_s = every_s
        self._make_solver = solver
        self._solver: Solver[Problem_contra] | None = None
        self._solving: _Solving[Question, Answer] | None = None
        self._next_s: float | None = None
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(2, f"topmast-{self.kind}s")

    # --- from outside -------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin; the first plan is due one period from now."""
        if self._every_s is None:
            return
        self._solver = self._make_solver()
        self._next_s = self._clock.now() + self._every_s
        self._threads.submit(self._run)

    def close(self) -> None:
        """End both threads, and the planner."""
        self._stop.set()
        if self._solver is not None:
            self._solver.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    # --- what differs -------------------------------------------------------------------------------

    @abstractmethod
    def look(self, now_s: float) -> None:
        """What is done between plans, every ``wait_s``."""

    @abstractmethod
    def question(self, now_s: float) -> Question | None:
        """What to ask the planner; None if there is nothing to plan."""

    @abstractmethod
    def solve(self, solver: Solver[Problem_contra], question: Question) -> Answer:
        """Ask it, in the thread that waits; raises TopmastError."""

    @abstractmethod
    def take(self, question: Question, answer: Answer, now_s: float) -> str | None:
        """Let an answer that still holds be in force, and say what it is; None if it does not."""

    @abstractmethod
    def note_failure(self, why: str, now_s: float) -> None:
        """There is no new plan."""

    @abstractmethod
    def trouble(self) -> str:
        """What was wrong with the last plan."""

    # --- the thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(self.wait_s):
            try:
                self._step()
            except Exception as error:  # whatever it is, the last plan stays, and people hear of it
                if self._stop.is_set():
                    return
                log.exception("a planner's cadence went wrong", kind=self.kind)
                self._failed(f"{type(error).__name__}: {error}")

    def _step(self) -> None:
        now, solving = self._clock.now(), self._solving
        if solving is None and self._next_s is not None and now >= self._next_s:
            self._ask(now)
        elif solving is not None and solving.answer.done():
            self._solving = None
            self._take(solving, now)
        self.look(now)

    def _ask(self, now_s: float) -> None:
        assert self._every_s is not None
        assert self._solver is not None
        self._next_s = now_s + self._every_s
        question = self.question(now_s)
        if question is not None:
            answer = self._threads.submit(self.solve, self._solver, question)
            self._solving = _Solving(question, answer)

    def _take(self, solving: _Solving[Question, Answer], now_s: float) -> None:
        try:
            answer = solving.answer.result()
        except TopmastError as error:
            self._failed(str(error))
            return
        said = self.take(solving.question, answer, now_s)
        if said is None:
            self._tell(f"{self.kind}-failed", f"no new {self._named}: {self.trouble()}")
        else:
            self._tell(self.kind, said)

    def _failed(self, why: str) -> None:
        self.note_failure(why, self._clock.now())
        text = f"no new {self._named}: {why}; the last one stays in force"
        self._tell(f"{self.kind}-failed", text)

    @property
    def _named(self) -> str:
        return self.kind.replace("-", " ")

    def _tell(self, kind: str, text: str) -> None:
        log.info(text)
        row = HistoryRow(self._clock.now(), "", kind, text)
        self._runtime.journal.append([], Audit((row,)))  # events are numbered by what is written
        self._hub.publish([row])

    def ask_machines(self, question: Callable[[], T]) -> T:
        """Ask between two commits of the runtime."""
        return self._runtime.ask(question).result(ANSWER_S)
