"""A drained host takes nothing new, and lets go of its work as soon as that has a place elsewhere."""

from typing import Any

from tests.support import invariants
from tests.support.build import cluster, fleet, job, profile
from tests.support.world import World
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.states import HostState, JobState
from topmast.service import fleet as listing
from topmast.service.explain import explain_job

HOST = "east-1-0"


def _full(*, obedient: bool = True, **more: Any) -> World:
    """Two hosts: on the first j1 (4 GPUs) and j2 (2); on the second j3, with 3 GPUs left."""
    world = World(fleet(cluster("east-1")), profile(min_runtime_s=300.0), obedient=obedient)
    world.submit(job("wide", gpus=4, **more))
    world.submit(job("small", gpus=2, **more))
    world.set_host(HOST, HostState.CORDONED)
    world.submit(job("other", gpus=5))
    world.set_host(HOST, HostState.HEALTHY)
    for name in ("j1", "j2", "j3"):
        if not obedient:
            world.start(name)
    assert [world.jobs[j].hosts for j in ("j1", "j2")] == [(HOST,)] * 2
    return world


def _why(world: World) -> dict[str, str]:
    """What is still on the host, and why."""
    departures = world.placer("east").departures((HOST,), world.now)
    return {d.job: d.why for d in departures}


def test_what_has_a_place_moves_and_what_has_none_runs_on() -> None:
    """Young as they are: an operator wants the host. The rest is told why it stays."""
    world = _full()
    world.set_host(HOST, HostState.DRAINING)
    assert world.jobs["j2"].hosts == ("east-1-1",)
    assert (world.jobs["j2"].migrations, world.jobs["j2"].preemptions) == (1, 1)
    assert (world.state("j1"), world.jobs["j1"].epoch) == (JobState.RUNNING, 1)
    assert _why(world) == {"j1": "no other hosts in region east have room for it now"}
    world.submit(job("new", gpus=2))
    assert world.state("j4") is JobState.PENDING
    invariants.check_rest(world)
    invariants.check_rebuilds(world)


def test_the_rest_moves_as_soon_as_there_is_a_place() -> None:
    """It goes before those who wait in the queue; and the host is empty."""
    world = _full()
    world.set_host(HOST, HostState.DRAINING)
    world.submit(job("waits", gpus=4))
    world.checkpoint("j1", 12)
    world.finish("j3")
    assert world.jobs["j1"].hosts == ("east-1-1",)
    assert (world.jobs["j1"].migrations, world.jobs["j1"].step) == (1, 12)
    assert world.state("j4") is JobState.PENDING
    assert not _why(world)
    story = [row.text for row in world.journal.history("j1")]
    assert f"preempting: migrated off host {HOST} (drain)" in story
    invariants.check_rest(world)
    invariants.check_rebuilds(world)


def test_a_drain_at_once_stops_what_has_no_place() -> None:
    """Also when the drain has begun: what is stopped waits in the queue, with the age it had."""
    world = _full()
    world.set_host(HOST, HostState.DRAINING)
    now = m.SetHost(HOST, HostState.DRAINING, "ann", at_once=True)
    world.tell(ids.placer("east"), now)
    assert world.state("j1") is JobState.PENDING
    assert (world.jobs["j1"].preemptions, world.jobs["j1"].migrations) == (1, 0)
    assert f"host {HOST} is drained" in " ".join(r.text for r in world.journal.history("j1"))
    invariants.check_rest(world)


def test_what_may_not_be_preempted_runs_to_its_end() -> None:
    """At once or not."""
    world = _full(preemptible=False)
    world.tell(ids.placer("east"), m.SetHost(HOST, HostState.DRAINING, "ann", at_once=True))
    assert [world.jobs[j].epoch for j in ("j1", "j2")] == [1, 1]
    assert _why(world) == dict.fromkeys(
        ("j1", "j2"), "it may not be preempted, so it runs to its end"
    )
    world.finish("j1")
    world.finish("j2")
    assert not _why(world)


def test_a_host_that_is_returned_keeps_what_is_still_there() -> None:
    """Nobody is stopped any more for a drain that was called off."""
    world = _full()
    world.set_host(HOST, HostState.DRAINING)
    world.set_host(HOST, HostState.HEALTHY)
    world.finish("j3")
    assert (world.jobs["j1"].hosts, world.jobs["j1"].epoch) == ((HOST,), 1)


