"""The fast ways agree with HiGHS on problems too large for a short test's patience with plain loops."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from msgspec import structs

from topmast.policies.shares import assigning, interior, interior_pairs, simplex
from topmast.policies.shares.climbing import Climb
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.filling import fullest, work_of
from topmast.policies.shares.growing import Growing
from topmast.policies.shares.linear import linear
from topmast.policies.shares.objectives import hierarchical
from topmast.policies.shares.problem import Entity, Job, Pair, Problem
from topmast.policies.shares.program import Program, Solution
from topmast.policies.shares.rising import raised

CLOSE = 1e-4
TYPES = ("fast", "middle", "slow", "odd")


def problem(seed: int, jobs: int, *, pairs: bool = False) -> Problem:
    """Jobs of very different sizes; some run on few types; loads from next to none to far too much."""
    rng = np.random.default_rng(seed)
    types = TYPES[: rng.integers(1, 5)]
    room = float(rng.choice([0.02, 0.2, 1.0, 5.0]))
    workers = {name: max(8, int(jobs * room * rng.uniform(0.2, 1))) for name in types}
    rows = []
    for number in range(jobs):
        size = rng.lognormal(0, 2)
        speeds = {name: float(size * rng.uniform(0.2, 4)) for name in types}
        for name in types[1:]:
            if rng.random() < 0.2:
                del speeds[name]
        scale = int(rng.choice([1, 1, 2, 4, 8]))
        rows.append(Job(f"j{number}", speeds, scale, weight=float(rng.lognormal(0, 1))))
    found = []
    for a in range(jobs if pairs else 0):
        for b in range(a):
            if rows[a].scale_factor == rows[b].scale_factor and rng.random() < 0.6:
                both = [name for name in types if name in rows[a].throughputs]
                both = [name for name in both if name in rows[b].throughputs]
                shares = {
                    name: (
                        rows[a].throughputs[name] * float(rng.uniform(0.3, 1)),
                        rows[b].throughputs[name] * float(rng.uniform(0.3, 1)),
                    )
                    for name in both
                }
                found.append(Pair((rows[a].id, rows[b].id), shares))
    return Problem(workers, rows, found)


def rising(columns: Columns, seed: int) -> Program:
    """Floors that begin at or below 0, as the tangents of finish-time fairness do."""
    rng = np.random.default_rng(seed)
    slope = columns.weight * columns.equal_speeds / columns.scale
    base = np.where(rng.random(len(slope)) < 0.5, 0.0, -slope * rng.uniform(0, 0.3, len(slope)))
    nothing = np.zeros(len(columns.cells.one))
    return Program(columns, nothing, 1.0, slope > 0, base, slope)


def reached(program: Program, cells: np.ndarray) -> float:
    columns = program.columns
    speeds = columns.speeds_of(*columns.cells.spread(cells))
    return float(((speeds - program.base) / program.slope).min())


@pytest.mark.parametrize("seed", range(30))
def test_floors_without_pairs(seed: int) -> None:
    """The compiled method reaches HiGHS's height, and its own bound holds."""
    columns = Columns(problem(seed, jobs=5 + 10 * seed))
    program = rising(columns, seed)
    exact, fast = simplex.solve(program), interior.solve(program)
    assert exact is not None
    assert fast is not None, "it did not converge"
    assert reached(program, fast.cells) == pytest.approx(exact.height, rel=CLOSE)
    assert fast.height >= exact.height * (1 - 1e-7)
    assert fast.height <= exact.height * (1 + CLOSE)


@pytest.mark.parametrize("seed", range(16))
def test_floors_with_pairs(seed: int) -> None:
    """So does the one with pairs."""
    columns = Columns(problem(seed, jobs=8 + 4 * seed, pairs=True))
    program = rising(columns, seed)
    exact, fast = simplex.solve(program), interior_pairs.solve(program)
    assert exact is not None
    assert fast is not None, "it did not converge"
    assert reached(program, fast.cells) == pytest.approx(exact.height, rel=CLOSE)
    assert fast.height >= exact.height * (1 - 1e-7)


