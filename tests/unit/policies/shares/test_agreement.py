"""Every policy is as good as an independent formulation of it, on problems of every shape."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from tests.unit.policies.shares.drawn import Document, draw
from tests.unit.policies.shares.textbook import Textbook
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.reading import parse_problem
from topmast.policies.shares.registry import columns_for, policy_named
from topmast.policies.shares.shares import Shares

SEEDS = range(40)
CLOSE = 1e-5


def solved(
    document: Document, policy: str, *, agnostic: bool = False, is_warm: bool = False
) -> tuple[Columns, Shares]:
    chosen = policy_named(policy)
    columns = columns_for(chosen, parse_problem(json.dumps(document).encode()), agnostic=agnostic)
    columns.is_warm = is_warm
    shares = chosen.solve(columns)
    within_limits(columns, shares)
    return columns, shares


def within_limits(columns: Columns, shares: Shares) -> None:
    """No fraction out of place, no job beyond its time, no type beyond its workers."""
    single, pair = shares.single, shares.pair
    assert (single >= 0).all()
    assert (pair >= 0).all()
    assert not single[~columns.runs].any()
    assert not pair[~columns.pair_runs].any()
    time = single.sum(axis=1)
    used = columns.scale @ single
    for row, (one, other) in enumerate(columns.pair_jobs):
        time[one] += pair[row].sum()
        time[other] += pair[row].sum()
        used = used + columns.scale[one] * pair[row]
    assert (time <= 1 + 1e-9).all()
    assert (used <= columns.workers * (1 + 1e-9)).all()


def variants(document: Document) -> list[tuple[str, Document, bool]]:
    return [("aware", document, False), ("agnostic", document, True)]


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("policy", "best", "stuck"),
    [
        ("max-min-fairness", Textbook.max_min, False),
        ("makespan", Textbook.makespan, False),
        ("finish-time-fairness", Textbook.finish_time, False),
        ("max-throughput", Textbook.max_throughput, True),
    ],
)
def test_as_good_as_the_textbook(
    policy: str, best: Callable[[Textbook], float], stuck: bool, seed: int, pairs: bool
) -> None:
    """Weighted LAS; the last end; the greatest ratio to an own share; the sum of speeds."""
    for _, document, agnostic in variants(draw(seed, pairs=pairs, stuck=stuck)):
        _, shares = solved(document, policy, agnostic=agnostic)
        assert shares.objective == pytest.approx(
            best(Textbook(document, agnostic=agnostic)), rel=CLOSE
        )


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_min_cost(seed: int, pairs: bool) -> None:
    """Steps per dollar, and what was found does reach the ratio that is reported."""
    for _, document, agnostic in variants(draw(seed, pairs=pairs)):
        columns, shares = solved(document, "min-cost", agnostic=agnostic)
        assert shares.objective == pytest.approx(
            Textbook(document, agnostic=agnostic).min_cost(), rel=CLOSE
        )
        assert _ratio(columns, shares) == pytest.approx(shares.objective, rel=CLOSE)


def _ratio(columns: Columns, shares: Shares) -> float:
    spent = (columns.scale[:, None] * columns.costs * shares.single).sum()
    pair_scale = columns.scale[columns.pair_jobs[:, 0]]
    spent += (pair_scale[:, None] * columns.costs * shares.pair).sum()
    return float(columns.speeds_of(shares.single, shares.pair).sum() / spent)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_min_cost_slo(seed: int, pairs: bool) -> None:
    """Deadlines that can be kept are kept; where they cannot all be, the answer says so."""
    for _, document, agnostic in variants(draw(seed, pairs=pairs)):
        rng = np.random.default_rng(seed)
        columns, fair = solved(document, "max-min-fairness", agnostic=agnostic)
        speeds = columns.speeds_of(fair.single, fair.pair)
        for job, speed in zip(document["jobs"], speeds, strict=True):
            if rng.random() < 0.6:
                job["deadline_s"] = job["steps_left"] / speed * rng.uniform(0.7, 4)
        want = Textbook(document, agnostic=agnostic).min_cost(deadlines=True)
        columns, shares = solved(document, "min-cost-slo", agnostic=agnostic)
        if want is None:
            assert shares.objective is None
            assert shares.violated
            continue
        assert shares.objective == pytest.approx(want, rel=CLOSE)
        speeds = columns.speeds_of(shares.single, shares.pair)
        for job, speed in zip(document["jobs"], speeds, strict=True):
            if "deadline_s" in job:
                assert speed >= job["steps_left"] / job["deadline_s"] * (1 - 1e-6)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_hierarchical(seed: int, pairs: bool) -> None:
    """The vector of levels is unique, so that all of it must agree; the allocation reaches it."""
    for _, document, agnostic in variants(draw(seed, pairs=pairs)):
        _levels_agree(document, agnostic=agnostic)


def _levels_agree(document: Document, *, agnostic: bool = False) -> None:
    first, levels = Textbook(document, agnostic=agnostic).levels(document["entities"])
    for is_warm in (False, True):
        columns, shares = solved(document, "hierarchical", agnostic=agnostic, is_warm=is_warm)
        assert shares.objective == pytest.approx(first, rel=CLOSE)
        assert shares.levels is not None
        assert shares.levels == pytest.approx(levels, rel=CLOSE, abs=1e-6)
        speeds = columns.speeds_of(shares.single, shares.pair)
        reached = columns.scale * speeds / columns.equal_speeds
        assert (reached >= shares.levels * (1 - 1e-6) - 1e-8).all()


def test_levels_that_the_next_step_can_keep() -> None:
    """Ten jobs of the public trace, in a running fleet: a first level only nearly exact would be out of the next one's reach."""
    speeds = {
        "a": (0.086, 0.75, 1.0), "b": (0.1, 0.65, 1.0), "c": (0.21, 0.75, 1.0), "d": (0.086, 0.75, 1.0),
        "e": (0.086, 0.75, 1.0), "f": (0.14, 0.6, 1.0), "g": (0.14, 0.63, 1.0), "h": (0.086, 0.75, 1.0),
        "i": (0.25, 0.79, 1.0), "wide": (0.18, 0.52, 1.0),
    }  # fmt: skip
    same = ((0.11, 0.05), (0.32, 0.44), (0.58, 0.79))
    pairs = {
        "ab": ((0.047, 0.051), (0, 0), (0.78, 0.63)), "ac": ((0.05, 0.11), (0.44, 0.32), (0.79, 0.58)),
        "bc": ((0.058, 0.12), (0.45, 0.34), (0.9, 0.73)), "bf": ((0.049, 0.077), (0.32, 0.34), (0.64, 0.73)),
        "bg": ((0, 0), (0, 0), (0.51, 0.75)), "bh": ((0.051, 0.047), (0, 0), (0.63, 0.78)),
        "bi": ((0.066, 0.12), (0.46, 0.34), (1.0, 0.65)), "cd": same, "ce": same, "ch": same,
        "cf": ((0.11, 0.079), (0.3, 0.41), (0.47, 0.66)), "fi": ((0.091, 0.11), (0.44, 0.29), (0.7, 0.44)),
    }  # fmt: skip
    types = ("K80", "P100", "V100")
    _levels_agree({
        "workers": {"K80": 24, "P100": 16, "V100": 8},
        "entities": {"all": {"weight": 1.0, "policy": "fairness"}},
        "jobs": [
            {"id": name, "throughputs": dict(zip(types, of, strict=True)), "entity": "all",
             "scale_factor": 2 if name == "wide" else 1}
            for name, of in speeds.items()
        ],
        "pairs": [
            {"ids": list(both), "throughputs": {t: list(v) for t, v in zip(types, of, strict=True)}}
            for both, of in pairs.items()
        ],
    })  # fmt: skip


