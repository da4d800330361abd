"""Each profile's promise, lived through by whole systems: who starts, who waits, who is passed."""

from dataclasses import dataclass

import pytest

from tests.support.build import cluster, dataset, fleet, job, tenant
from tests.support.world import World
from topmast.model.fleet import TenantSpec
from topmast.model.job import Band, JobSpec
from topmast.policies.registry import load_profile

NO_TENANTS = (TenantSpec("default"),)


def _world(profile: str, hosts: int = 1, tenants: tuple[TenantSpec, ...] = NO_TENANTS) -> World:
    options = {"min_runtime_s": "0"}
    return World(fleet(cluster("east-1", hosts), tenants=tenants), load_profile(profile, options))


def _starts(world: World, jobs: tuple[str, ...]) -> list[str]:
    """Let all jobs run, one after the other; returns the names in the order of their starts."""
    order: list[str] = []
    while len(order) < len(jobs):
        for name in sorted(jobs, key=lambda j: world.jobs[j].first_start_s or 0.0):
            if world.states()[name] == "RUNNING" and name not in order:
                order.append(name)
        world.advance(1)
        world.finish(order[-1])
    return [world.jobs[j].spec.name for j in order]


LONG = job("long", gpus=8, duration_s=300.0)
MIDDLE = job("middle", gpus=8, duration_s=200.0, band=Band.LOW)
SHORT = job("short", gpus=8, duration_s=100.0, band=Band.CRITICAL)

ORDERED = [
    ("mast", ["short", "long", "middle"]),
    ("fifo", ["long", "middle", "short"]),
    ("fifo-skip", ["long", "middle", "short"]),
    ("sjf", ["short", "middle", "long"]),
]


@pytest.mark.parametrize(("profile", "want"), ORDERED)
def test_who_is_next(profile: str, want: list[str]) -> None:
    """By band, by age, by expected duration: as the profile says."""
    world = _world(profile)
    (blocker,) = world.submit(job("blocker", gpus=8, band=Band.CRITICAL, preemptible=False))
    jobs: tuple[str, ...] = ()
    for spec in (LONG, MIDDLE, SHORT):
        world.advance(1)
        jobs += world.submit(spec)
    world.finish(blocker)
    assert _starts(world, jobs) == want


@pytest.mark.parametrize(
    ("profile", "passed"), [("mast", True), ("fifo", False), ("fifo-skip", True), ("sjf", True)]
)
def test_whether_a_job_without_room_is_passed(profile: str, passed: bool) -> None:
    """Strict first come, first served leaves GPUs idle; the others use them."""
    world = _world(profile, hosts=2)
    world.submit(job("most", gpus=6, count=2))
    world.submit(job("large", gpus=8, count=2, duration_s=1.0, preemptible=False))
    world.submit(job("small", gpus=2))
    assert (world.states()["j2"], world.states()["j3"] == "RUNNING") == ("PENDING", passed)
    world.finish("j1")
    assert (world.states()["j2"] == "RUNNING", world.states()["j3"] == "RUNNING") == (
        not passed,
        passed,
    )


@pytest.mark.parametrize("profile", ["fifo", "fifo-skip", "sjf"])
def test_nobody_is_stopped_where_nobody_may_be(profile: str) -> None:
    """Whatever the bands."""
    world = _world(profile)
    world.submit(job("low", gpus=8, band=Band.LOW))
    world.submit(job("urgent", gpus=8, band=Band.CRITICAL))
    assert world.states() == {"j1": "RUNNING", "j2": "PENDING"}


# --- strict first come, first served -----------------------------------------------------------------


@dataclass
class Held:
    """A job that cannot start for another reason than lack of room holds nobody up."""

    story: str
    spec: JobSpec
    want_reason: str