def test_two_hosts_drained_at_once_do_not_trade_their_work() -> None:
    """No host that is drained is a place for another's work."""
    world = World(fleet(cluster("east-1", hosts=3, gpus=4)), profile())
    for _ in range(2):
        world.submit(job(gpus=3))
    hosts = [world.jobs[j].hosts[0] for j in ("j1", "j2")]
    world.submit(job("third", gpus=3))
    for host in hosts:
        world.set_host(host, HostState.DRAINING)
    assert [world.jobs[j].hosts[0] for j in ("j1", "j2")] == hosts
    world.finish("j3")
    moved = [j for j in ("j1", "j2") if world.jobs[j].hosts[0] not in hosts]
    assert len(moved) == 1
    invariants.check_rest(world)


def test_a_drain_holds_over_a_restart_of_the_server() -> None:
    """The wish and the places are in the journal: what has no place yet moves after it."""
    world = _full()
    world.set_host(HOST, HostState.DRAINING)
    world.restart()
    world.finish("j3")
    assert world.jobs["j1"].hosts == ("east-1-1",)
    invariants.check_rebuilds(world)


def test_the_plan_of_a_drain_is_what_the_drain_does() -> None:
    """Shown before, with costs; and nothing changes by looking."""
    world = _full(obedient=False)
    world.advance(70)
    placer = world.placer("east")
    before = placer.snapshot()
    (shown,) = listing.drain_plans(placer, (HOST,), world.now)
    assert placer.snapshot() == before
    assert (shown.host, shown.region, shown.state) == (HOST, "east", "healthy")
    wide, small = shown.moves
    assert (wide.job, wide.moves, wide.to_hosts) == ("j1", False, ())
    assert wide.why == "no other hosts in region east have room for it now"
    assert wide.cost_gpu_s == 4 * (70 + 1)  # whatever its band: GPU-seconds, and no price
    assert (small.job, small.moves, small.to_cluster) == ("j2", True, "east-1")
    assert (small.to_hosts, small.why) == (("east-1-1",), "")
    world.set_host(HOST, HostState.DRAINING)
    assert world.state("j2") is JobState.PREEMPTING
    assert placer.state.places["j2"].plan.hosts == small.to_hosts
    rows = {row.name: row for row in listing.hosts({"east": placer}, world.now)}
    assert rows[HOST].stays == {"j1": wide.why, "j2": "it is already stopping"}
    assert rows["east-1-1"].stays == {}


def test_a_job_that_stays_is_told_why() -> None:
    """In its explanation; one that runs elsewhere hears nothing of it."""
    world = _full()
    world.set_host(HOST, HostState.DRAINING)
    told = {
        name: explain_job(world.queue, world.machines.placers, world.jobs[name], world.now).summary
        for name in ("j1", "j2")
    }
    assert told["j1"].endswith(
        f"; {HOST} is drained, and no other hosts in region east have room for it now"
    )
    assert "drained" not in told["j2"]
    (region,) = listing.regions(world.queue, world.machines.placers)
    assert (region.places_kept, region.places_used, region.places_missed) == (0, 1, 0)


def _spread(obedient: bool = True) -> World:
    """Four hosts of 8 GPUs: a job on each of the first two, an idle third, a fourth with 2 GPUs left."""
    world = World(fleet(cluster("east-1", hosts=4)), profile(), obedient=obedient)
    for name, gpus in (("a", 8), ("b", 4), ("c", 6)):
        world.submit(job(name, gpus=gpus))
    for name in ("j1", "j2", "j3"):
        if not obedient:
            world.start(name)
    return world


def _drain(world: World, *hosts: str, at_once: bool = False) -> None:
    first, *others = hosts
    order = m.SetHost(first, HostState.DRAINING, "ann", at_once, tuple(others))
    world.tell(ids.placer("east"), order)


def test_hosts_that_are_drained_together_are_no_place_for_each_other() -> None:
    """All are out of service before any work moves; what has no place elsewhere runs on, in its first attempt."""
    world = _spread()
    homes = {j: world.jobs[j].hosts[0] for j in ("j1", "j2", "j3")}
    assert len(set(homes.values())) == 3
    idle = next(h for h in (f"east-1-{n}" for n in range(4)) if h not in homes.values())
    drained = (homes["j1"], idle, homes["j2"])
    shown = {
        move.job: move
        for plan in listing.drain_plans(world.placer("east"), drained, world.now)
        for move in plan.moves
    }
    _drain(world, *drained)
    assert (world.state("j1"), world.jobs["j1"].epoch) == (JobState.RUNNING, 1)
    assert world.jobs["j1"].hosts == (homes["j1"],)
    moved = {job for job in homes if world.jobs[job].epoch > 1}
    assert {job for job, move in shown.items() if move.moves} == moved
    assert shown.keys() == {"j1", "j2"}
    invariants.check_rest(world)
    invariants.check_rebuilds(world)