@pytest.mark.parametrize("each_begin", [1, 4])
@pytest.mark.parametrize("seed", range(8))
def test_more_pairs_than_begin(seed: int, each_begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only some pairs begin, the prices fetch those that are missing: with little room and with plenty."""
    columns = Columns(problem(seed, jobs=60, pairs=True))
    monkeypatch.setattr(interior_pairs, "MANY_PER_JOB", 2)
    monkeypatch.setattr(interior_pairs, "PAIRS_PER_JOB", each_begin)
    program = rising(columns, seed)
    exact, fast = simplex.solve(program), interior_pairs.solve(program)
    assert exact is not None
    assert fast is not None, "it did not converge"
    assert reached(program, fast.cells) == pytest.approx(exact.height, rel=CLOSE)
    assert fast.height >= exact.height * (1 - 1e-7)


@pytest.mark.parametrize(("room", "few"), [(0.05, True), (4.0, False)])
def test_time_is_a_limit_only_of_those_who_run_out_of_it(
    room: float, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few workers nobody is held to its time, with many almost everybody is; both times it is the optimum."""
    drawn = problem(3, jobs=60, pairs=True)
    workers = {name: max(8, int(60 * room)) for name in drawn.workers}
    columns = Columns(Problem(workers, drawn.jobs, drawn.pairs))
    held: list[int] = []

    def counted(*values: object) -> object:
        found = optimum(*values)  # type: ignore[arg-type]
        held.append(int(found[0].timed.sum()))
        return found

    optimum = interior_pairs._optimum
    monkeypatch.setattr(interior_pairs, "_optimum", counted)
    program = rising(columns, 3)
    exact, fast = simplex.solve(program), interior_pairs.solve(program)
    assert exact is not None
    assert fast is not None
    assert reached(program, fast.cells) == pytest.approx(exact.height, rel=CLOSE)
    assert (held[-1] < 30) == few


@pytest.mark.parametrize("seed", range(12))
def test_sums_with_pairs(seed: int) -> None:
    """The most speed in sum: HiGHS with few cells, others joining, finds what HiGHS with all of them does."""
    columns = Columns(problem(seed, jobs=10 + 4 * seed, pairs=True))
    program = linear(columns, total_speed(columns))
    exact, fast = simplex.solve(program), Growing(program, *program.scales()).solve()
    assert exact is not None
    assert fast is not None
    best = float(program.gain @ exact.cells)
    assert float(program.gain @ fast.cells) == pytest.approx(best, rel=1e-7)
    assert (fast.cells > 0).sum() <= columns.count + len(columns.types), "it is no vertex"


@pytest.mark.parametrize("seed", range(20))
def test_sums_without_pairs(seed: int) -> None:
    """Assignments that are mixed are as good as the simplex method, and within all limits."""
    columns = Columns(problem(seed, jobs=3 + 25 * seed))
    program = linear(columns, total_speed(columns))
    exact, fast = simplex.solve(program), assigning.solve(program)
    assert exact is not None
    assert fast is not None, "it took too long"
    best = float(program.gain @ exact.cells)
    assert float(program.gain @ fast.cells) == pytest.approx(best, rel=1e-7)
    single, _ = columns.cells.spread(fast.cells)
    assert (single.sum(axis=1) <= 1 + 1e-9).all()
    assert (columns.scale @ single <= columns.workers * (1 + 1e-9)).all()


def test_costs_that_outweigh_all_gains() -> None:
    """Where every cell costs more than it gains, nobody is assigned anywhere."""
    columns = Columns(problem(4, jobs=30))
    program = linear(columns, -total_speed(columns))
    found = assigning.solve(program)
    assert found is not None
    assert not found.cells.any()


def total_speed(columns: Columns) -> np.ndarray:
    return columns.cells.one_speed + columns.cells.other_speed


@pytest.mark.parametrize("policy", ["fairness", "fifo"])
def test_water_that_rises_where_pairs_are_many(
    policy: Literal["fairness", "fifo"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Levels are those of steps that know all cells, each solved from the start."""
    drawn = problem(6, jobs=50, pairs=True)
    jobs = [structs.replace(job, entity="all") for job in drawn.jobs]
    entities = {"all": Entity(1.0, policy)}
    columns = Columns(Problem(drawn.workers, jobs, drawn.pairs, {}, entities))
    levels = hierarchical.solve(columns).levels
    monkeypatch.setattr(Climb, "step", step_of_all_cells)
    every = hierarchical.solve(columns).levels
    assert levels is not None
    assert levels == pytest.approx(every, rel=1e-5, abs=1e-6)


def step_of_all_cells(climb: Climb, slope: np.ndarray, base: np.ndarray) -> Solution | None:
    columns = climb._columns
    needed = (slope > 0) | (base > 0)
    return simplex.solve(
        Program(columns, np.zeros(len(columns.cells.one)), 1.0, needed, base, slope)
    )


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_time_left_over_goes_where_it_makes_most_work(seed: int, pairs: bool) -> None:
    """Nobody falls below the best height, and no allocation that keeps it does more work."""
    columns = Columns(problem(seed, jobs=30, pairs=pairs))
    slope = columns.weight * columns.equal_speeds / columns.scale
    found = rising_to_the_top(columns, slope)
    filled = fullest(columns, slope * found.height, found.cells)
    speeds = columns.speeds_of(*columns.cells.spread(filled))
    assert float((speeds / slope).min()) == pytest.approx(found.height, rel=1e-6)
    work = work_of(columns)
    most = simplex.solve(linear(columns, work, slope * found.height * (1 - 1e-7)))
    assert most is not None
    assert work @ filled == pytest.approx(work @ most.cells, rel=1e-5)
    assert work @ filled >= (work @ found.cells) * (1 - 1e-5)


def rising_to_the_top(columns: Columns, slope: np.ndarray) -> Solution:
    found = raised(columns, slope)
    assert found is not None
    return found


def test_same_bytes() -> None:
    """Twice the same problem, twice the same answer to the last bit."""
    for pairs in (False, True):
        answers = []
        for _ in range(2):
            columns = Columns(problem(5, jobs=40, pairs=pairs))
            method = interior_pairs if pairs else interior
            found = method.solve(rising(columns, 5))
            assert found is not None
            answers.append(found.cells.tobytes())
        assert answers[0] == answers[1]
