"""Time slices: rows of hosts, what a plan says of its slice, room and memory by slice, and twins."""

import msgspec
import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tests.support.build import ask, cluster, fleet, job, needs, profile
from tests.support.world import World
from topmast.fast.region.inventory.columns import Columns
from topmast.model.errors import InvalidInput
from topmast.model.fleet import ClusterSpec
from topmast.model.job import Level
from topmast.model.plan import Plan, Seat
from topmast.model.reason import Rejection
from topmast.model.states import HostState, JobState
from topmast.policies.options import Preemption, SliceOptions
from topmast.policies.registry import load_profile


def world_of(*clusters: ClusterSpec, k: int = 2) -> World:
    """A system with ``k`` layers."""
    chosen = profile(slices=SliceOptions(layers=k), order="submission", preemption=Preemption.NONE)
    return World(fleet(*clusters), chosen)


def plan_on(host: str, time_slice: int | UnsetType = UNSET) -> Plan:
    """A plan of one seat."""
    seats = (Seat("main", 0, host, (0,)),)
    return Plan("j1", "east", "a", "H100", 1000, seats, Level.HOST, 0.0, {}, time_slice=time_slice)


def test_a_plan_says_its_slice_only_where_that_is_not_the_first() -> None:
    """The journal and snapshots call it ``layer``, and have none in the plans of most fleets."""
    first, third = plan_on("a-0"), plan_on("a-0", 2)
    assert (first.in_slice, third.in_slice) == (0, 2)
    assert "layer" not in msgspec.to_builtins(first)
    assert msgspec.to_builtins(third)["layer"] == 2
    assert msgspec.json.decode(msgspec.json.encode(third), type=Plan) == third


def test_what_a_gang_takes_is_taken_in_its_slice_alone() -> None:
    """Its host has a row for each slice."""
    columns = Columns(fleet(cluster("a", 2, 4)).regions[0], 3)
    plan = plan_on("a-1", 2)
    columns.take(plan.seats, {"main": needs(1)}, plan.in_slice)
    assert [columns.slots(row).tolist()[0] for row in range(6)] == [1000] * 5 + [0]
    assert columns.unheld_by_host().tolist() == [4000, 3000]
    columns.give_back(plan.seats, {"main": needs(1)}, plan.in_slice)
    assert columns.unheld_by_host().tolist() == [4000, 4000]


def test_a_host_has_all_gpus_and_a_part_of_its_memory_in_each_layer() -> None:
    """Memory stays with who is suspended; GPUs and CPUs do not."""
    region = fleet(cluster("east-a", 2, 4, cpus=16.0, memory_bytes=90)).regions[0]
    columns = Columns(region, 3)
    assert [host.name for host in columns.hosts[:3]] == ["east-a-0", "east-a-1", "east-a-0"]
    assert columns.gpus.tolist() == [4] * 6
    assert columns.cpus.tolist() == [16.0] * 6
    assert columns.memory.tolist() == [30.0] * 6
    assert columns.places == 2
    assert columns.known("east-a-0").memory_bytes == 90
    assert columns.parts == [("east-a", 0), ("east-a", 1), ("east-a", 2)]
    assert columns.rows_in("east-a", 2).tolist() == [4, 5]
    assert columns.rows_of(("east-a-1", "gone")) == [1, 3, 5]


def test_memory_limits_how_many_are_placed() -> None:
    """Each needs half of the memory: two fit, though there are three layers."""
    world = world_of(cluster("east-a", 1, 4, memory_bytes=96), k=2)
    half = needs(4, memory=48)
    first, second = (world.submit(job(f"j{i}", resources=half))[0] for i in range(2))
    assert {world.state(first), world.state(second)} == {JobState.RUNNING, JobState.SUSPENDED}
    (large,) = world.submit(job("large", resources=needs(1, memory=49)))
    assert world.state(large) is JobState.PENDING, "no layer has so much"


def test_the_least_crowded_gpus_come_first() -> None:
    """Idle GPUs of any host before a second layer of any; then the second before the third."""
    world = world_of(cluster("east-a", 2, 2), k=3)
    hosts = []
    for number in range(6):
        (name,) = world.submit(job(f"j{number}", 2))
        hosts.append(world.jobs[name].hosts[0])
    assert sorted(hosts[:2]) == sorted(hosts[2:4]) == sorted(hosts[4:]) == ["east-a-0", "east-a-1"]


def test_who_shares_sits_on_the_gpus_of_one_of_its_size() -> None:
    """A host with two jobs of one GPU and one of two: the next of two shares with that of two, and so on."""
    world = world_of(cluster("east-a", 2, 4), k=2)
    for size in (4, 1, 1, 2):
        world.submit(job(f"j{size}", size))
    places: dict[str, tuple[str, frozenset[int]]] = {}
    for size in (2, 1, 1, 4):
        (name,) = world.submit(job("next", size))
        plan = world.jobs[name].plan
        assert plan is not None
        slots = frozenset(slot for seat in plan.seats for slot in seat.slots)
        places[name] = (plan.hosts[0], slots)
    own = {
        (r.plan.hosts[0], frozenset(s for seat in r.plan.seats for s in seat.slots))
        for r in list(world.jobs.values())[:4]
        if r.plan is not None
    }
    assert set(places.values()) == own


