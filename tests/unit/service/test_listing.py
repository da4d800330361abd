"""Pages of jobs from the queue's own indices, against a walk over all jobs."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from tests.support.build import cluster, fleet, job, tenant
from tests.support.world import World
from topmast.fast.queue import GlobalQueue, JobRecord
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import Band
from topmast.model.states import WAITING, JobState
from topmast.policies.registry import load_profile
from topmast.service import listing
from topmast.service.listing import Selection

TENANTS = (tenant("a", H100=8), tenant("b", H100=4), tenant("poor", H100=0), tenant("c"))
PROFILES = ("mast", "fifo-skip", "tiresias-las", "gavel-max-min-fairness")
SELECTIONS: tuple[tuple[tuple[str, ...], str], ...] = (
    ((), ""), (("active",), ""), (("PENDING", "RECOVERING"), ""), (("SUCCEEDED", "FAILED"), ""),
    (("active",), "tenant=a"), (("active",), "tenant=[ab]"), ((), "name=x*"),
    (("PENDING",), "band=high"),
)  # fmt: skip


def walked(queue: GlobalQueue, wanted: Selection) -> list[JobRecord]:
    """The order of the queue as its definition says it."""

    def key(record: JobRecord) -> tuple[float, ...]:
        if record.finished:
            return (3.0, -(record.finish_s or 0.0), -float(record.number))
        if record.state in WAITING and record.plan is None:
            over_quota = not queue.tenancy.choices(record.spec, over_quota=False)
            rank = queue.backlog.ranking.key(record.id, over_quota)
            return (2.0, float(record.number)) if rank is None else (1.0, *rank)
        return (0.0, -float(record.band), record.submit_s, float(record.number))

    chosen = [record for record in queue.jobs.records.values() if wanted.takes(record)]
    if not wanted.queue_order:
        return sorted(chosen, key=lambda record: -record.number)
    return sorted(chosen, key=key)


def check(queue: GlobalQueue) -> None:
    """All pages of all selections are those of the walk, and so are the sums."""
    for states, selector in SELECTIONS:
        for order in (True, False):
            for seen in (None, frozenset({"b", "c"})):
                wanted = listing.select(states, "", 7, "", order, seen, selector)
                want = [record.id for record in walked(queue, wanted)]
                page = listing.in_queue_order if order else listing.newest
                found: list[str] = []
                while True:
                    records = page(queue, wanted)
                    found += [record.id for record in records]
                    if len(records) < wanted.limit:
                        break
                    wanted = replace(wanted, cursor=len(found) if order else records[-1].number)
                assert found == want, (states, selector, order)
                assert listing.total(queue, wanted) == len(want)
    sums: dict[str, int] = {}
    for record in queue.jobs.records.values():
        sums[record.state.value] = sums.get(record.state.value, 0) + 1
    assert listing.counts(queue) == sums


def disturb(world: World, rng: random.Random) -> None:
    """One thing that happens to jobs."""
    jobs = world.jobs
    running = [job for job, record in jobs.items() if record.state is JobState.RUNNING]
    alive = [job for job, record in jobs.items() if not record.finished]
    match rng.randrange(8):
        case 0 | 1 | 2:
            specs = [
                job(
                    rng.choice("xy"), rng.choice((1, 2, 4)), tenant=rng.choice(TENANTS).name,
                    band=rng.choice((Band.LOW, Band.NORMAL, Band.HIGH)), max_restarts=3,
                )
                for _ in range(rng.randrange(1, 8))
            ]  # fmt: skip
            world.submit(*specs)
        case 3 if running:
            world.finish(rng.choice(running), rng.choice((0, 0, 1)))
        case 4 if alive:
            world.tell(ids.QUEUE, m.HoldJobs((rng.choice(alive),), "ann"))
        case 5 if alive:
            world.tell(ids.QUEUE, m.ReleaseJobs(tuple(rng.sample(alive, len(alive) // 2)), "ann"))
        case 6 if alive:
            world.cancel(rng.choice(alive))
        case _:
            world.advance(rng.choice((1.0, 60.0, 4_000.0)))
    world.settle()


@pytest.mark.parametrize("name", PROFILES)
def test_pages_are_those_of_a_walk_over_all_jobs(name: str) -> None:
    """Whatever happens to the jobs, and after a restart."""
    rng = random.Random(name)
    world = World(
        fleet(cluster("east-1", hosts=1), cluster("west-1"), tenants=TENANTS), load_profile(name)
    )
    for turn in range(80):
        disturb(world, rng)
        if turn % 8 == 7:
            check(world.queue)
    known = {record.state for record in world.jobs.values()}
    assert known >= {JobState.PENDING, JobState.RUNNING, JobState.SUCCEEDED}
    world.snapshot()
    world.restart()
    check(world.queue)


def test_a_page_reads_no_more_jobs_than_it_shows() -> None:
    """However many wait: neither for the page nor for its counts."""
    world = World(fleet(cluster("east-1", hosts=1), tenants=TENANTS))
    world.submit(*[job("x", 8, tenant="a")] * 2_000)
    read: list[str] = []

    class Watched(Selection, frozen=True):
        def takes(self, record: JobRecord) -> bool:
            read.append(record.id)
            return super().takes(record)

    plain = listing.select(("active",), "", 10, "", True)
    wanted = Watched(**{name: getattr(plain, name) for name in plain.__struct_fields__})
    assert len(listing.in_queue_order(world.queue, wanted)) == 10
    assert listing.total(world.queue, wanted) == 2_000
    assert len(listing.newest(world.queue, replace(wanted, queue_order=False))) == 10
    assert len(read) <= 20
