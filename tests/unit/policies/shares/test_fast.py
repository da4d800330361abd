"""The fast ways agree with HiGHS on problems too large for a short test's patience with plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from topmast.policies.shares import interior, interior_pairs, simplex
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.linear import linear
from topmast.policies.shares.problem import Job, Pair, Problem
from topmast.policies.shares.program import Program

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
    """The most speed in sum, without any floor."""
    columns = Columns(problem(seed, jobs=10 + 4 * seed, pairs=True))
    cells = columns.cells
    program = linear(columns, cells.one_speed + cells.other_speed)
    exact, fast = simplex.solve(program), interior_pairs.solve(program)
    assert exact is not None
    assert fast is not None, "it did not converge"
    best = float(program.gain @ exact.cells)
    assert float(program.gain @ fast.cells) == pytest.approx(best, rel=CLOSE)


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
