"""Reserved hosts: what would not end before does not start there, and all is open again after."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.support import invariants
from tests.support.build import cluster, fleet, job, profile, tenant
from tests.support.world import World
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.states import HostState, JobState
from topmast.model.window import Window

HOUR_S = 3600.0


def world_of(hosts: int = 2) -> World:
    """One cluster, with tenants one below the other."""
    tenants = (tenant("vision"), tenant("video", "vision"), tenant("speech"))
    return World(fleet(cluster("east-1", hosts=hosts), tenants=tenants), profile())


def reserve(world: World, from_h: float, until_h: float, **more: Any) -> str:
    """Reserve from so many hours from now on; the name of the window."""
    what = {"hosts": ("east-1-0",)} | more
    window = Window("", world.now + from_h * HOUR_S, world.now + until_h * HOUR_S, by="ann", **what)
    name = world.tell(ids.QUEUE, m.SetWindow(window))
    assert isinstance(name, str)
    return name


@dataclass
class Start:
    """A job, and whether it may start on a host that is reserved in two hours."""

    story: str
    limit_h: float | None
    expected_h: float | None
    want: bool
    tenant: str = "speech"
    tenants: tuple[str, ...] = ()


@pytest.mark.parametrize(
    "case",
    [
        Start("its limit ends before", 1.9, None, True),
        Start("its limit ends after", 2.1, None, False),
        Start("its limit counts, though it is expected to end before", 2.1, 1.0, False),
        Start("it has no limit, and is expected to end before", None, 1.0, True),
        Start("it has no limit, and is expected to end after", None, 3.0, False),
        Start("the hosts are for its tenant", 9.0, None, True, "vision", ("vision",)),
        Start("the hosts are for a tenant above", 9.0, None, True, "video", ("vision",)),
        Start("the hosts are for a tenant below", 9.0, None, False, "vision", ("video",)),
        Start("the hosts are for another tenant", 9.0, None, False, "speech", ("vision",)),
    ],
    ids=lambda case: case.story,
)
def test_a_job_that_would_not_end_before_does_not_start_there(case: Start) -> None:
    """One job fills the other host, so that the reserved one is all that is left."""
    world = world_of()
    reserve(world, 2.0, 4.0, tenants=case.tenants)
    limit_s = None if case.limit_h is None else case.limit_h * HOUR_S
    expected_s = None if case.expected_h is None else case.expected_h * HOUR_S
    world.submit(job(gpus=8, time_limit_s=100 * HOUR_S, tenant="speech"))
    assert world.jobs["j1"].hosts == ("east-1-1",)
    world.submit(job(gpus=8, time_limit_s=limit_s, duration_s=expected_s, tenant=case.tenant))
    assert (world.state("j2") is JobState.RUNNING) is case.want
    if not case.want:
        assert world.reason("j2") == "InsufficientCapacity"


def test_short_jobs_do_not_inherit_the_verdicts_of_long_ones() -> None:
    """The long ones come first and find no place; the short ones behind them start."""
    world = world_of(hosts=1)
    world.submit(job(gpus=8, time_limit_s=HOUR_S))
    reserve(world, 2.0, 4.0)
    world.submit(*(job(gpus=4, time_limit_s=9 * HOUR_S) for _ in range(3)))
    world.submit(*(job(gpus=4, time_limit_s=0.5 * HOUR_S) for _ in range(2)))
    world.finish("j1")
    assert [world.state(f"j{n}") for n in (5, 6)] == [JobState.RUNNING] * 2
    assert [world.state(f"j{n}") for n in (2, 3, 4)] == [JobState.PENDING] * 3
    world.advance(1.8 * HOUR_S)
    world.finish("j5")
    world.submit(job(gpus=4, time_limit_s=0.5 * HOUR_S))
    assert world.state("j7") is JobState.PENDING  # what would have ended before, does no more


def test_jobs_that_wait_already_are_sorted_by_how_long_they_would_stay() -> None:
    """They were alike until hosts were reserved, and are again when that is over."""
    world = world_of(hosts=1)
    world.submit(job(gpus=8))
    world.submit(job(gpus=4, time_limit_s=9 * HOUR_S), job(gpus=4, time_limit_s=HOUR_S))
    assert len(world.queue.backlog.job_classes) == 1
    name = reserve(world, 2.0, 4.0)
    assert len(world.queue.backlog.job_classes) == 2
    world.finish("j1")
    assert [world.state(f"j{n}") for n in (2, 3)] == [JobState.PENDING, JobState.RUNNING]
    world.submit(job(gpus=8), job(gpus=8, time_limit_s=HOUR_S))
    world.tell(ids.QUEUE, m.EndWindow(name, "bob"))
    assert world.state("j2") is JobState.RUNNING
    assert len(world.queue.backlog.job_classes) == 1


def test_a_window_closes_its_hosts_and_opens_them_by_itself() -> None:
    """What runs there goes on; what waited for the end starts then, also after crashes."""
    world = world_of()
    world.submit(job(gpus=4, time_limit_s=9 * HOUR_S), job(gpus=8, time_limit_s=9 * HOUR_S))
    (host,) = world.jobs["j1"].hosts
    name = reserve(world, 1.0, 2.0, hosts=(host,))
    assert reserve(world, 1.0, 2.0, hosts=(host,)) == name
    world.submit(job(gpus=4, time_limit_s=9 * HOUR_S))
    world.snapshot()
    world.crash()
    placer = world.placer("east")
    assert placer.host_state(host) is HostState.HEALTHY
    world.advance(HOUR_S)
    placer = world.placer("east")
    assert placer.host_state(host) is HostState.CLOSED
    assert placer.columns.closed[host] == f"reserved by ann ({name})"
    assert [world.state(f"j{n}") for n in (1, 3)] == [JobState.RUNNING, JobState.PENDING]
    world.crash()
    world.advance(HOUR_S)
    assert world.placer("east").host_state(host) is HostState.HEALTHY
    assert world.state("j3") is JobState.RUNNING
    assert not world.queue.windows.known
    invariants.check_rest(world)
    invariants.check_rebuilds(world)


@pytest.mark.parametrize("begun", [False, True])
def test_a_window_is_ended_by_people(begun: bool) -> None:
    """Then its hosts are open at once, and the next window has another name."""
    world = world_of(hosts=1)
    name = reserve(world, 1.0, 2.0, hosts=(), cluster="east-1")
    world.submit(job(gpus=8, time_limit_s=9 * HOUR_S))
    if begun:
        world.advance(HOUR_S)
        assert world.placer("east").host_state("east-1-0") is HostState.CLOSED
    assert world.state("j1") is JobState.PENDING
    world.tell(ids.QUEUE, m.EndWindow(name, "bob"))
    assert world.state("j1") is JobState.RUNNING
    assert reserve(world, 1.0, 2.0) == "w2"
    assert world.tell(ids.QUEUE, m.EndWindow(name, "bob")) is not None


def test_hosts_for_a_tenant_stay_open_to_it() -> None:
    """While the window lasts, only its jobs start there."""
    world = world_of(hosts=1)
    reserve(world, 0.0, 2.0, hosts=(), region="east", tenants=("vision",))
    world.submit(job(gpus=4, tenant="speech", time_limit_s=60.0))
    world.submit(job(gpus=4, tenant="video", time_limit_s=60.0))
    assert [world.state(f"j{n}") for n in (1, 2)] == [JobState.PENDING, JobState.RUNNING]
    assert world.placer("east").host_state("east-1-0") is HostState.HEALTHY
    world.advance(2 * HOUR_S)
    assert world.state("j1") is JobState.RUNNING
