"""What is kept of kinds of tasks brings the plan that a search from nothing finds."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from tests.support.build import profile
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.fast.region.reservation.first_starts import kept_out
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import MILLI, Accelerator, Band, Level, Resources, Topology
from topmast.model.plan import GroupRequest, PlacementRequest, Plan, Reservation, TaskShape
from topmast.model.states import HostState
from topmast.policies.options import ScoreWeights

BY_SHAPES = ScoreWeights(shapes=True, models=(("A", 0.4),))
BY_COUNTS = ScoreWeights(models=(("A", 0.4),))
BY_LOADS = ScoreWeights(allocated_cpus=0.7, allocated_memory=0.4)
SHAPES = (
    (TaskShape(300, 1.0, 0, (), 0.4), TaskShape(2 * MILLI, 4.0, 8, ("A",), 0.6)),
    (TaskShape(450, 2.0, 0, (), 0.3), TaskShape(MILLI, 0.0, 0, (), 0.7)),
)
NO_USE = "no-use"
"""A host that no gang may use: to name it makes another kind of a gang."""


def _columns() -> Columns:
    hosts = [
        HostSpec(
            f"{c}{i}", "AB"[i % 3 == 0], (4, 2, 8)[i % 5 % 3], cpus=(16.0, 12.0)[i % 2],
            memory_bytes=(0, 64)[i % 7 == 0], pod=f"p{i // 8}", rack=f"r{i // 4}",
        )
        for c in "cde"
        for i in range(24)
    ]  # fmt: skip
    clusters = [ClusterSpec(c, tuple(h for h in hosts if h.name[0] == c)) for c in "cde"]
    return Columns(RegionSpec("r", (*clusters, ClusterSpec("f", (HostSpec(NO_USE, "C", 1),)))))


def _ask(rng: random.Random, now: int) -> PlacementRequest:
    gpus = rng.choice((1, 1, 2, 4)) * MILLI
    listed = tuple(Accelerator(model, gpus) for model in rng.choice((("A",), ("B", "A"), (None,))))
    needs = Resources(listed, rng.choice((0.0, 1.0, 3.0)), rng.choice((0, 8)))
    topology = rng.choice((Topology(), Topology(Level.POD, Level.RACK), Topology(Level.RACK)))
    group = GroupRequest("g", rng.choice((1, 1, 2, 3, 5)), needs)
    ask = PlacementRequest("j", (group,), topology, Band.NORMAL)
    return replace(ask, shapes=SHAPES[now])


def _anew(search: PreemptiveSearch, ask: PlacementRequest) -> Plan | None:
    """The plan of a search that knows nothing yet."""
    return PreemptiveSearch("r", search.columns.trial(), {}, search.profile, 0, 0.0).best(ask)


def _both(search: PreemptiveSearch, ask: PlacementRequest) -> Plan | None:
    """The plan, which a search from nothing finds too, and one for another kind."""
    if ask.groups[0].resources.accelerators[0].model is None:
        search.columns.set_state(NO_USE, HostState.DOWN)  # any model will do, but not this one
    found = search.best(ask)
    assert found == _anew(search, ask) == search.best(replace(ask, avoid_hosts=(NO_USE,)))
    if found is not None:
        elsewhere = replace(ask, avoid_hosts=found.hosts)
        assert search.best(elsewhere) == _anew(search, elsewhere)
    return found


@pytest.mark.parametrize("weights", [BY_SHAPES, BY_COUNTS, BY_LOADS])
@pytest.mark.parametrize("seed", range(2))
def test_a_gang_sits_where_a_search_from_nothing_puts_it(seed: int, weights: ScoreWeights) -> None:
    """Jobs come and go, hosts fail and return, seats are kept out, and the shapes change."""
    rng = random.Random(seed)
    columns, policies = _columns(), profile(score=weights)
    search = PreemptiveSearch("r", columns, {}, policies, 0, 0.0)
    running, placed = [], 0
    for number in range(250):
        ask = _ask(rng, number // 60 % 2)
        found = _both(search, ask)
        needs = {"g": ask.groups[0].resources}
        if found is not None:
            held = Reservation("k", "r", found.cluster, 0.0, found.seats, ask.groups)
            with kept_out(columns, held):
                _both(search, ask)
            assert _both(search, ask) == found
            columns.take(found.seats, needs)
            running.append((found.seats, needs))
            placed += 1
        if running and rng.random() < 0.6:
            columns.give_back(*running.pop(rng.randrange(len(running))))
        if rng.random() < 0.2:
            state = rng.choice((HostState.HEALTHY, HostState.DOWN))
            columns.set_state(f"{rng.choice('cde')}{rng.randrange(24)}", state)
    assert placed > 100
