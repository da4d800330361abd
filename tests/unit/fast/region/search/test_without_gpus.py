"""One task without GPUs sits where the regions' own searches put it, the best of them."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from tests.support.build import cluster, fleet, job, needs, profile, tenant
from tests.support.world import World
from topmast.bench.fleet import Filled, FleetSize
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.inventory.index import Pool
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.fast.region.search import without_gpus
from topmast.fast.region.search.compiled import costs_of
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import MILLI, Accelerator, Band, JobSpec, Resources, TaskGroup, Topology
from topmast.model.plan import (
    GroupRequest,
    PlacementRequest,
    Plan,
    RegionTerms,
    Reservation,
    Seat,
    TaskShape,
)
from topmast.model.states import HostState, JobState
from topmast.policies.options import Profile, ScoreWeights

SHAPES = (TaskShape(300, 1.0, 0, (), 0.4), TaskShape(2 * MILLI, 4.0, 8, ("A",), 0.6))
WEIGHTS = (
    ScoreWeights(shapes=True),
    ScoreWeights(shapes=True, gpu_hosts=1.7),
    ScoreWeights(gpu_hosts=1.7, models=(("A", 0.4),)),
    ScoreWeights(),
)

Holding = tuple[Columns, tuple[Seat, ...], dict[str, Resources]]


def _region(name: str) -> Columns:
    hosts = [
        HostSpec(
            f"{name}{c}{i}", "AB"[i % 3 == 0], (4, 2, 0)[i % 4 % 3], cpus=(16.0, 12.0)[i % 2],
            memory_bytes=(0, 64)[i % 5 == 0],
        )
        for c in "dc"
        for i in range(12)
    ]  # fmt: skip
    clusters = [ClusterSpec(c, tuple(h for h in hosts if h.name[1] == c)) for c in "dc"]
    return Columns(RegionSpec(name, tuple(clusters)))


def _ask(rng: random.Random) -> PlacementRequest:
    needs = Resources((), rng.choice((0.0, 0.5, 3.0, 7.0)), rng.choice((0, 0, 8)))
    group = GroupRequest("g", 1, needs)
    ask = PlacementRequest("j", (group,), Topology(), Band.NORMAL)
    models, cluster = rng.choice((None, (0,))), rng.choice((None, None, None, "c", "none"))
    return replace(ask, shapes=SHAPES, models=models, cluster=cluster)


def _search(columns: Columns, policies: Profile) -> PreemptiveSearch:
    return PreemptiveSearch(columns.region, columns, {}, policies, 0, 0.0)


def _expected(
    parts: list[Columns], ask: PlacementRequest, policies: Profile, terms: dict[str, RegionTerms]
) -> Plan | None:
    found = [_search(p, policies).best(ask.in_region(terms[p.region])) for p in parts]
    plans = [plan for plan in found if plan is not None]
    return min(plans, key=lambda plan: (plan.score, plan.region), default=None)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_task_without_gpus_sits_where_the_best_region_puts_it(weights: ScoreWeights) -> None:
    """Jobs come and go, also with GPUs, hosts fail and return, and regions grow dear and cheap."""
    rng, policies, pool = random.Random(7), profile(score=weights), Pool()
    parts = [_region(name) for name in "rqs"]
    for columns in parts:
        pool.put(columns)
    running, placed, refused = list[Holding](), 0, 0
    for _ in range(300):
        ask, index = _ask(rng), pool.index()
        terms = {
            p.region: RegionTerms(data_s=rng.choice((0.0, 60.0)), balance=rng.choice((0.1, 0.3)))
            for p in parts
        }
        wanted = _expected(parts, ask, policies, terms)
        assert without_gpus.applies(index, ask, weights)
        costs = costs_of(index, terms, weights, only=ask.cluster)
        found = without_gpus.best(index, ask, weights, terms, costs)
        assert (found is None) == (wanted is None)
        part = rng.choice(parts)
        if found is not None and wanted is not None:
            part = index.part_of[found.region]
            own = ask.in_region(terms[found.region])
            search = _search(part, policies)
            plan = search.plan_at(own, part, found.seated, stranding=found.stranding)
            assert plan == wanted
            assert list(plan.terms) == list(wanted.terms)
            part.take(plan.seats, {"g": ask.groups[0].resources})
            running.append((part, plan.seats, {"g": ask.groups[0].resources}))
            placed += 1
        refused += found is None
        _change(rng, parts, running, policies)
    assert placed > 100
    assert refused > 10


def test_the_fleet_placer_asks_all_regions_at_once() -> None:
    fleet = Filled(FleetSize(regions=3, clusters=6, hosts=24), 0, mixed=True)
    spec = JobSpec("t", (TaskGroup("g", 1, Resources((), 2.0), "true"),))
    question = fleet.question(spec)
    placers = fleet.machines.placers
    own = [placers[r].offer(question.ask.in_region(its)) for r, its in question.terms.items()]
    plans = [bid.plan for bid in own if bid.plan is not None]
    assert fleet.decide(question) == min(plans, key=lambda plan: (plan.score, plan.region))
    assert len(fleet.machines.pool.index().workspace(without_gpus.Workspace).known) == 1


def test_a_task_without_gpus_sits_beside_reserved_seats() -> None:
    """As the regions' own searches, which look at a copy of the columns, and nothing is kept."""
    fleet = Filled(FleetSize(regions=3, clusters=6, hosts=24), 0, mixed=True)
    placers, index = fleet.machines.placers, fleet.machines.pool.index()
    spec = JobSpec("t", (TaskGroup("g", 1, Resources((), 2.0), "true"),))
    question = fleet.question(spec)
    first = fleet.decide(question)
    assert first is not None
    free_cpus = index.arrays.free_cpus.copy()
    all_cpus = GroupRequest("g", 1, Resources((), placers[first.region].columns.cpus.item(0)))
    held = Reservation("k", first.region, first.cluster, 60.0, first.seats, (all_cpus,))
    beside = replace(question, ask=replace(question.ask, held=held))
    own = [placers[r].offer(beside.ask.in_region(its)) for r, its in beside.terms.items()]
    plans = [bid.plan for bid in own if bid.plan is not None]
    found = fleet.decide(beside)
    assert found == min(plans, key=lambda plan: (plan.score, plan.region))
    assert found.hosts != first.hosts
    assert (index.arrays.free_cpus == free_cpus).all()
    assert fleet.decide(question) == first
    assert len(index.workspace(without_gpus.Workspace).known) == 1


