"""What there is, as people are shown it."""

import pytest

from tests.support.build import cluster, fleet, job, profile, tenant
from tests.support.world import World
from topmast.model.engines import PROCESSES
from topmast.model.map_views import HolderView
from topmast.model.states import HostState
from topmast.policies.options import Preemption, SliceOptions
from topmast.service.fleet import clusters, gpus, hosts, tenants
from topmast.service.fleet_map import _held

HOSTS = ("east-1-0", "east-1-1", "east-1-2")


@pytest.mark.parametrize(
    ("story", "closed", "lost", "want", "why"),
    [
        ("all is well", {}, (), "open", ""),
        ("a host is drained", {"east-1-0": "drained"}, (), "partly", ""),
        ("a host is lost", {}, ("east-1-0",), "partly", ""),
        ("its engine is not trusted", dict.fromkeys(HOSTS, "no answer"), (), "closed", "no answer"),
        (
            "the reason of most is told",
            {"east-1-0": "drained", "east-1-1": "hangs", "east-1-2": "hangs"}, (), "closed", "hangs",
        ),
        ("some are lost, the others closed", {"east-1-0": "drained"}, HOSTS[1:], "closed", "drained"),
        ("all are lost", {}, HOSTS, "down", ""),
    ],
)  # fmt: skip
def test_whether_a_cluster_takes_new_work(
    story: str, closed: dict[str, str], lost: tuple[str, ...], want: str, why: str
) -> None:
    """It is its engine that says so, host by host; and when all is well again, it is open."""
    world = World(fleet(cluster("east-1", hosts=3)))
    for host, reason in closed.items():
        world.close_host(host, reason)
    for host in lost:
        world.lose(host)
    (view,) = clusters(world.queue, {"east": world.placer("east")})
    assert (view.state, view.closed, view.closed_hosts) == (want, why, closed), story
    assert set(view.capabilities) == PROCESSES
    for host in closed:
        world.close_host(host, "")
    for host in lost:
        world.revive(host)
    (view,) = clusters(world.queue, {"east": world.placer("east")})
    assert view.state == "open"


def test_gpus_that_jobs_take_in_turns_are_not_free() -> None:
    """Whatever turn has them; those of a host that takes no work are not free either."""
    turns = profile(slices=SliceOptions(layers=2), order="submission", preemption=Preemption.NONE)
    world = World(fleet(cluster("east-1", hosts=2)), turns)
    assert [view.free_gpus for view in clusters(world.queue, {"east": world.placer("east")})] == [
        16.0
    ]
    for _ in range(2):
        world.submit(job(gpus=8))
    found = {view.free_gpus for view in clusters(world.queue, {"east": world.placer("east")})}
    world.set_host("east-1-1", HostState.CORDONED)
    (view,) = clusters(world.queue, {"east": world.placer("east")})
    assert (found, view.free_gpus, view.running_jobs) == ({0.0}, 0.0, 2)


def test_gpus_are_told_by_cluster_and_model() -> None:
    """Present, free, held by jobs, and those of hosts that take no work but hold none."""
    world = World(fleet(cluster("west-1", model="A100"), cluster("east-1", hosts=3)))
    world.submit(job(gpus=8))
    world.submit(job(gpus=2))
    taken = {h.name for h in hosts({"east": world.placer("east")}, 0.0) if h.jobs}
    away = next(host for host in HOSTS if host not in taken)
    world.set_host(away, HostState.CORDONED)
    placers = {"west": world.placer("west"), "east": world.placer("east")}
    found = [
        (v.region, v.cluster, v.gpu_model, v.total, v.free, v.held, v.unavailable)
        for v in gpus(placers)
    ]
    assert found == [
        ("east", "east-1", "H100", 24.0, 6.0, 10.0, 8.0),
        ("west", "west-1", "A100", 16.0, 16.0, 0.0, 0.0),
    ]


def test_the_map_tells_the_jobs_of_a_host_in_the_order_of_their_slots() -> None:
    """Not in that of their starts; the tasks of a job are added up, and no GPU is no line."""
    world = World(fleet(cluster("east-1", hosts=1)))
    (first,) = world.submit(job(gpus=2))
    (second,) = world.submit(job(gpus=2))
    world.cancel(first)
    (third,) = world.submit(job(gpus=1, count=2))
    (without,) = world.submit(job(gpus=0))
    jobs: dict[str, HolderView] = {}
    held = _held(world.placer("east"), world.queue, jobs)
    assert [list(of_host.items()) for of_host in held.values()] == [[(third, 2.0), (second, 2.0)]]
    assert set(jobs) == {second, third}
    assert without in world.jobs


def test_the_recent_usage_has_what_runs() -> None:
    """As if it ended now; the order of jobs counts an attempt when it ends."""
    teams = (tenant("nlp", H100=8), tenant("vision", H100=8))
    world = World(fleet(cluster("east-1", hosts=2), tenants=teams))
    queue = world.queue

    def lately(now: float | None) -> dict[str, float]:
        return {row.name: row.usage_share for row in tenants(queue, now=now)}

    world.submit(job(gpus=8, tenant="nlp"))
    world.start("j1")
    assert lately(world.now)["nlp"] == 0.0
    world.advance(900.0)
    assert lately(world.now) == {"nlp": 1.0, "vision": 0.0}
    assert lately(None)["nlp"] == queue.tenancy.ledger.share("nlp").used == 0.0
    world.submit(job(gpus=8, tenant="vision"))
    world.start("j2")
    world.advance(300.0)
    before = lately(world.now)
    assert before["nlp"] == pytest.approx(0.8)
    assert before["vision"] == pytest.approx(0.2)
    world.finish("j1")
    world.finish("j2")
    world.advance(1.0)
    assert lately(None)["nlp"] == pytest.approx(0.8, abs=0.01)
