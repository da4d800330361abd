"""Answers, whole and by prices: complete, priced right, and as good as they say."""

import random
from typing import Any

import numpy as np
import pytest

from tests.support.capacityplan import best, check, tiny
from topmast.slow.capacity.classes import classes_of
from topmast.slow.capacity.generate import Shape, make
from topmast.slow.capacity.planner import plan
from topmast.slow.capacity.prices import Chooser
from topmast.slow.capacity.reading import convert_problem


def _plan(problem: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Solve with a clock that stands still: only work ends it."""
    return plan(convert_problem(problem), 60.0, lambda: 0.0, **options)


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_tiny_problems_are_solved_as_brute_force_solves_them(seed: int, even: bool) -> None:
    """HiGHS alone finds the best there is; prices find an answer, and their bound is one."""
    problem = tiny(seed, even)
    want = best(problem)
    whole = _plan(problem)
    check(problem, whole)
    assert whole["status"] == "optimal"
    assert whole["objective"] == pytest.approx(want, abs=1e-6)
    priced = _plan(problem, small=0)
    check(problem, priced)
    assert priced["bound"] <= want + 1e-6


@pytest.mark.parametrize("seed", range(10))
def test_any_prices_prove_a_bound(seed: int) -> None:
    """Prices of cells drawn at random bound the least cost from below."""
    problem = tiny(seed, even=True)
    want, draw = best(problem), random.Random(seed)
    every = [classes for classes in classes_of(convert_problem(problem)) if classes.far.size]
    for _ in range(20):
        prices = [np.array([draw.uniform(-9, 9) for _ in each.total]) for each in every]
        bounds = [Chooser(c).at(p).bound for c, p in zip(every, prices, strict=True)]
        assert sum(bounds) <= want + 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_prices_come_near_to_what_is_proven(seed: int) -> None:
    """Some thousand hosts are assigned within 1% of the bound, the same in every run."""
    problem = make(Shape(hosts=4000, clusters=60, domains=20, seed=seed))
    answer = _plan(problem, small=0)
    check(problem, answer)
    assert answer["gap"] <= 0.01
    assert _plan(problem, small=0) == answer


def test_a_cluster_is_spread_over_racks() -> None:
    """Two hosts that a cluster gets in one domain stand in two racks."""
    hosts = [
        {"name": f"h{i}", "model": "X", "gpus": 8, "datacenter": "d", "domain": "p",
         "rack": f"r{i // 2}", "cluster": None, "in_use": False}
        for i in range(4)
    ]  # fmt: skip
    cluster = {"name": "c", "capacity": {"X": 16}, "survive_domain": False, "datacenter": None}
    prices = {"shortfall_gpu": 9, "buffer_gpu": 0, "move_in_use": 5, "move_idle": 1, "far_gpu": 0}
    problem = {"hosts": hosts, "clusters": [cluster], "buffer_fraction": 0, "prices": prices}
    answer = _plan(problem)
    check(problem, answer)
    racks = [host["rack"] for host in hosts if answer["assignment"][host["name"]] == "c"]
    assert racks == ["r0", "r1"]
