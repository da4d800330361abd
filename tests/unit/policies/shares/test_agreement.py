"""Every policy is as good as an independent formulation of it, on problems of every shape."""

from __future__ import annotations

import json

import pytest

from tests.unit.policies.shares.drawn import Document, draw
from tests.unit.policies.shares.textbook import Textbook
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.reading import parse_problem
from topmast.policies.shares.registry import columns_for, policy_named
from topmast.policies.shares.shares import Shares

SEEDS = range(60)
CLOSE = 1e-5


def solved(document: Document, policy: str, *, agnostic: bool = False) -> tuple[Columns, Shares]:
    chosen = policy_named(policy)
    columns = columns_for(chosen, parse_problem(json.dumps(document).encode()), agnostic=agnostic)
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
def test_max_min(seed: int, pairs: bool) -> None:
    """Weighted LAS."""
    for _, document, agnostic in variants(draw(seed, pairs=pairs)):
        _, shares = solved(document, "max-min-fairness", agnostic=agnostic)
        want = Textbook(document, agnostic=agnostic).max_min()
        assert shares.objective == pytest.approx(want, rel=CLOSE)
