"""Local search: whatever it does, its books are right and the hard rules hold."""

import numpy as np
import pytest

from tests.support.dataplan import check
from topmast.slow.data.columns import columns_of
from topmast.slow.data.copies import is_allowed
from topmast.slow.data.generate import KINDS, Kind, Shape, make
from topmast.slow.data.objective import loads
from topmast.slow.data.planner import Options, Planner
from topmast.slow.data.reading import convert_problem
from topmast.slow.data.search import LocalSearch


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_the_books_are_right(kind: Kind, seed: int) -> None:
    """After many moves, made and taken back, every count is what it is when counted anew."""
    shape = Shape(kind=kind, tables=150, regions=4, workloads=300, seed=seed)
    columns = columns_of(convert_problem(make(shape)))
    search = LocalSearch(columns, seed=seed)
    assert search.begin()
    before = search.cost()
    change = search.descend(20)
    change += search.anneal(20_000, 20.0, 0.1, together=0.3)
    assert search.cost() == pytest.approx(before + change, rel=1e-6)
    state = search.state
    assert is_allowed(columns, state.placed)
    serve = search.shares()
    assert state.load == pytest.approx(loads(columns, serve))
    assert state.busy == pytest.approx(columns.needs_cpus @ serve)
    assert (state.busy <= columns.cpus + 1e-9).all()
    users = np.zeros(columns.can.shape, int)
    np.add.at(users, columns.reads.items, serve[columns.reads.owners()].astype(int))
    assert (state.users == users).all()
    assert (users[~state.placed] == 0).all()
    assert (state.count == state.placed.sum(axis=1)).all()
    assert (state.idle == (state.placed & (users == 0)).sum(axis=1)).all()
    assert state.stored == pytest.approx((columns.size_bytes[:, None] * state.placed).sum(axis=0))
    fresh = state.placed & ~columns.held
    carried = np.zeros_like(columns.link_bytes)
    d, r = np.nonzero(fresh & (state.source >= 0))
    assert columns.held[d, state.source[d, r]].all()
    np.add.at(carried, (state.source[d, r], r), columns.size_bytes[d])
    assert state.carried == pytest.approx(carried)
    assert (carried <= columns.link_bytes * (1 + 1e-9)).all()
    assert state.moved[0] == pytest.approx((columns.size_bytes[:, None] * fresh).sum())


def test_a_replan_moves_little() -> None:
    """The next day, with a hundredth of the demand changed, few bytes move, nearly at the gap of a plan
    made afresh, of which it takes a small part of the work.
    """
    document = make(Shape(tables=200, regions=5, workloads=300, seed=7))
    planner = Planner(Options(solver="large"), lambda: 0.0)
    first = planner.plan(convert_problem(document))
    for table in document["tables"]:
        table["replicas"] = first["placement"][table["name"]]
    for workload in document["workloads"][::100]:
        workload["gpus"] = {model: 2 * gpus for model, gpus in workload["gpus"].items()}
    again = planner.plan(convert_problem(document))
    check(document, again)
    copied = sum(move["bytes"] for move in again["moves"] if move["op"] == "copy")
    assert copied <= 0.1 * sum(table["bytes"] for table in document["tables"])
    afresh = Planner(Options(solver="large"), lambda: 0.0).plan(convert_problem(document))
    assert again["objective"] <= afresh["objective"] * 1.02
    assert again["bound"] >= afresh["bound"] * 0.99
