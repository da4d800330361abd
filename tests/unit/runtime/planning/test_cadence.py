"""When a plan is due, and what becomes of it: no clock, no thread, an answer that comes when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from topmast.fast.queue.machine import GlobalQueue
from topmast.model.errors import TopmastError
from topmast.model.messages import Message
from topmast.runtime.planning.cadence import Cadence, Report, Solver
from topmast.slow.planning import ActivePlan, Planning, PlanRequest


class Later(Struct):
    """An answer that is there when ``ready`` is set."""

    ready: bool = False
    error: Exception | None = None

    def done(self) -> bool:
        return self.ready

    def result(self) -> str:
        if self.error is not None:
            raise self.error
        return "answer"


class Nothing:
    """A system that is never used."""

    @property
    def queue(self) -> GlobalQueue:
        raise AssertionError

    def ask(self, question: Callable[[], Any]) -> Any:
        raise AssertionError

    def order(self, to: str, message: Message) -> None:
        raise AssertionError


class Plans(Cadence[str, PlanRequest, str]):
    """Plans every 10 s, looks every 2 s."""

    kind = "test-plan"

    def __init__(self, every_s: float | None = 10.0) -> None:
        self.planning = Planning[ActivePlan]()
        super().__init__(Nothing(), self.planning, every_s, look_s=2.0)
        self.asked: list[float] = []
        self.looks: list[float] = []
        self.pending = Later()
        self.valid = True
        self.empty = False
        if every_s is not None:
            self.begin(0.0, lambda request: self.pending)

    def request(self, now_s: float) -> PlanRequest | None:
        self.asked.append(now_s)
        return None if self.empty else PlanRequest(len(self.asked), now_s)

    def solve(self, solver: Solver[str], request: PlanRequest) -> str:
        raise AssertionError

    def apply(self, request: PlanRequest, answer: str, now_s: float) -> str | None:
        if not self.valid:
            self.planning.failed("hosts came or went", now_s)
        return f"{answer} {request.number}" if self.valid else None

    def look(self, now_s: float) -> None:
        self.looks.append(now_s)

    def steps(self, *times_s: float) -> list[Report | None]:
        return [self.step(now_s) for now_s in times_s]


def test_a_plan_is_asked_for_when_it_is_due_and_looks_go_on_meanwhile() -> None:
    """The first is due one period after the start; one that is in the making is waited for."""
    plans = Plans()
    assert plans.steps(*range(15)) == [None] * 15
    assert plans.asked == [10]
    assert plans.solving
    assert plans.looks == [0, 2, 4, 6, 8, 10, 12, 14]


def test_an_answer_that_holds_is_applied_once() -> None:
    """The step that finds it says so; the next plan is due a period after the last was asked for."""
    plans = Plans()
    plans.steps(10.0)
    plans.pending.ready = True
    assert plans.steps(11.0, 12.0) == [Report(applied=True, text="answer 1"), None]
    assert not plans.solving
    assert plans.next_s == 20.0


def test_a_plan_that_takes_longer_than_a_period_delays_the_next() -> None:
    """Two are never in the making; the next is asked for as soon as the answer was taken."""
    plans = Plans()
    plans.steps(10.0, 25.0)
    plans.pending.ready = True
    plans.steps(26.0, 27.0)
    assert plans.asked == [10.0, 27.0]


def test_what_fails_leaves_the_last_plan_active() -> None:
    """A planner that fails, and an answer that no longer holds: both are told with their reason."""
    plans = Plans()
    plans.steps(10.0)
    plans.pending.ready, plans.pending.error = True, TopmastError("out of memory")
    (report,) = plans.steps(11.0)
    tail = "; the last one stays in force"
    assert report == Report(applied=False, text=f"no new test plan: out of memory{tail}")
    plans.pending.error, plans.valid = None, False
    _, report = plans.steps(20.0, 21.0)
    assert report == Report(applied=False, text=f"no new test plan: hosts came or went{tail}")


def test_where_there_is_nothing_to_plan_the_next_period_is_waited_for() -> None:
    """No planner is asked."""
    plans = Plans()
    plans.empty = True
    plans.steps(*range(10, 31))
    assert plans.asked == [10, 20, 30]
    assert not plans.solving


def test_without_a_period_nothing_is_planned() -> None:
    """Only looks happen, if a driver steps at all."""
    plans = Plans(every_s=None)
    plans.steps(*range(100))
    assert plans.asked == []
