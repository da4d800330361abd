"""Layers: names inside the placer and outside of it, room and memory by layer, and twins."""

import pytest
from msgspec.structs import replace

from tests.support.build import ask, cluster, fleet, job, needs, profile
from tests.support.world import World
from topmast.fast.region.inventory import slices as layers
from topmast.fast.region.inventory.columns import Columns
from topmast.model.errors import InvalidInput
from topmast.model.fleet import ClusterSpec
from topmast.model.job import Level
from topmast.model.plan import Plan, Seat, Victim
from topmast.model.reason import Rejection
from topmast.model.states import HostState, JobState
from topmast.policies.options import Preemption, SliceOptions
from topmast.policies.registry import load_profile


def world_of(*clusters: ClusterSpec, k: int = 2) -> World:
    """A system with ``k`` layers."""
    chosen = profile(slices=SliceOptions(layers=k), order="submission", preemption=Preemption.NONE)
    return World(fleet(*clusters), chosen)


def plan_on(host: str, cluster_name: str, victims: tuple[Victim, ...] = ()) -> Plan:
    """A plan of one seat."""
    seats = (Seat("main", 0, host, (0,)),)
    return Plan("j1", "east", cluster_name, "H100", 1000, seats, Level.HOST, 0.0, {}, victims)


def test_a_plan_goes_out_and_comes_in_as_it_was() -> None:
    """Outside it has the names that people know, and its layer; a mover's place too."""
    moved = Victim("j2", 1, 0.0, plan_on("a-1#1", "a#1"))
    for inner in (
        plan_on("a-0", "a"),
        plan_on("a-0#2", "a#2"),
        plan_on("a-0", "a", (moved,)),
        plan_on("a-0#2", "a#2", (moved,)),
    ):
        outer = layers.outside(inner)
        assert (
            "#"
            not in f"{outer.cluster} {outer.hosts} {[v.to and v.to.hosts for v in outer.victims]}"
        )
        assert layers.inside(outer) == inner


def test_one_layer_is_what_there_always_was() -> None:
    """The region is the same object, and plans are left alone."""
    region = fleet(cluster("east-a")).regions[0]
    assert layers.layered(region, 1) is region
    plan = plan_on("east-a-0", "east-a")
    assert layers.outside(plan) is plan
    assert layers.inside(plan) is plan


def test_a_host_has_all_gpus_and_a_part_of_its_memory_in_each_layer() -> None:
    """Memory stays with who is suspended; GPUs and CPUs do not."""
    region = fleet(cluster("east-a", 2, 4, cpus=16.0, memory_bytes=90)).regions[0]
    columns = Columns(region, 3)
    assert [host.name for host in columns.hosts[:3]] == ["east-a-0", "east-a-1", "east-a-0#1"]
    assert columns.gpus.tolist() == [4] * 6
    assert columns.cpus.tolist() == [16.0] * 6
    assert columns.memory.tolist() == [30.0] * 6
    assert columns.places == 2
    assert columns.known("east-a-0").memory_bytes == 90
    assert columns.cluster_names() == ["east-a"]


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


def test_hosts_to_avoid_are_avoided_in_every_layer() -> None:
    """A question names hosts as people do."""
    question = replace(ask(job()), avoid_hosts=("east-a-0",))
    assert layers.asked(question, 1) is question
    assert layers.asked(question, 3).avoid_hosts == ("east-a-0", "east-a-0#1", "east-a-0#2")


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
    assert plan.layer == 1
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
