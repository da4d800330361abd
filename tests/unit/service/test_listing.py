"""Pages of jobs from the queue's own indices, against a walk over all jobs."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from tests.support.build import cluster, fleet, job, tenant
from tests.support.world import World
from topmast.fast.queue import GlobalQueue, JobRecord
from topmast.fast.queue.backlog.ordered_index import Key
from topmast.fast.queue.backlog.ranking import Ranking
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import MILLI, Band, JobChanges
from topmast.model.states import HOLDING, WAITING, JobState
from topmast.policies.registry import load_profile
from topmast.service import listing
from topmast.service.listing import Groups, Selection

TENANTS = (tenant("a", H100=8), tenant("b", H100=4), tenant("poor", H100=0), tenant("c"))
PROFILES = ("mast", "fifo-skip", "tiresias-las", "gavel-max-min-fairness")
SELECTIONS: tuple[tuple[tuple[str, ...], str], ...] = (
    ((), ""), (("active",), ""), (("PENDING", "RECOVERING"), ""), (("SUCCEEDED", "FAILED"), ""),
    (("active",), "tenant=a"), (("active",), "tenant=[ab]"), ((), "name=x*"),
    (("PENDING",), "band=high"), (("active",), "user=u*,tenant=a"), ((), "band=low,user=u1"),
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


def paged(queue: GlobalQueue, wanted: Selection) -> list[str]:
    """The jobs of all pages."""
    order = wanted.queue_order
    page, found = listing.in_queue_order if order else listing.newest, list[str]()
    while True:
        records = page(queue, wanted)
        found += [record.id for record in records]
        if len(records) < wanted.limit:
            return found
        wanted = replace(wanted, cursor=len(found) if order else records[-1].number)


def in_pieces(queue: GlobalQueue, wanted: Selection) -> list[JobRecord]:
    """A page in queue order, with a pause after each job that is passed."""
    walk = listing.QueueWalk(queue, wanted)
    while walk.goes_on(lambda: True):
        pass
    return walk.found


def check(queue: GlobalQueue) -> None:
    """All pages of all selections are those of the walk, and so are the sums."""
    for states, selector in SELECTIONS:
        for order in (True, False):
            for seen in (None, frozenset({"b", "c"})):
                wanted = listing.select(states, "", 7, "", order, seen, selector)
                want = [record.id for record in walked(queue, wanted)]
                known = listing.Found()
                for one in queue.jobs.records:
                    listing.find(queue, wanted, known, [one])
                for each in (wanted, replace(wanted, found=known)):
                    assert paged(queue, each) == want, (states, selector, order)
                    assert listing.total(queue, each) == len(want)
                    if order:
                        whole = in_pieces(queue, replace(each, limit=1_000))
                        assert [record.id for record in whole] == want
                check_groups(queue, wanted)
    sums: dict[str, int] = {}
    for record in queue.jobs.records.values():
        sums[record.state.value] = sums.get(record.state.value, 0) + 1
    assert listing.counts(queue) == sums
    for seen in (None, frozenset({"b", "c"})):
        check_glance(queue, seen)


def check_glance(queue: GlobalQueue, seen: frozenset[str] | None) -> None:
    """The sums over all jobs are those of a walk."""
    jobs = [j for j in queue.jobs.records.values() if seen is None or j.spec.tenant in seen]
    waiting = [record for record in jobs if record.state in WAITING]
    first = min((j for j in waiting if j.plan is None), key=lambda j: j.number, default=None)
    found = listing.glance(queue, seen, queue.now)
    assert found.placed == sum(record.state in HOLDING for record in jobs)
    assert found.waiting == len(waiting)
    assert found.waiting_gpus == sum(record.spec.gpus_milli() for record in waiting) / MILLI
    assert found.longest == ("" if first is None else first.id)


def check_groups(queue: GlobalQueue, wanted: Selection) -> None:
    """The rows of groups are those of a walk over all jobs, however they are found."""
    for by in listing.GROUP_KEYS:
        walk, quick = Groups(wanted, by), Groups(wanted, by)
        walk.take(queue, queue.jobs.records)
        if quick.is_tallied(queue):
            quick.take_tallies(queue)
            assert quick.shown(queue.now) == walk.shown(queue.now), (by, wanted)


def disturb(world: World, rng: random.Random) -> None:
    """One thing that happens to jobs."""
    jobs = world.jobs
    running = [job for job, record in jobs.items() if record.state is JobState.RUNNING]
    alive = [job for job, record in jobs.items() if not record.finished]
    ended = [job for job, record in jobs.items() if record.finished]
    match rng.randrange(10):
        case 0 | 1 | 2:
            specs = [
                job(
                    rng.choice("xy"), rng.choice((1, 2, 4)), tenant=rng.choice(TENANTS).name,
                    band=rng.choice((Band.LOW, Band.NORMAL, Band.HIGH)), max_restarts=3,
                    user=rng.choice(("u1", "u2", "ann")),
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
        case 7 if ended:
            world.tell(ids.QUEUE, m.RequeueJobs((rng.choice(ended),), "ann"))
        case 8 if alive:
            changes = JobChanges(band=rng.choice((Band.LOW, Band.HIGH)))
            world.tell(ids.QUEUE, m.EditJobs((rng.choice(alive),), changes, "ann"))
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


def test_a_page_of_the_queue_is_in_pieces_between_which_jobs_come_and_go() -> None:
    """Each goes on where the one before ended: what stays is passed once, in its order."""
    world = World(fleet(cluster("east-1", hosts=1), tenants=TENANTS))
    world.submit(*[job("x", 8, tenant="a")] * 40)
    queue, wanted = world.queue, listing.select((), "", 30, "5", True)
    want = [record.id for record in listing.in_queue_order(queue, wanted)]
    assert want == [f"j{number}" for number in range(6, 36)]
    assert in_pieces(queue, wanted) == listing.in_queue_order(queue, wanted)
    walk, pieces, gone = listing.QueueWalk(queue, wanted), 0, ("j3", "j12", "j30")
    while walk.goes_on(lambda: True):
        pieces += 1
        if pieces == 15:
            world.cancel(*gone)
            world.submit(job("first", 8, tenant="a", band=Band.CRITICAL))
    assert pieces > 30
    assert [record.id for record in walk.found] == [
        f"j{number}" for number in range(6, 37) if number != 30
    ]


def test_what_runs_is_ranked_once_and_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not anew for each piece of a page, and a job that ends between two pieces is passed over."""
    world = World(fleet(cluster("east-1", hosts=5), tenants=TENANTS))
    world.submit(*[job("x", 1, tenant="a")] * 40)
    queue, ranked, rank = world.queue, list[str](), listing._rank_placed

    def counted(record: JobRecord) -> listing.Rank:
        ranked.append(record.id)
        return rank(record)

    monkeypatch.setattr(listing, "_rank_placed", counted)
    monkeypatch.setattr(listing, "RANKED_AT_ONCE", 10)
    walk = listing.QueueWalk(queue, listing.select(("RUNNING",), "", 30, "", True))
    portions = list[int]()
    for _ in range(5):
        assert walk.goes_on(lambda: True)
        portions.append(len(ranked))
    assert len(walk.found) == 1
    assert portions == [10, 20, 30, 40, 40]
    world.cancel("j2", "j40")
    while walk.goes_on(lambda: True):
        pass
    assert len(ranked) == 40
    assert [one.id for one in walk.found] == ["j1", *(f"j{number}" for number in range(3, 32))]


