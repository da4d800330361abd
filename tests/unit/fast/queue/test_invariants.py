"""The invariant of quotas: a limit that is passed is told, and one that was lowered is not passed."""

from __future__ import annotations

import pytest

from tests.support.build import cluster, fleet, job, tenant
from tests.support.world import World
from topmast.fast.invariants import Broken
from topmast.fast.queue.invariants import check_quotas
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import Fleet
from topmast.model.timed_quota import TimedQuota


def quotas(quota: int, borrow: int) -> Fleet:
    return fleet(cluster("east-1"), tenants=(tenant("a", borrow=borrow, H100=quota), tenant("c")))


def held() -> World:
    """The tenant ``a`` runs four GPUs within its quota and two over it, ``c`` one without limits."""
    world = World(quotas(4, 2))
    world.submit(job(gpus=4, tenant="a"), job(gpus=2, tenant="a"), job(gpus=1, tenant="c"))
    assert len(world.queue.jobs.placed) == 3
    return world


def test_a_limit_that_is_passed_is_told() -> None:
    """Within quota and over it, whatever the books say of their own sums."""
    for over_quota, story in ((False, "holds more H100"), (True, "borrows more H100")):
        world = held()
        queue = world.queue
        of_a = [r for r in queue.jobs.placed.values() if r.spec.tenant == "a"]
        record = next(r for r in of_a if r.over_quota is not over_quota)
        assert record.plan is not None
        queue.tenancy.unbook("a", record.plan, record.over_quota)
        record.over_quota = over_quota
        queue.tenancy.book([("a", record.plan, over_quota)])
        with pytest.raises(Broken, match=story):
            check_quotas(queue)


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize(("quota", "borrow"), [(1, 0), (1, 2), (4, 0)])
def test_what_runs_when_a_limit_is_lowered_breaks_nothing(
    quota: int, borrow: int, snapshot: bool
) -> None:
    """It runs on, through a restart too; nothing is added to it."""
    world = held()
    world.configure(quotas(quota, borrow))
    check_quotas(world.queue)
    if snapshot:
        world.snapshot()
    world.restart()
    check_quotas(world.queue)
    world.submit(job(gpus=1, tenant="a"))
    assert len(world.queue.jobs.placed) == 3
    check_quotas(world.queue)


def test_a_quota_for_a_while_may_be_below_what_runs() -> None:
    """For a tenant with a quota, and for one that has none in the fleet."""
    world = held()
    for name in ("a", "c"):
        timed = TimedQuota(name, {"H100": 0}, world.now, world.now + 60.0, "ann")
        world.tell(ids.QUEUE, m.SetQuota(timed))
        check_quotas(world.queue)
    world.advance(120.0)
    check_quotas(world.queue)


def test_what_was_allowed_to_stay_may_not_grow() -> None:
    """The two GPUs over quota may be kept; a third would break the limit."""
    world = held()
    world.configure(quotas(4, 1))
    queue = world.queue
    extra = next(r for r in queue.jobs.placed.values() if r.spec.tenant == "c")
    extra.spec = job(gpus=1, tenant="a")
    extra.over_quota = True
    assert extra.plan is not None
    queue.tenancy.unbook("c", extra.plan, over_quota=False)
    queue.tenancy.book([("a", extra.plan, True)])
    with pytest.raises(Broken, match="borrows more H100"):
        check_quotas(queue)
