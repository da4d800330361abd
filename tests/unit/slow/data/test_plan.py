"""Answers of both solvers: allowed, priced right, and as good as they say."""

from itertools import count
from typing import Any

import pytest

from tests.support.dataplan import check
from tests.support.dataplan_brute import best, tiny
from topmast.slow.data.ablation import ABLATIONS
from topmast.slow.data.generate import KINDS, Kind, Shape, make
from topmast.slow.data.planner import Options, Planner, Solver
from topmast.slow.data.reading import convert_problem

SOLVERS: tuple[Solver, ...] = ("exact", "large")


def _plan(problem: dict[str, Any], solver: Solver, **warm: Any) -> dict[str, Any]:
    """Solve with a clock that stands still: only work ends it."""
    planner = Planner(Options(solver=solver, time_limit_s=60.0), lambda: 0.0)
    return planner.plan(convert_problem(problem), **warm)


@pytest.mark.parametrize("seed", range(40))
def test_tiny_problems_are_solved_as_brute_force_solves_them(seed: int) -> None:
    """The exact solver finds the best there is; the large one is allowed, and its bound is one."""
    problem = tiny(seed)
    want = best(problem)
    exact = _plan(problem, "exact")
    if want is None:
        assert exact["status"] == "infeasible"
        assert exact["conflict"]["tables"]
        assert _plan(problem, "large")["status"] == "infeasible"
        return
    check(problem, exact)
    assert exact["status"] == "optimal"
    assert exact["objective"] == pytest.approx(want, abs=1e-6)
    assert exact["bound"] <= want + 1e-6
    large = _plan(problem, "large")
    check(problem, large)
    assert large["bound"] <= want + 1e-6
    assert large["objective"] >= want - 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_generated_problems_have_small_gaps(kind: Kind) -> None:
    """A problem of some size is solved within the gap that the solver is for."""
    problem = make(Shape(kind=kind, tables=150, regions=5, workloads=300, seed=3))
    answer = _plan(problem, "large")
    check(problem, answer)
    assert answer["max_demand_supply"] <= 1.05 + 1e-9
    assert answer["gap"] <= {"sparse": 0.05, "dense": 0.12}[kind]
    assert answer["gap"] <= answer["controllable_gap"]


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_same_problem_has_the_same_answer(solver: Solver) -> None:
    """To the last bit."""
    problem = make(Shape(tables=40, regions=3, workloads=40, seed=1))
    assert _plan(problem, solver) == _plan(problem, solver)


def test_the_solvers_agree() -> None:
    """What is proven optimal lies between the bound and the objective of the large solver."""
    problem = make(Shape(tables=40, regions=4, workloads=40, seed=2))
    exact, large = (_plan(problem, solver) for solver in SOLVERS)
    assert large["bound"] <= exact["objective"] + 1e-6 <= large["objective"] + 2e-6


def test_time_that_is_over_ends_the_search_with_what_there_is() -> None:
    """A clock that runs fast leaves little work, and a true answer all the same."""
    problem = make(Shape(tables=100, regions=4, workloads=150, seed=5))
    ticks = count()
    planner = Planner(Options(solver="large", time_limit_s=3.0), lambda: float(next(ticks)))
    answer = planner.plan(convert_problem(problem))
    check(problem, answer)
    assert answer["bound"] <= answer["objective"]


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_warm_start_is_no_worse(solver: Solver) -> None:
    """An answer handed in is found again, or a better one."""
    problem = make(Shape(tables=60, regions=4, workloads=60, seed=4))
    cold = _plan(problem, solver)
    warm = _plan(problem, solver, warm=cold)
    check(problem, warm)
    assert warm["objective"] <= cold["objective"] * (1 + 1e-9)


def test_duals_of_another_problem_are_left_alone() -> None:
    """An answer to another problem is a hint, not a mistake."""
    one = make(Shape(tables=30, regions=3, workloads=30, seed=1))
    other = make(Shape(tables=31, regions=3, workloads=30, seed=2))
    check(other, _plan(other, "large", warm=_plan(one, "large")))


def test_ablations_leave_out_what_they_say() -> None:
    """Without the term overload is free; hard, there is none."""
    problem = make(Shape(tables=60, regions=4, workloads=90, seed=6))
    read = convert_problem(problem)
    answers = {
        name: Planner(Options(solver="exact", time_limit_s=20, ablation=name), lambda: 0.0).plan(
            read
        )
        for name in ABLATIONS
    }
    assert answers["storage-only"]["max_demand_supply"] > answers["soft-gpu"]["max_demand_supply"]
    assert answers["hard-gpu"]["max_demand_supply"] <= 1.0 + 1e-9
    assert answers["storage-only"]["terms"]["overload"] == 0.0
    assert answers["storage-only"]["objective"] <= answers["soft-gpu"]["objective"] + 1e-6
    assert answers["soft-gpu"]["objective"] <= answers["hard-gpu"]["objective"] + 1e-6
