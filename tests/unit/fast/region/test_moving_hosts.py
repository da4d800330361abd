"""Hosts that go from one cluster of a region to another while the system runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import invariants
from tests.support.build import cluster, fleet, job, profile
from tests.support.world import World
from topmast.model import ids
from topmast.model.errors import NotFound
from topmast.model.fleet import Fleet
from topmast.model.owners import owners_of
from topmast.model.states import HostState, JobState
from topmast.policies.options import BindOptions


def _fleet() -> Fleet:
    return fleet(cluster("east-1", hosts=2), cluster("east-2", hosts=2))


def _world(**options: Any) -> World:
    """Two clusters of two hosts with 8 GPUs each."""
    return World(_fleet(), profile(**options))


def _owner(world: World, host: str) -> str:
    """Whose a host is: placer, queue, cluster managers and engines agree."""
    spoken = {
        owners_of(world.placer("east").state.region)[host],
        owners_of(world.queue.fleet.regions[0])[host],
        world.cluster_of(host),
        *(
            name
            for name, manager in world.machines.clusters.items()
            if manager.state.cluster and host in {h.name for h in manager.state.cluster.hosts}
        ),
    }
    assert len(spoken) == 1, spoken
    return spoken.pop()


def _check(world: World) -> None:
    invariants.check_rest(world)
    invariants.check_rebuilds(world)


def test_an_idle_host_goes_at_once_and_works_for_its_new_cluster() -> None:
    """A gang of three hosts, which neither cluster could hold, finds its place there."""
    world = _world()
    world.submit(job("wide", gpus=8, count=3))
    assert world.state("j1") is JobState.PENDING
    world.assign("east", east_2_0="east_1")
    assert _owner(world, "east-2-0") == "east-1"
    assert world.state("j1") is JobState.RUNNING
    assert world.jobs["j1"].cluster == "east-1"
    assert "east-2-0" in world.jobs["j1"].hosts
    story = [row.text for row in world.journal.history(ids.host("east-2-0"))]
    assert story[-1] == "east-2-0 belongs to cluster east-1 now"
    _check(world)
    world.finish("j1")
    assert world.state("j1") is JobState.SUCCEEDED


def test_a_host_in_use_takes_nothing_new_and_goes_when_its_work_is_done() -> None:
    """What cannot leave runs to its end; until then the host is the old cluster's."""
    world = _world()
    world.submit(*(job(f"n{i}", gpus=8, preemptible=False) for i in range(4)))
    host = world.jobs["j1"].hosts[0]
    other = "east-2" if host.startswith("east-1") else "east-1"
    world.assign("east", **{host.replace("-", "_"): other})
    assert (_owner(world, host), world.placer("east").host_state(host)) == (
        host[:6], HostState.DRAINING,
    )  # fmt: skip
    world.submit(job("later", gpus=8))
    world.finish("j1")
    assert _owner(world, host) == other
    assert (world.jobs["j5"].hosts, world.jobs["j5"].cluster) == ((host,), other)
    _check(world)


def test_work_that_has_a_place_elsewhere_moves_away_as_in_a_drain() -> None:
    """It keeps what it had checkpointed, and nobody has to wait for its end."""
    world = _world()
    world.submit(job("small", gpus=4))
    host = world.jobs["j1"].hosts[0]
    other = "east-2" if host.startswith("east-1") else "east-1"
    world.assign("east", **{host.replace("-", "_"): other})
    assert _owner(world, host) == other
    assert world.state("j1") is JobState.RUNNING
    assert world.jobs["j1"].hosts != (host,)
    assert world.jobs["j1"].migrations == 1
    _check(world)


