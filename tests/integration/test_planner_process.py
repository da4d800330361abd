"""The planner in a process of its own: it answers, it is late, it dies, and there is another."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from topmast.adapters.planner import PlannerProcess, data_planner
from topmast.model.errors import TopmastError, Unavailable
from topmast.slow.data.generate import Shape, make
from topmast.slow.data.planner import Options
from topmast.slow.data.problem import Problem
from topmast.slow.data.reading import convert_problem


@pytest.fixture
def planner() -> Iterator[PlannerProcess[Problem]]:
    """A planner with the usual patience."""
    made = data_planner(Options(time_limit_s=20.0))
    yield made
    made.close()


def _problem(tables: int) -> Problem:
    shape = Shape(tables=tables, regions=4, workloads=tables)
    return convert_problem(make(shape))


def test_it_plans_one_problem_after_the_other(planner: PlannerProcess[Problem]) -> None:
    """In one process, which remembers."""
    for _ in range(2):
        answer = planner.plan(_problem(30))
        assert answer["status"] in ("optimal", "feasible")


def test_one_that_is_late_is_stopped_and_the_next_plan_has_another() -> None:
    """No plan is made in no time, starting and all."""
    hasty = data_planner(Options(time_limit_s=0.0), patience_s=0.01)
    with closing(hasty), pytest.raises(Unavailable, match=r"longer than 0\.01 s"):
        hasty.plan(_problem(30))


def test_one_that_is_killed_says_so_and_the_next_plan_has_another(
    planner: PlannerProcess[Problem],
) -> None:
    """The signal is named."""
    planner.plan(_problem(10))
    child = planner._process
    assert child is not None
    assert child.pid is not None
    problem = _problem(2_000)  # made before: it must be planned when the signal comes
    threading.Timer(1.0, os.kill, (child.pid, signal.SIGKILL)).start()
    with pytest.raises(Unavailable, match=r"died \(signal 9\)"):
        _plan_on(planner, problem)
    assert planner.plan(_problem(10))["status"] in ("optimal", "feasible")


def test_closed_in_the_middle_of_a_plan() -> None:
    """Who waits hears at once, and nothing is left."""
    planner = data_planner(Options(time_limit_s=60.0))
    planner.plan(_problem(10))
    child = planner._process
    problem = _problem(2_000)
    closer = threading.Timer(1.0, planner.close)
    closer.start()
    begun_s = time.monotonic()
    with pytest.raises(TopmastError):
        _plan_on(planner, problem)
    assert time.monotonic() - begun_s < 30.0
    closer.join()
    assert child is not None
    assert not _alive(child.pid or 0)


def _plan_on(planner: PlannerProcess[Problem], problem: Problem) -> None:
    """Plan until somebody stops it."""
    for _ in range(1_000):
        planner.plan(problem)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