def test_a_job_that_starts_between_two_pieces_is_on_the_page() -> None:
    """It has left those that wait, and comes after the others that have a place."""
    world = World(fleet(cluster("east-1", hosts=5), tenants=TENANTS))
    world.submit(*[job("x", 1, tenant="a")] * 41)
    walk = listing.QueueWalk(world.queue, listing.select(("active",), "", 100, "", True))
    assert walk.goes_on(lambda: True)
    world.finish("j40", 0)
    while walk.goes_on(lambda: True):
        pass
    want = [f"j{number}" for number in (*range(1, 40), 41)]
    assert [one.id for one in walk.found] == want


def test_a_job_that_is_held_between_two_pieces_has_one_row() -> None:
    """It was passed among those that wait by rank, and is then among those that wait in none."""
    world = World(fleet(cluster("east-1", hosts=1), tenants=TENANTS))
    world.submit(*[job("x", 8, tenant="a")] * 20)
    walk = listing.QueueWalk(world.queue, listing.select(("active",), "", 100, "", True))
    while len(walk.found) < 5:
        assert walk.goes_on(lambda: True)
    world.tell(ids.QUEUE, m.HoldJobs(("j3", "j15"), "ops"))
    while walk.goes_on(lambda: True):
        pass
    others = [f"j{number}" for number in range(1, 21) if number != 15]
    assert [one.id for one in walk.found] == [*others, "j15"]