@pytest.mark.parametrize("policy", ["fifo", "sjf"])
@pytest.mark.parametrize("seed", SEEDS)
def test_one_by_one(seed: int, policy: str) -> None:
    """The same jobs on the same types."""
    for _, document, agnostic in variants(draw(seed, stuck=True)):
        _, shares = solved(document, policy, agnostic=agnostic)
        want, given = Textbook(document).one_by_one(shortest=policy == "sjf", agnostic=agnostic)
        assert shares.objective == pytest.approx(want, rel=CLOSE)
        rows = {(int(i), int(j)): 1.0 for i, j in zip(*np.nonzero(shares.single), strict=True)}
        assert rows == given


@pytest.mark.parametrize("seed", SEEDS)
def test_allox(seed: int) -> None:
    """No other way to line up the jobs has a smaller sum; of every worker in use, one job runs."""
    document = draw(seed, jobs=5)
    document["workers"] = {t: min(n, 2) for t, n in list(document["workers"].items())[:2]}
    for job in document["jobs"]:
        job["scale_factor"] = 1
        job["throughputs"] = {t: job["throughputs"].get(t, 0.0) for t in document["workers"]}
        job["throughputs"]["T0"] = job["throughputs"]["T0"] or 1.0
    document["costs"] = {}
    for _, same, agnostic in variants(document):
        columns, shares = solved(same, "allox", agnostic=agnostic)
        assert shares.objective == pytest.approx(
            Textbook(same, agnostic=agnostic).allox(), rel=CLOSE
        )
        assert set(np.unique(shares.single)) <= {0.0, 1.0}
        assert shares.single.sum() == min(columns.count, shares.single.sum())
        assert (shares.single.sum(axis=0) <= columns.workers).all()
