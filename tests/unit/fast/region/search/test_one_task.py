"""A single task finds the place that the search for mixed gangs finds, and its seat."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from tests.support.build import profile
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.fast.region.search import mixed, one_task
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import MILLI, Accelerator, Band, Resources, Topology
from topmast.model.plan import GroupRequest, PlacementRequest, TaskShape
from topmast.policies.options import ScoreWeights

WEIGHTS = ScoreWeights(shapes=True, gpu_hosts=1.5, allocated_memory=0.5, models=(("A", 0.4),))
SHAPES = (
    TaskShape(300, 1.0, 0, (), 0.4),
    TaskShape(450, 2.0, 8, ("A",), 0.3),
    TaskShape(2 * MILLI, 4.0, 0, (), 0.3),
)


def _columns() -> Columns:
    hosts = [
        HostSpec(f"{c}{i}", "AB"[i % 2], (0, 2, 4)[i % 3], cpus=8.0, memory_bytes=64)
        for c in "cd"
        for i in range(12)
    ]
    clusters = (ClusterSpec("c", tuple(hosts[:12])), ClusterSpec("d", tuple(hosts[12:])))
    return Columns(RegionSpec("r", clusters))


def _ask(rng: random.Random) -> PlacementRequest:
    milli = rng.choice((0, 200, 300, 450, MILLI, 2 * MILLI))
    listed = tuple(Accelerator(model, milli) for model in rng.choice((("A",), ("B", "A"), (None,))))
    needs = Resources(listed if milli else (), rng.choice((0.0, 0.5, 2.0)), rng.choice((0, 8)))
    ask = PlacementRequest("j", (GroupRequest("g", 1, needs),), Topology(), Band.NORMAL)
    return replace(ask, shapes=SHAPES, avoid_hosts=rng.choice(((), ("c1", "d4"))))


@pytest.mark.parametrize("seed", range(4))
def test_one_task_sits_where_the_search_for_mixed_gangs_puts_it(seed: int) -> None:
    """Jobs come and go; each is asked about both ways, with what is kept from the one before."""
    rng = random.Random(seed)
    columns, policies = _columns(), profile(score=WEIGHTS)
    search = PreemptiveSearch("r", columns, {}, policies, 0, 0.0)
    assert (
        search.best(_ask(random.Random(1))) is not None
    )  # from here on an index keeps what it knows
    running = []
    for _ in range(120):
        ask = _ask(rng)
        places = mixed.places_of(columns, ask, policies, None)
        question = mixed.question_of(columns, ask, policies, None)
        wanted = mixed.best_seats(columns, ask, policies.score, question)
        assert one_task.applies(ask, policies.score)
        found = one_task.best_seat(columns, ask, policies.score, places)
        assert found == wanted
        needs = {"g": ask.groups[0].resources}
        if found is not None:
            columns.take(found.seats, needs)
            running.append((found.seats, needs))
        if running and rng.random() < 0.3:
            columns.give_back(*running.pop(rng.randrange(len(running))))
    assert len(running) > 20


def test_a_task_without_a_choice_of_models_finds_no_place() -> None:
    columns, policies = _columns(), profile(score=WEIGHTS)
    ask = replace(_ask(random.Random(3)), models=())
    search = PreemptiveSearch("r", columns, {}, policies, 0, 0.0)
    assert search.best(ask) is None
