"""Plans that are committed together, where the region has changed since they were made."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.support.build import ask, cluster, fleet, job
from tests.support.world import World
from topmast.fast.region.facts import AllTaken
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.columns import PlanColumns, SeatColumns
from topmast.model.job import Band
from topmast.model.plan import Plan, Seat
from topmast.model.states import HostState


def commits_of(*plans: Plan) -> m.CommitPlans:
    """One message for these plans."""
    spec, nothing = job(gpus=1), (None,) * len(plans)
    band = (Band.NORMAL,) * len(plans)
    return m.CommitPlans(
        PlanColumns.of(plans), (1,) * len(plans), (spec,) * len(plans), band, nothing, nothing
    )


def test_plans_of_an_older_version_are_committed_one_by_one() -> None:
    """The first takes its GPUs; the second wanted the same, and is refused."""
    world = World(fleet(cluster("east-1", hosts=1, gpus=1)))
    plan = world.placer("east").offer(ask(job(gpus=1))).plan
    assert plan is not None
    plans = [replace(plan, job=name, region_version=-1) for name in ("j8", "j9")]
    world.tell(ids.placer("east"), commits_of(*plans))
    assert list(world.placer("east").state.allocations) == ["j8"]
    assert [order.job for order in world.orders(m.StartGang)] == ["j8"]


def two_hosts() -> tuple[World, list[Plan]]:
    """A region, and plans for two jobs on its second host, each made as if the one before it ran."""
    world = World(fleet(cluster("east-1", hosts=2, gpus=2)))
    plan = world.placer("east").offer(ask(job(gpus=1))).plan
    assert plan is not None
    (seat,), version = plan.seats, plan.region_version
    plans = [
        replace(
            plan, job=name, seats=(replace(seat, host="east-1-1", slots=(slot,)),),
            region_version=version + slot,
        )
        for slot, name in enumerate(("j8", "j9"))
    ]  # fmt: skip
    return world, plans


def test_plans_that_fit_are_taken_at_once_although_the_region_has_changed() -> None:
    """Another job has come meanwhile, on the other host."""
    world, plans = two_hosts()
    world.submit(job(gpus=1))
    assert world.jobs["j1"].hosts == ("east-1-0",)
    assert world.placer("east").state.version != plans[0].region_version
    world.tell(ids.placer("east"), commits_of(*plans))
    assert len(world.facts(AllTaken)) == 1
    assert list(world.placer("east").state.allocations) == ["j1", "j8", "j9"]


def test_after_a_refusal_the_next_plan_is_looked_at_too() -> None:
    """The host takes no more work: the version of the books is one for which the second was made."""
    world, plans = two_hosts()
    world.set_host("east-1-1", HostState.CORDONED)
    assert world.placer("east").state.version == plans[1].region_version
    world.tell(ids.placer("east"), commits_of(*plans))
    assert not world.placer("east").state.allocations
    assert not world.orders(m.StartGang)


@pytest.mark.parametrize(
    ("host", "slots", "there"),
    [
        ("east-1-1", (0, 1), True),
        ("east-1-1", (1, 1), False),
        ("east-1-1", (1, 2), False),
        ("east-1-0", (0, 1), False),
        ("east-1-2", (0, 1), False),
        ("nowhere", (0, 1), False),
    ],
    ids=["free", "twice the same", "beyond the last", "taken", "of no service", "unknown"],
)
def test_there_is_room_for_seats_that_are_free(
    host: str, slots: tuple[int, ...], there: bool
) -> None:
    """Each once, on hosts that take work."""
    world = World(fleet(cluster("east-1", hosts=3, gpus=2)))
    world.submit(job(gpus=1))
    world.set_host("east-1-2", HostState.CORDONED)
    seats = SeatColumns.of(["j8"], [(Seat("main", 0, host, slots),)])
    assert world.placer("east").columns.have_room(seats) is there


@pytest.mark.parametrize("watched", [True, False])
def test_slots_are_taken_as_one_by_one(watched: bool) -> None:
    """The columns, the counts of hosts, and where the next gang sits are the same."""
    seen = []
    for together in (True, False):
        world = World(fleet(cluster("east-1", hosts=3, gpus=4)))
        placer = world.placer("east")
        placer.columns.watched = watched
        first = placer.offer(ask(job(gpus=2))).plan
        assert first is not None
        (seat,), version = first.seats, first.region_version
        beside = replace(first, job="j8", seats=(replace(seat, slots=(2, 3)),))
        places = (("east-1-1", (0, 1)), ("east-1-1", (2, 3)), ("east-1-2", (0, 1)))
        gang = replace(first, job="j9", gpus_milli=6000, seats=tuple(
            Seat(seat.group, rank, host, slots) for rank, (host, slots) in enumerate(places)
        ))  # fmt: skip
        plans = [
            replace(plan, region_version=version + n)
            for n, plan in enumerate((first, beside, gang))
        ]
        message = commits_of(*plans)
        for one in [message] if together else message.one_by_one():
            world.tell(ids.placer("east"), one)
        assert bool(world.facts(AllTaken)) is together
        index = placer.pool.index()
        seen.append((
            placer.columns.free_milli.tolist(), index.arrays.whole.tolist(),
            index.arrays.hist.tolist(), index.holders.held.cleared.tolist(),
            placer.offer(ask(job(gpus=1))),
        ))  # fmt: skip
    assert seen[0] == seen[1]


def test_gangs_are_launched_one_by_one_if_one_was_stopped_already() -> None:
    """The cluster refuses the attempt that was stopped before its launch arrived, and starts the other."""
    world, spec = World(fleet(cluster("east-1", hosts=1, gpus=2))), job(gpus=1)
    plan = world.placer("east").offer(ask(spec)).plan
    assert plan is not None
    seats = PlanColumns.of([replace(plan, job=name) for name in ("j8", "j9")]).seats
    gangs = m.LaunchGangs("east", "east-1", seats, (1, 1), (spec, spec), (None, None))
    world.machines.clusters["east-1"].state.fences["j8"] = 1
    world.tell(ids.cluster("east-1"), gangs)
    assert [order.job for order in world.orders(m.StartGang)] == ["j9"]