def test_a_later_plan_takes_the_place_of_what_is_left_of_an_earlier_one() -> None:
    """A host that need not go after all takes work again."""
    world = _world()
    world.submit(*(job(f"n{i}", gpus=8, preemptible=False) for i in range(4)))
    host = world.jobs["j1"].hosts[0]
    other = "east-2" if host.startswith("east-1") else "east-1"
    world.assign("east", **{host.replace("-", "_"): other})
    world.assign("east")
    assert world.placer("east").host_state(host) is HostState.HEALTHY
    world.finish("j1")
    assert _owner(world, host) == host[:6]
    _check(world)


def test_a_host_that_is_lost_stays_until_it_is_back() -> None:
    """Its engine has to make sure of what ran there."""
    world = _world()
    world.lose("east-2-0")
    world.assign("east", east_2_0="east_1")
    assert _owner(world, "east-2-0") == "east-2"
    world.revive("east-2-0")
    assert _owner(world, "east-2-0") == "east-1"
    assert world.placer("east").host_state("east-2-0") is HostState.HEALTHY
    _check(world)


def test_old_news_of_a_host_that_has_gone_say_nothing_of_it() -> None:
    """Its new cluster speaks for it."""
    world = _world()
    late = world.engines["east-2"].lose("east-2-0", world.now)
    world.engines["east-2"].down.clear()
    world.assign("east", east_2_0="east_1")
    world.post("cluster/east-2", late)
    world.settle()
    assert world.placer("east").host_state("east-2-0") is HostState.HEALTHY


@pytest.mark.parametrize("snapshot", [False, True])
def test_hosts_stay_where_they_went_when_the_server_starts_again(snapshot: bool) -> None:
    """The fleet file still has them at home. One that moves such a host itself is obeyed."""
    world = _world()
    world.assign("east", east_2_0="east_1")
    if snapshot:
        world.snapshot()
    world.restart()
    assert _owner(world, "east-2-0") == "east-1"
    assert world.queue.homes == {"east-2-0": "east-2"}
    _check(world)
    world.assign("east", east_2_0="east_2")
    assert _owner(world, "east-2-0") == "east-2"
    assert world.queue.homes == {}


def test_what_waits_to_go_is_known_after_a_restart() -> None:
    """The journal has it."""
    world = _world()
    world.submit(*(job(f"n{i}", gpus=8, preemptible=False) for i in range(4)))
    host = world.jobs["j1"].hosts[0]
    other = "east-2" if host.startswith("east-1") else "east-1"
    world.assign("east", **{host.replace("-", "_"): other})
    world.restart()
    world.finish("j1")
    assert _owner(world, host) == other
    _check(world)


def test_jobs_sent_to_a_cluster_that_became_too_small_are_sent_on() -> None:
    """Bound to cluster east-2, which loses one of the two hosts that the gang needs."""
    world = _world(bind=BindOptions(policy="least-loaded"))
    world.submit(job("first", gpus=8, count=2, preemptible=False))
    world.submit(job("second", gpus=8, count=2, preemptible=False))
    world.submit(job("third", gpus=8, count=2))
    bound = world.jobs["j3"].bound
    assert bound is not None
    here, other = bound.cluster, "east-1" if bound.cluster == "east-2" else "east-2"
    running = next(r for r in world.jobs.values() if r.cluster == here)
    assert here is not None
    world.assign("east", **{f"{here}-0".replace("-", "_"): other})
    world.finish(running.id)
    assert _owner(world, f"{here}-0") == other
    third = world.jobs["j3"].bound
    assert third is not None
    assert third.cluster == other
    _check(world)


@pytest.mark.parametrize(
    ("owners", "want"),
    [
        ({"nobody": "east_1"}, "no host 'nobody' in region 'east'"),
        ({"east_1_0": "west_1"}, "no cluster 'west-1' in region 'east'"),
    ],
)
def test_what_the_region_has_not_is_refused(owners: dict[str, str], want: str) -> None:
    """Nothing of such a plan is taken."""
    world = _world()
    answer = world.assign("east", east_2_0="east_1", **owners)
    assert isinstance(answer, NotFound)
    assert want in str(answer)
    assert _owner(world, "east-2-0") == "east-2"
