"""The part of a problem that is planned again: the rest is taken off what there is, and stays where it is."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.dataplan import check
from topmast.slow.arrays import Bools, Floats
from topmast.slow.data.columns import Columns, columns_of
from topmast.slow.data.copies import sources_of
from topmast.slow.data.generate import KINDS, Kind, Shape, make
from topmast.slow.data.objective import loads
from topmast.slow.data.part import Part, part_of, readers_of
from topmast.slow.data.planner import Options, Planner, placement_of, serve_of
from topmast.slow.data.prices import Prices, Relaxation, Relaxed
from topmast.slow.data.reading import convert_problem
from topmast.slow.data.search import LocalSearch

SHAPE = Shape(tables=120, regions=4, workloads=150, seed=3)


def _planned() -> tuple[Columns, Bools, Floats]:
    """A problem, and a plan of it."""
    document = make(SHAPE)
    problem = convert_problem(document)
    answer = Planner(Options(solver="large"), lambda: 0.0).plan(problem)
    return columns_of(problem), placement_of(problem, answer), serve_of(problem, answer)


def _cut(columns: Columns, placed: Bools, serve: Floats, works: Bools) -> tuple[Relaxed, Part]:
    """The part around ``works`` after a short solve of the whole."""
    whole = Relaxation(columns)
    relaxed = whole.solve(whole.begin(placed, serve), iterations=80)
    source = sources_of(columns, placed)
    assert source is not None
    search = LocalSearch(columns)
    search.adopt(placed, source)
    return relaxed, part_of(whole, relaxed, search.state, works, serve)


def test_the_part_that_is_everything_is_the_whole() -> None:
    """Same limits, same prices, same bound: tables that nobody reads are all that is left out."""
    columns, placed, serve = _planned()
    works = np.ones(len(columns.loss), bool)
    relaxed, part = _cut(columns, placed, serve, works)
    read = np.zeros(len(columns.least), bool)
    read[columns.reads.items] = True
    assert (part.tables == np.flatnonzero(read)).all()
    cut = part.relaxation.columns
    assert cut.supply == pytest.approx(columns.supply)
    unread = columns.size_bytes[~read] @ placed[~read]
    assert cut.storage_bytes == pytest.approx(columns.storage_bytes - unread)
    m, p, q = relaxed.point.arrays[2:]
    whole = Relaxation(columns).bound(Prices(m, p, 0.0 * q))
    cost = np.sort(np.where(columns.can, columns.replica_cost(), np.inf), axis=1)
    unread_cost = sum(cost[d, : columns.least[d]].sum() for d in np.flatnonzero(~read))
    m, p, q = part.relaxed.point.arrays[2:]
    assert part.relaxation.bound(Prices(m, p, 0.0 * q)) == pytest.approx(whole - unread_cost)


def test_who_is_outside_is_taken_off() -> None:
    """GPUs, bytes and links: what the part may use and what the rest uses make up what there is."""
    columns, placed, serve = _planned()
    tables = np.zeros(len(columns.least), bool)
    tables[:10] = True
    works = readers_of(columns, tables)
    assert 0 < works.sum() < len(works)
    relaxed, part = _cut(columns, placed, serve, works)
    inside = np.zeros(len(tables), bool)
    inside[part.tables] = True
    assert inside[columns.reads.items[works[columns.reads.owners()]]].all()
    cut = part.relaxation.columns
    outside = loads(columns, np.where(works[:, None], 0.0, serve))
    assert cut.supply + outside == pytest.approx(columns.supply)
    stored = columns.size_bytes[~inside] @ placed[~inside]
    assert cut.storage_bytes + stored == pytest.approx(columns.storage_bytes)
    for number, w in enumerate(part.works):
        assert (part.tables[cut.reads.of(number)] == columns.reads.of(w)).all()
    nothing = np.zeros((len(part.tables), 4)), np.zeros((len(part.works), 4))
    replicas, shares = part.into(relaxed, serve, *nothing)
    assert not replicas[inside].any()
    assert not shares[works].any()
    assert (shares[~works] == serve[~works]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_days_of_small_changes_do_not_wear_a_plan_out(kind: Kind) -> None:
    """Each day a hundredth of the demand changes and the plan is carried out: allowed every day, few bytes
    moved, and after five days as good as a plan made afresh.
    """
    document = make(Shape(kind=kind, tables=200, regions=5, workloads=300, seed=5))
    planner = Planner(Options(solver="large"), lambda: 0.0)
    answer = planner.plan(convert_problem(document))
    total = sum(table["bytes"] for table in document["tables"])
    for day in range(5):
        for table in document["tables"]:
            table["replicas"] = answer["placement"][table["name"]]
        for workload in document["workloads"][day::100]:
            workload["gpus"] = {model: 2 * gpus for model, gpus in workload["gpus"].items()}
        answer = planner.plan(convert_problem(document))
        check(document, answer)
        copied = sum(move["bytes"] for move in answer["moves"] if move["op"] == "copy")
        assert copied <= 0.1 * total
    afresh = Planner(Options(solver="large"), lambda: 0.0).plan(convert_problem(document))
    assert answer["objective"] <= afresh["objective"] * 1.02