def test_the_queue_asks_all_regions_at_once() -> None:
    """Also where tenants have quota: the queue names the choices that it allows in each request."""
    world = World(fleet(cluster("e-1"), cluster("w-1"), tenants=(tenant("a", A=8),)))
    (name,) = world.submit(job(tenant="a", resources=needs(cpus=1)))
    assert world.state(name) is JobState.RUNNING
    assert len(world.machines.pool.index().workspace(without_gpus.Workspace).known) == 1


def test_no_choice_is_no_place() -> None:
    pool = Pool()
    pool.put(_region("r"))
    ask = replace(_ask(random.Random(0)), models=())
    assert not without_gpus.applies(pool.index(), ask, WEIGHTS[0])


def _change(
    rng: random.Random, parts: list[Columns], running: list[Holding], policies: Profile
) -> None:
    """A job with GPUs may come, others end, and a host fails or returns."""
    columns = rng.choice(parts)
    needs = Resources((Accelerator("A", MILLI),), 1.0)
    ask = PlacementRequest("k", (GroupRequest("g", 1, needs),), Topology(), Band.NORMAL)
    plan = _search(columns, policies).best(ask) if rng.random() < 0.5 else None
    if plan is not None:
        columns.take(plan.seats, {"g": needs})
        running.append((columns, plan.seats, {"g": needs}))
    while len(running) > 110 or (running and rng.random() < 0.3):
        at, seats, held = running.pop(rng.randrange(len(running)))
        at.give_back(seats, held)
    if rng.random() < 0.2:
        state = rng.choice((HostState.HEALTHY, HostState.DOWN))
        columns.set_state(f"{columns.region}{rng.choice('cd')}{rng.randrange(12)}", state)
