"""Early binding: jobs wait where they were sent, and nowhere else, until their patience is over."""

import pytest

from tests.support.build import cluster, dataset, fleet, job, needs, tenant
from tests.support.world import World
from topmast.fast.queue.cycle.early_binding import Loads, could_hold
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.job import JobSpec
from topmast.model.plan import Binding
from topmast.policies.registry import load_profile

EAST, WEST = cluster("east-1", hosts=1), cluster("west-1", hosts=1)


def _world(profile: str, **options: str) -> World:
    settings = {key.replace("__", "."): value for key, value in options.items()}
    return World(fleet(EAST, WEST), load_profile(profile, settings))


def test_by_hand_a_job_waits_at_home_while_others_are_idle() -> None:
    """`manual`: the home region is the only one that is asked."""
    world = _world("manual")
    first, second = world.submit(job("a", gpus=8, home="west"), job("b", gpus=8, home="west"))
    world.advance(1)
    assert world.jobs[first].region == "west"
    assert world.states()[second] == "PENDING"
    world.finish(first)
    world.advance(1)
    assert (world.states()[second], world.jobs[second].region) == ("RUNNING", "west")


def test_jobs_of_one_instant_know_of_one_another() -> None:
    """`federated` with a fresh signal spreads a burst."""
    world = _world("federated", bind__signal_s="0")
    jobs = world.submit(*(job(name, gpus=8) for name in "abcd"))
    clusters = [world.jobs[name].bound for name in jobs]
    east, west = Binding("east", "east-1"), Binding("west", "west-1")
    assert clusters == [east, west, east, west]


def test_an_old_signal_sends_a_burst_to_one_place() -> None:
    """Nobody hears of the others before the next signal."""
    world = _world("federated", bind__signal_s="300")
    jobs = world.submit(*(job(name, gpus=8) for name in "abcd"))
    assert {world.jobs[name].bound for name in jobs} == {Binding("east", "east-1")}
    world.advance(301)
    (late,) = world.submit(job("late", gpus=8))
    assert world.jobs[late].bound == Binding("west", "west-1")


def test_who_spills_over_starts_elsewhere() -> None:
    """`hydra`: home first; elsewhere when the patience is over, not before."""
    world = _world("hydra", bind__patience_s="100", bind__signal_s="0")
    _, second = world.submit(job("a", gpus=8, home="east"), job("b", gpus=8, home="east"))
    world.advance(99)
    assert world.states()[second] == "PENDING"
    world.advance(2)
    assert (world.states()[second], world.jobs[second].region) == ("RUNNING", "west")


def test_a_job_is_never_sent_where_it_could_not_run() -> None:
    """A gang of two hosts goes to the region that has two, wherever its home is."""
    world = World(fleet(EAST, cluster("west-1", hosts=2)), load_profile("manual"))
    (large,) = world.submit(job("large", count=2, gpus=8, home="east"))
    world.advance(1)
    assert world.jobs[large].region == "west"


@pytest.mark.parametrize("profile", ["manual", "federated", "hydra", "yugong"])
@pytest.mark.parametrize(("borrow", "preemptible"), [(0, True), (None, False)])
def test_a_job_is_never_sent_where_quota_keeps_it_out(
    profile: str, borrow: int | None, preemptible: bool
) -> None:
    """No quota of the model at home, and nothing that it may borrow: it goes where there is some."""
    world = World(
        fleet(
            cluster("east-1", hosts=1, model="V100"), cluster("west-1", hosts=1, model="K80"),
            tenants=(tenant("t", borrow=borrow, V100=0, K80=8),),
        ),
        load_profile(profile),
    )  # fmt: skip
    (name,) = world.submit(
        job("a", gpus=2, model=None, tenant="t", home="east", preemptible=preemptible)
    )
    world.advance(1)
    assert (world.states()[name], world.jobs[name].region) == ("RUNNING", "west")


def test_without_a_home_the_data_decides() -> None:
    """The home of a job that names none is a region with its first dataset."""
    world = World(fleet(EAST, WEST, datasets=(dataset("d", "west"),)), load_profile("manual"))
    (reader,) = world.submit(job("reader", gpus=8, datasets=("d",)))
    assert world.jobs[reader].bound == Binding("west")


def test_a_signal_tells_what_was_when_its_period_ended() -> None:
    """What changes within a period is seen after it."""
    loads = Loads(2, 30.0)
    loads.put("a", 0, 8000, 10.0)
    assert loads.seen(29.0).tolist() == [0, 0]
    assert loads.seen(30.0).tolist() == [8000, 0]
    loads.put("a", 1, 8000, 40.0)
    loads.put("b", 1, 1000, 65.0)
    assert loads.seen(66.0).tolist() == [0, 8000]
    loads.drop("a", 90.0)
    assert loads.seen(95.0).tolist() == [0, 9000]
    assert loads.seen(120.0).tolist() == [0, 1000]


def test_a_gang_of_any_model_is_of_one() -> None:
    """What fits on hosts of two models together is no place for it; tasks without GPUs have one."""
    hosts = (HostSpec("v", "V100", 4, cpus=8), HostSpec("k", "K80", 4, cpus=8))
    mixed = ClusterSpec("mixed", hosts)
    assert could_hold(mixed, job("a", count=2, gpus=2, model=None))
    assert not could_hold(mixed, job("a", count=3, gpus=2, model=None))
    assert could_hold(mixed, job("a", count=4, resources=needs(cpus=4)))


@pytest.mark.parametrize(
    ("story", "spec", "want"),
    [
        ("as many as fit", job("a", count=2, gpus=4), True),
        ("one too many", job("a", count=3, gpus=4), False),
        ("shares of a GPU", job("a", count=16, gpus=0.5), True),
        ("shares that leave a rest", job("a", count=9, gpus=0.6), False),
        ("another model", job("a", gpus=1, model="A100"), False),
    ],
)
def test_what_an_empty_cluster_could_hold(story: str, spec: JobSpec, want: bool) -> None:
    """By GPUs of one model, task by task."""
    assert could_hold(EAST, spec) is want, story


@pytest.mark.parametrize(
    ("home", "want"),
    [
        pytest.param("east-2", "east-2", id="a cluster is a home"),
        pytest.param("west", "west-1", id="a region is one"),
        pytest.param("nowhere", "east-1", id="what is neither leaves the first region"),
    ],
)
def test_where_home_is(home: str, want: str) -> None:
    """Hydra's homes are sub-clusters; people know regions too."""
    world = World(
        fleet(cluster("east-1"), cluster("east-2"), cluster("west-1")),
        load_profile("hydra"),
    )
    world.submit(job("first", gpus=1, home=home))
    bound = world.jobs["j1"].bound
    assert bound is not None
    assert bound.cluster == want