def test_the_first_page_of_the_queue_ranks_no_more_jobs_than_it_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many wait, within their quota or beyond."""
    world = World(fleet(cluster("east-1", hosts=1), tenants=TENANTS))
    world.submit(*[job("x", 8, tenant="a")] * 2_000)
    ranked, key_of = list[int](), Ranking._key

    def counted(ranking: Ranking, row: int, over_quota: bool) -> Key:
        ranked.append(row)
        return key_of(ranking, row, over_quota)

    monkeypatch.setattr(Ranking, "_key", counted)
    page = listing.select(("PENDING",), "", 10, "", True)
    assert len(listing.in_queue_order(world.queue, page)) == 10
    assert len(ranked) <= 20
    ranked.clear()
    (first, *others) = in_pieces(world.queue, replace(page, cursor=1_500, limit=1))
    assert (first.id, others) == ("j1502", [])


def test_groups_look_at_no_job_that_waits_but_the_first() -> None:
    """However many wait; and a tally forgets the numbers of jobs that no longer do."""
    world = World(fleet(cluster("east-1", hosts=1), tenants=TENANTS))
    world.submit(*[job("x", 8, tenant="a")] * 2_000)
    read: list[str] = []

    class Watched(Selection, frozen=True):
        def takes(self, record: JobRecord) -> bool:
            read.append(record.id)
            return super().takes(record)

    plain = listing.select(("active",), "", 10, "", True)
    wanted = Watched(**{name: getattr(plain, name) for name in plain.__struct_fields__})
    for by in listing.GROUP_KEYS:
        groups = Groups(wanted, by)
        assert groups.is_tallied(world.queue)
        groups.take_tallies(world.queue)
        (row,) = groups.shown(world.now)
        assert (row.jobs, row.waiting, row.longest) == (2_000, 1_999, "j2")
    assert len(read) == len(listing.GROUP_KEYS)
    for _ in range(100):
        world.tell(ids.QUEUE, m.EditJobs(("j2",), JobChanges(band=Band.HIGH), "ann"))
        world.tell(ids.QUEUE, m.EditJobs(("j2",), JobChanges(band=Band.NORMAL), "ann"))
    world.cancel(*[f"j{number}" for number in range(500, 2_001)])
    world.tell(ids.QUEUE, m.RequeueJobs(("j2000",), "ann"))
    for kind, tally in world.queue.jobs.tallies.kinds.items():
        assert len(tally.numbers) <= 2 * tally.jobs + 65 or kind[3] not in WAITING


def test_counts_follow_a_job_that_is_tried_anew() -> None:
    """It is no longer one that ended."""
    world = World(fleet(cluster("east-1", hosts=1)))
    world.submit(job("x", 8))
    world.cancel("j1")
    world.settle()
    assert listing.counts(world.queue) == {"CANCELLED": 1}
    world.tell(ids.QUEUE, m.RequeueJobs(("j1",), "ann"))
    assert sum(listing.counts(world.queue).values()) == 1
    assert "CANCELLED" not in listing.counts(world.queue)