def test_a_host_that_is_cordoned_takes_no_work_in_any_layer() -> None:
    """There would be room for four; with one of two hosts cordoned there is room for two."""
    world = world_of(cluster("east-a", 2, 2), k=2)
    world.set_host("east-a-0", HostState.CORDONED)
    jobs = [world.submit(job(f"j{i}", 2))[0] for i in range(3)]
    assert [world.jobs[name].hosts for name in jobs] == [("east-a-1",), ("east-a-1",), ()]
    assert world.state(jobs[2]) is JobState.PENDING


def test_a_drain_moves_work_of_every_layer() -> None:
    """Two share a host that is drained: both go to the other, one of them above the other."""
    world = world_of(cluster("east-a", 2, 2), k=2)
    world.set_host("east-a-1", HostState.CORDONED)
    jobs = [world.submit(job(f"j{i}", 2))[0] for i in range(2)]
    world.set_host("east-a-1", HostState.HEALTHY)
    world.set_host("east-a-0", HostState.DRAINING)
    world.advance(5)
    assert [world.jobs[name].hosts for name in jobs] == [("east-a-1",)] * 2
    assert [world.jobs[name].migrations for name in jobs] == [1, 1]
    assert {world.state(name) for name in jobs} == {JobState.RUNNING, JobState.SUSPENDED}


def test_a_host_to_avoid_is_avoided_in_every_slice() -> None:
    """With the other host full in both slices there is no place; else there is one on the other."""
    world = world_of(cluster("east-a", 2, 2), k=2)
    question = replace(ask(job("next", 2)), avoid_hosts=("east-a-0",))
    ((_, plan),) = world.placer("east").verdicts(question, world.now)
    assert plan is not None
    assert plan.hosts == ("east-a-1",)
    world.set_host("east-a-0", HostState.CORDONED)
    for number in range(2):
        world.submit(job(f"j{number}", 2))
    world.set_host("east-a-0", HostState.HEALTHY)
    ((_, plan),) = world.placer("east").verdicts(question, world.now)
    assert plan is None


@pytest.mark.parametrize(
    ("option", "value"),
    [("bind.policy", "least-loaded"), ("reserve_after_s", "60"), ("slices.layers", "65")],
)
def test_what_does_not_go_with_turns_is_refused(option: str, value: str) -> None:
    """The error names the option."""
    with pytest.raises(InvalidInput, match=option):
        load_profile("gandiva", {option: value})


def test_packing_needs_somebody_who_judges() -> None:
    """Else every pair would stay together."""
    with pytest.raises(InvalidInput, match="pack"):
        load_profile("gandiva", {"rebalance": "none"})


def test_explain_counts_a_host_by_the_layer_that_gets_furthest() -> None:
    """One of two hosts is taken in both layers, the other in one: a gang of four fits on that, and on no other."""
    world = world_of(cluster("east-a", 2, 4), k=2)
    world.set_host("east-a-1", HostState.CORDONED)
    for number in range(2):
        world.submit(job(f"full-{number}", 4))
    world.set_host("east-a-1", HostState.HEALTHY)
    world.submit(job("half", 4))
    ((found, plan),) = world.placer("east").verdicts(ask(job("next", 4)), world.now)
    assert plan is not None
    assert plan.hosts == ("east-a-1",)
    assert plan.time_slice == 1
    assert (found.hosts, found.fitting_hosts) == (2, 1)
    assert [(count.reason, count.count) for count in found.rejections] == [
        (Rejection.TOO_FEW_GPUS, 1)
    ]
    world.submit(job("last", 4))
    ((found, plan),) = world.placer("east").verdicts(ask(job("next", 4)), world.now)
    assert plan is None
    assert [(count.reason, count.count) for count in found.rejections] == [
        (Rejection.TOO_FEW_GPUS, 2)
    ]


def test_explain_knows_the_place_that_is_kept_for_a_job_that_moves() -> None:
    """It is told of the place that it will have, though all GPUs of its layers are taken for others."""
    world = world_of(cluster("east-a", 2, 2), k=1)
    (name,) = world.submit(job("moves", 2))
    (here,) = world.jobs[name].hosts
    world.obedient = False
    world.engines["east-a"].obedient = False
    world.set_host(here, HostState.DRAINING)
    (other,) = {"east-a-0", "east-a-1"} - {here}
    question = replace(ask(job("moves", 2)), job=name)
    ((_, plan),) = world.placer("east").verdicts(question, world.now)
    assert plan is not None
    assert plan.hosts == (other,)
    ((_, plan),) = world.placer("east").verdicts(replace(question, job="j9"), world.now)
    assert plan is None, "it is kept from others"
