"""Sizes of elastic gangs on random small fleets: as many tasks as fit, and room made by as few as will do."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from tests.support import invariants
from tests.support.build import cluster, elastic, fleet, job, profile
from tests.support.strategies import bounded
from tests.support.world import World
from topmast.model.fleet import Fleet
from topmast.model.job import Band, JobSpec
from topmast.policies.options import ElasticOptions

SHRINK = ElasticOptions(shrink=True, every_s=1_000.0, settle_s=10.0)

fleets = st.builds(
    lambda east, west, gpus: fleet(
        cluster("east-1", hosts=east, gpus=gpus), cluster("west-1", hosts=west, gpus=4)
    ),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 5),
)
fillers = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2)), max_size=4)


def _filled(where: Fleet, taken: list[tuple[int, int]], **options: Any) -> World:
    world = World(where, profile(**options))
    for gpus, count in taken:
        world.submit(job("filler", gpus=gpus, count=count, preemptible=False))
    return world


@bounded(60)
@given(fleets, fillers, st.integers(1, 2), st.integers(1, 4), st.integers(0, 12))
def test_it_starts_with_as_many_tasks_as_a_rigid_job_could_have(
    where: Fleet, taken: list[tuple[int, int]], gpus: int, fewest: int, more: int
) -> None:
    """No size between the fewest and those asked for would have fitted that is larger than what it got."""
    asked = job("elastic", gpus=gpus, count=fewest + more)
    world = _filled(where, taken)
    (name,) = world.submit(elastic(asked, fewest, fewest + more))
    plan = world.jobs[name].plan
    fits = [
        tasks
        for tasks in range(fewest, fewest + more + 1)
        if _starts(_filled(where, taken), job("rigid", gpus=gpus, count=tasks))
    ]
    event("all" if fits and fits[-1] == fewest + more else "some" if fits else "none")
    assert (0 if plan is None else len(plan.seats)) == max(fits, default=0)
    invariants.check_rest(world)


def _starts(world: World, spec: JobSpec) -> bool:
    (name,) = world.submit(spec)
    return world.jobs[name].plan is not None


sizes = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 6), st.sampled_from([Band.NORMAL, Band.HIGH])),
    min_size=1, max_size=3,
)  # fmt: skip


@bounded(80)
@given(st.integers(1, 3), st.integers(2, 5), sizes, st.integers(1, 8))
def test_room_is_made_whenever_tasks_that_may_go_leave_enough(
    hosts: int, gpus: int, running: list[tuple[int, int, Band]], needed: int
) -> None:
    """With tasks of one GPU everything fits that can be counted; of one attempt alone no task goes in vain."""
    world = World(fleet(cluster("east-1", hosts=hosts, gpus=gpus)), profile(elastic=SHRINK))
    for fewest, more, band in running:
        world.submit(elastic(job(count=fewest + more, band=band), fewest, fewest + more))
    world.advance(SHRINK.settle_s + 1)
    before = {name: _size(world, name) for name in world.jobs}
    spare = {
        name: size - running[n][0] if running[n][2] <= Band.NORMAL else 0
        for n, (name, size) in enumerate(before.items())
        if size
    }
    free = hosts * gpus - sum(before.values())
    waiting = any(not size for size in before.values())
    (comer,) = world.submit(job("comer", count=needed))
    placed = _size(world, comer) > 0
    assert placed == (needed <= free + sum(spare.values()))
    given_up = {name: before[name] - _size(world, name) for name in before if before[name]}
    assert all(0 <= gone <= spare[name] for name, gone in given_up.items())
    if placed and needed > free and any(free + each >= needed for each in spare.values()):
        event("one alone")
        assert sum(given_up.values()) == needed - free
        assert sum(gone > 0 for gone in given_up.values()) == 1
    event(f"placed {placed}, somebody waits {waiting}")
    invariants.check_rest(world)
    invariants.check_rebuilds(world)


def _size(world: World, name: str) -> int:
    plan = world.jobs[name].plan
    return 0 if plan is None else len(plan.seats)
