"""Quotas for a while: they begin and end by themselves, and jobs start as they allow."""

import pytest

from tests.support import invariants
from tests.support.build import cluster, fleet, job, profile, tenant
from tests.support.world import World
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import NotFound
from topmast.model.states import JobState
from topmast.model.timed_quota import TimedQuota

HOUR_S = 3600.0


def world_of() -> World:
    """Two tenants with eight GPUs each; what is over quota waits."""
    tenants = (tenant("vision", borrow=0, H100=8), tenant("speech", borrow=0, H100=8))
    return World(fleet(cluster("east-1", hosts=4), tenants=tenants), profile())


def give(world: World, gpus: int, from_h: float, until_h: float) -> None:
    """Another quota for vision, from so many hours from now on."""
    from_s, until_s = (world.now + hours * HOUR_S for hours in (from_h, until_h))
    timed = TimedQuota("vision", {"H100": gpus}, from_s, until_s, "ann", "a deadline")
    assert world.tell(ids.QUEUE, m.SetQuota(timed)) is None


def test_a_quota_for_a_while_begins_and_ends_by_itself() -> None:
    """Jobs start when it begins; when it ends they go on, and later ones wait. Crashes or not."""
    world = world_of()
    world.submit(*(job(gpus=8, tenant="vision") for _ in range(3)))
    give(world, 16, 1.0, 2.0)
    assert [world.state(f"j{n}") for n in (1, 2)] == [JobState.RUNNING, JobState.PENDING]
    world.snapshot()
    world.crash()
    world.advance(HOUR_S)
    assert [world.state(f"j{n}") for n in (2, 3)] == [JobState.RUNNING, JobState.PENDING]
    world.crash()
    assert world.queue.tenancy.ledger.tenants["vision"].quota == {"H100": 16}
    world.advance(HOUR_S)
    assert world.state("j2") is JobState.RUNNING
    world.finish("j1")
    assert world.state("j3") is JobState.PENDING
    assert not world.queue.tenancy.timed
    world.finish("j2")
    assert world.state("j3") is JobState.RUNNING
    invariants.check_rest(world)
    invariants.check_rebuilds(world)


def test_another_one_takes_its_place_and_people_end_it() -> None:
    """The same again changes nothing."""
    world = world_of()
    give(world, 16, 0.0, 2.0)
    give(world, 24, 0.0, 2.0)
    world.submit(*(job(gpus=8, tenant="vision") for _ in range(4)))
    assert [world.state(f"j{n}") for n in (3, 4)] == [JobState.RUNNING, JobState.PENDING]
    seq = len(world.journal.written)
    give(world, 24, 0.0, 2.0)
    assert len(world.journal.written) == seq
    assert world.tell(ids.QUEUE, m.EndQuota("vision", "bob")) is None
    assert world.queue.tenancy.ledger.tenants["vision"].quota == {"H100": 8}


def test_a_smaller_quota_stops_nothing() -> None:
    """What runs goes on; the next job waits for the end."""
    world = world_of()
    world.submit(*(job(gpus=4, tenant="vision") for _ in range(2)))
    give(world, 4, 0.0, 1.0)
    world.finish("j1")
    world.submit(job(gpus=4, tenant="vision"))
    assert [world.state(f"j{n}") for n in (2, 3)] == [JobState.RUNNING, JobState.PENDING]
    world.advance(HOUR_S)
    assert world.state("j3") is JobState.RUNNING


def test_a_tenant_that_leaves_takes_its_quota_along() -> None:
    """Also one that has not begun."""
    world = world_of()
    give(world, 16, 1.0, 2.0)
    world.configure(fleet(cluster("east-1"), tenants=(tenant("speech", H100=8),)))
    assert not world.queue.tenancy.timed
    world.advance(2 * HOUR_S)


@pytest.mark.parametrize("order", [m.EndQuota("vision"), m.EndQuota("visoin")])
def test_there_must_be_something_to_end(order: m.EndQuota) -> None:
    """Else the name is wrong."""
    assert isinstance(world_of().tell(ids.QUEUE, order), NotFound)
