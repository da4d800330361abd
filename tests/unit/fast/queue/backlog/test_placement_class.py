"""The verdict of one job goes for its placement class, but not for jobs that may do more."""

from tests.support.build import cluster, dataset, fleet, job, profile
from tests.support.world import World
from topmast.fast.fleet_placer import FleetPlacer
from topmast.fast.queue.cycle.backfill import REFRESH_S
from topmast.model import messages as m
from topmast.model.fleet import TenantSpec
from topmast.model.job import Band

TENANTS = tuple(TenantSpec(name) for name in ("a", "b", "c"))
GPUS = 8


class Asked(World):
    """Notes the jobs of which the fleet placer was asked."""

    def __init__(self, **options: object) -> None:
        super().__init__(fleet(cluster("east-1", 2), tenants=TENANTS), profile(**options))
        self.asked: list[str] = []
        handlers = {**FleetPlacer.handlers}

        def note(fleet_placer: FleetPlacer, event: m.RequestFleetBids) -> None:
            self.asked.append(event.ask.job)
            FleetPlacer.handlers[m.RequestFleetBids](fleet_placer, event)

        handlers[m.RequestFleetBids] = note
        self.machines.fleet_placer.handlers = handlers  # type: ignore[misc]

    def news(self) -> list[str]:
        """Those since this was called last."""
        asked, self.asked = self.asked, []
        return asked


def _full(**options: object) -> tuple[Asked, list[str]]:
    world = Asked(**options)
    running = world.submit(*(job(gpus=GPUS, tenant="a") for _ in range(2)))
    world.news()
    return world, list(running)


def test_one_question_for_the_jobs_of_many_tenants() -> None:
    """The first is refused, and so are the others, each with the same reason."""
    world, _ = _full()
    waiting = world.submit(*(job(gpus=GPUS, tenant=t.name) for t in TENANTS))
    assert set(world.news()) == {waiting[0]}
    assert {world.reason(each) for each in waiting} == {"InsufficientCapacity"}


def test_a_job_that_arrives_later_gets_the_verdict_at_once() -> None:
    """Also where its tenant had no such job before."""
    world, _ = _full()
    world.submit(job(gpus=GPUS, tenant="a"))
    world.news()
    (late,) = world.submit(job(gpus=GPUS, tenant="b"))
    assert world.news() == []
    assert world.reason(late) == "InsufficientCapacity"


def test_room_for_one_goes_to_the_first_and_asks_about_no_more_than_the_next() -> None:
    """In the order of the queue."""
    world, running = _full()
    first, second, third = world.submit(*(job(gpus=GPUS, tenant=t.name) for t in TENANTS))
    world.news()
    world.finish(running[0])
    assert world.states()[first] == "RUNNING"
    assert set(world.news()) == {first, second}
    world.finish(first)
    world.finish(running[1])
    assert world.states()[second] == world.states()[third] == "RUNNING"


def test_another_band_is_another_class_within_quota() -> None:
    """It may stop others."""
    world, _ = _full(min_runtime_s=0.0)
    low, high = world.submit(
        job(gpus=GPUS, tenant="a"), job(gpus=GPUS, tenant="b", band=Band.CRITICAL)
    )
    assert world.reason(low) == "InsufficientCapacity"
    assert world.jobs[high].plan is not None


def test_smaller_jobs_are_of_another_class() -> None:
    """They may fit."""
    world, running = _full()
    world.finish(running[0])
    world.submit(job(gpus=4, tenant="a"))
    big, small = world.submit(job(gpus=GPUS, tenant="b"), job(gpus=2, tenant="c"))
    assert world.reason(big) == "InsufficientCapacity"
    assert world.states()[small] == "RUNNING"


def test_the_next_reservation_goes_to_the_first_in_order() -> None:
    """Its class was refused beside reserved seats; once these are free, its jobs are tried in turn."""
    world, running = _full(reserve_after_s=0.0)
    first, second, third = world.submit(*(job(gpus=GPUS, tenant=t.name) for t in TENANTS))
    assert world.queue.cycle.backfill.holder == first
    world.finish(running[0])
    assert world.states()[first] == "RUNNING"
    world.advance(REFRESH_S)
    assert world.queue.cycle.backfill.holder == second
    world.cancel(second)
    world.advance(REFRESH_S)
    assert world.queue.cycle.backfill.holder == third
    world.finish(running[1])
    assert world.states()[third] == "RUNNING"


def test_where_its_data_is_not_counts_too_when_room_comes_up() -> None:
    """With victims only the region with the data was asked; room in the other one is good for a copy all the same."""
    full = fleet(
        cluster("east-1", hosts=1), cluster("west-1", hosts=1), datasets=(dataset("there", "west"),)
    )
    world = World(full, profile())
    world.submit(*(job("filler", gpus=4, preemptible=False) for _ in range(4)))
    world.submit(job("reader", gpus=8, datasets=("there",)))
    for name in [name for name in ("j1", "j2", "j3", "j4") if world.jobs[name].region == "east"]:
        assert world.reason("j5") == "InsufficientCapacity"
        world.finish(name)
    assert world.reason("j5") == "WaitingForData"
    assert [copy.target for copy in world.queue.data.catalogue.copies.values()] == ["east"]
