"""Plans that are committed together, where the region has changed since they were made."""

from __future__ import annotations

from msgspec.structs import replace

from tests.support.build import ask, cluster, fleet, job
from tests.support.world import World
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import Band


def test_plans_of_an_older_version_are_committed_one_by_one() -> None:
    """The first takes its GPUs; the second wanted the same, and is refused."""
    world, spec = World(fleet(cluster("east-1", hosts=1, gpus=1))), job(gpus=1)
    plan = world.placer("east").offer(ask(spec)).plan
    assert plan is not None
    plans = [replace(plan, job=name, region_version=-1) for name in ("j8", "j9")]
    commits = tuple(m.CommitPlan(each, 1, spec, Band.NORMAL) for each in plans)
    world.tell(ids.placer("east"), m.CommitPlans(commits))
    assert list(world.placer("east").state.allocations) == ["j8"]
    assert [order.job for order in world.orders(m.StartGang)] == ["j8"]


def test_gangs_are_launched_one_by_one_if_one_was_stopped_already() -> None:
    """The cluster refuses the attempt that was stopped before its launch arrived, and starts the other."""
    world, spec = World(fleet(cluster("east-1", hosts=1, gpus=2))), job(gpus=1)
    plan = world.placer("east").offer(ask(spec)).plan
    assert plan is not None
    gangs = tuple(
        m.LaunchGang(name, 1, spec, "east", "east-1", plan.seats) for name in ("j8", "j9")
    )
    world.machines.clusters["east-1"].state.fences["j8"] = 1
    world.tell(ids.cluster("east-1"), m.LaunchGangs(gangs))
    assert [order.job for order in world.orders(m.StartGang)] == ["j9"]