def test_a_drain_of_hosts_does_what_its_plan_says() -> None:
    """The largest job takes the only place; the other is told that it has none, and stays."""
    world = World(fleet(cluster("east-1", hosts=3)), profile())
    for gpus in (5, 6):
        world.submit(job(gpus=gpus))
    hosts = tuple(world.jobs[j].hosts[0] for j in ("j1", "j2"))
    placer = world.placer("east")
    shown = [plan.moves for plan in listing.drain_plans(placer, hosts, world.now)]
    assert [[(move.job, move.moves) for move in moves] for moves in shown] == [
        [("j1", False)], [("j2", True)],
    ]  # fmt: skip
    _drain(world, *hosts)
    assert world.jobs["j2"].hosts == shown[1][0].to_hosts
    assert (world.jobs["j1"].hosts[0], world.jobs["j1"].epoch) == (hosts[0], 1)


def test_hosts_of_another_region_are_refused_and_nothing_is_drained() -> None:
    """All or none."""
    world = _spread()
    _drain(world, "east-1-0", "west-1-0")
    assert world.placer("east").host_state("east-1-0") is HostState.HEALTHY


def _moving_to() -> tuple[World, str]:
    """A job that is being stopped, and the host on which a place is kept for it."""
    world = World(fleet(cluster("east-1", hosts=2), cluster("west-1")), profile(), obedient=False)
    world.submit(job("a", gpus=8))
    world.start("j1")
    (home,) = world.jobs["j1"].hosts
    region = world.region_of(home)
    world.tell(ids.placer(region), m.SetHost(home, HostState.DRAINING, "ann"))
    (place,) = world.placer(region).state.places.values()
    return world, place.plan.hosts[0]


def _kept(world: World) -> dict[str, tuple[str, ...]]:
    """For which jobs GPUs are kept, by host, as `topmast hosts` shows it."""
    rows = listing.hosts(world.machines.placers, world.now)
    return {row.name: row.kept_for for row in rows if row.kept_for}


def _free(world: World, host: str) -> float:
    rows = listing.hosts(world.machines.placers, world.now)
    return next(row.free_gpus for row in rows if row.name == host)


def test_a_place_that_is_kept_is_shown() -> None:
    """Else a host would have no free GPUs, and no job, for no reason that anybody could see."""
    world, host = _moving_to()
    assert _kept(world) == {host: ("j1",)}
    assert _free(world, host) == 0.0


def test_a_place_on_a_host_that_leaves_service_is_kept_no_more() -> None:
    """Once it is back, others have its GPUs at once."""
    for state in (HostState.DRAINING, HostState.CORDONED):
        world, host = _moving_to()
        world.set_host(host, state)
        assert _kept(world) == {}
        world.set_host(host, HostState.HEALTHY)
        assert _free(world, host) == 8.0
        invariants.check_rebuilds(world)


def test_a_place_on_a_host_that_is_lost_is_kept_no_more() -> None:
    """The job is placed like any other when it has stopped."""
    world, host = _moving_to()
    world.lose(host)
    assert _kept(world) == {}


def test_a_job_that_is_cancelled_while_it_moves_leaves_no_place_behind() -> None:
    """Whether it is still being stopped, or waits already."""
    world, host = _moving_to()
    world.cancel("j1")
    world.finish("j1", None)
    assert world.state("j1") is JobState.CANCELLED
    assert _kept(world) == {}
    assert _free(world, host) == 8.0
    invariants.check_rebuilds(world)


def test_a_job_that_goes_elsewhere_leaves_no_place_behind() -> None:
    """The place is on a host that the job avoids by now; it starts in another region, and the GPUs are free."""
    world = World(fleet(cluster("east-1", hosts=2), cluster("west-1")), profile(), obedient=False)
    world.submit(job("a", gpus=8))
    world.start("j1")
    (bad,) = world.jobs["j1"].hosts
    region = world.region_of(bad)
    world.lose(bad)
    world.revive(bad)
    (home,) = world.jobs["j1"].hosts
    assert world.region_of(home) == region
    world.start("j1")
    world.advance(3600.0)
    world.set_host(home, HostState.DRAINING)
    assert _kept(world) == {bad: ("j1",)}
    world.finish("j1", None)
    assert world.region_of(world.jobs["j1"].hosts[0]) != region
    assert _kept(world) == {}
    assert _free(world, bad) == 8.0
    invariants.check_rebuilds(world)