HELD = [
    Held("hardware that nobody has", job(model="Z9"), "NoMatchingHardware"),
    Held("more than the fleet has", job(gpus=8, count=9), "TopologyDoesNotFit"),
    Held("a dataset that nobody knows", job(datasets=("nowhere",)), "UnknownDataset"),
    Held("quota in use", job(gpus=8, tenant="poor", preemptible=False), "WaitingForQuota"),
    Held("more than its quota, ever", job(count=9, tenant="poor"), "ExceedsMaxQuota"),
]


@pytest.mark.parametrize("case", HELD, ids=lambda case: case.story)
def test_only_lack_of_room_holds_others_up(case: Held) -> None:
    """Else one tenant's quota, or one typing error, would stop the world."""
    tenants = (TenantSpec("default"), tenant("poor", borrow=0, H100=8))
    world = _world("fifo", hosts=3, tenants=tenants)
    (first,) = world.submit(job("first", gpus=4, tenant="poor"))
    held, later = world.submit(case.spec, job("later"))
    assert world.reason(held) == case.want_reason
    assert world.states() == {first: "RUNNING", held: "PENDING", later: "RUNNING"}


def test_who_waits_behind_a_job_that_is_cancelled_goes_on() -> None:
    """Those of its own kind first."""
    world = _world("fifo")
    world.submit(job("running", gpus=4))
    world.submit(job("large", gpus=8), job("large, too", gpus=8), job("small"))
    world.cancel("j2")
    assert world.states()["j4"] == "PENDING"
    world.cancel("j3")
    assert world.states()["j4"] == "RUNNING"


def test_a_job_over_quota_holds_up_those_behind_it_when_there_is_no_room() -> None:
    """Order of submission counts, not who has quota."""
    world = _world("fifo", tenants=(TenantSpec("default"), tenant("poor", H100=1)))
    world.submit(job("running", gpus=4))
    world.submit(job("large", gpus=8, tenant="poor"), job("small"))
    assert world.states() == {"j1": "RUNNING", "j2": "PENDING", "j3": "PENDING"}
    world.finish("j1")
    assert world.states() == {"j1": "SUCCEEDED", "j2": "RUNNING", "j3": "PENDING"}


def test_a_queue_stands_in_order_again_after_a_restart() -> None:
    """Who was held up stays so, and starts in turn."""
    world = _world("fifo")
    world.submit(job("running", gpus=4))
    world.submit(job("large", gpus=8), job("small"))
    world.restart()
    assert world.states() == {"j1": "RUNNING", "j2": "PENDING", "j3": "PENDING"}
    world.finish("j1")
    assert world.states()["j2"] == "RUNNING"


def test_data_under_way_holds_nobody_up() -> None:
    """It comes when it comes."""
    specs = (dataset("d", "west", size_bytes=10**12),)
    both = fleet(cluster("east-1", 1), cluster("west-1", 1), datasets=specs)
    world = World(both, load_profile("fifo"))
    world.submit(job("west", gpus=8, datasets=("d",)))
    world.submit(job("reader", datasets=("d",)), job("later"))
    assert world.reason("j2") == "WaitingForData"
    assert world.states()["j3"] == "RUNNING"


# --- durations --------------------------------------------------------------------------------------


def test_what_recurs_is_expected_to_take_what_it_took() -> None:
    """Without a hint, the median of the group's finished runs by the same user tells."""
    world = _world("sjf")
    for seconds in (10, 30, 20):
        (name,) = world.submit(job("nightly", gpus=8, group="nightly", user="ann"))
        world.advance(seconds)
        world.finish(name)
    world.restart()
    world.submit(job("blocker", gpus=8))
    jobs = world.submit(
        job("by hint", gpus=8, duration_s=21.0),
        job("another's", gpus=8, group="nightly", user="bob"),
        job("by limit", gpus=8, time_limit_s=19.0),
        job("nightly", gpus=8, group="nightly", user="ann"),
    )
    world.finish("j4")
    assert _starts(world, jobs) == ["by limit", "nightly", "by hint", "another's"]
