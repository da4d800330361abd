"""Regions apart, asked for many places at once, over links that are late and lose messages."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.build import cluster, fleet, job, needs, profile, tenant
from tests.support.invariants import check_all, check_no_inversion, check_rest
from tests.support.world import World
from topmast.fast.queue import facts as f
from topmast.fast.queue.cycle import bulk
from topmast.fast.queue.cycle.bulk_requests import may_have_room
from topmast.fast.queue.cycle.foreseen import Kind
from topmast.fast.region.invariants import check_hosts
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import Fleet
from topmast.model.job import Band, Checkpoint, JobSpec
from topmast.model.states import HOLDING, HostState
from topmast.policies.options import Preemption, Profile, WhenBlocked
from topmast.ports import Decision
from topmast.runtime.codec import decode_event, decode_facts
from topmast.runtime.relay import MAY_BE_LOST

STEPS = 40
SEEDS = range(40)
JOB_BY_JOB, AHEAD = 1, 16
LEAST_IN_BULK = 2
"""So few jobs are asked about in bulk here, that bulk questions come between others."""


@pytest.fixture(params=["one by one", "in bulk"])
def in_bulk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether regions make plans in columns; if so, also for a few jobs."""
    monkeypatch.setattr(bulk, "LEAST", LEAST_IN_BULK)
    monkeypatch.setattr(bulk, "LEAST_APART", LEAST_IN_BULK)
    return bool(request.param == "in bulk")


class Twin(World):
    """A world whose regions are asked by message, as those of other processes are, without the way between.

    ``most_jobs`` None: they are asked through the desk, as those of one process are.
    """

    def __init__(
        self, regions: Fleet, options: Profile, most_jobs: int | None, *, in_bulk: bool = False
    ) -> None:
        super().__init__(regions, replace(options, ask_ahead=most_jobs or 1))
        self.told: dict[str, int] = {}
        if most_jobs is not None:
            self.machines.fleet_placer.placers = {}  # it knows no region of another process
            for region in regions.regions:
                self.tell(ids.QUEUE, m.LinkUp(region.name, in_bulk))

    def decisions(self) -> list[tuple[Any, ...]]:
        """Every plan that won, in order. A plan of a batch may have been made at an older version."""
        return [
            (record.at_s, fact.job, fact.epoch, replace(fact.plan, region_version=0), fact.over_quota)
            for record in self.journal.written
            if record.machine == ids.QUEUE
            for fact in f.plans_won(
                decode_event(record.event), decode_facts(record.machine, record.facts)
            )
        ]  # fmt: skip

    def refusals(self) -> int:
        """How often a region did not carry out what it had offered."""
        return sum(record.refusals for record in self.jobs.values())


def random_fleet(rng: random.Random) -> Fleet:
    """A few small regions of one or two models, and tenants with much, little and no quota."""
    names = ("east", "north", "west")[: rng.randint(1, 3)]
    clusters = [
        cluster(f"{name}-{number}", hosts=rng.randint(1, 3), gpus=4, model=rng.choice(("H100", "A100")))
        for name in names
        for number in range(1, rng.randint(2, 3))
    ]  # fmt: skip
    return fleet(
        *clusters,
        tenants=(tenant("a", H100=12, A100=12), tenant("b", borrow=8, H100=3), tenant("c")),
    )  # fmt: skip


def random_options(rng: random.Random) -> Profile:
    """Who may stop whom, who waits behind whom, and whether room is kept or made."""
    return profile(
        min_runtime_s=rng.choice((0.0, 20.0)),
        preemption=rng.choice(list(Preemption)),
        when_blocked=rng.choice((WhenBlocked.SKIP, WhenBlocked.SKIP, WhenBlocked.STOP)),
        order=rng.choice(("credit", "credit", "submission", "shortest")),
        reserve_after_s=rng.choice((None, 15.0)),
        defragment=rng.random() < 0.3,
        defragment_after_s=10.0,
        backoff_s=1.0,
    )


def random_jobs(rng: random.Random) -> tuple[JobSpec, ...]:
    """A sweep of the same job, or jobs of any kind."""

    def one() -> JobSpec:
        return job(
            gpus=rng.choice((0.5, 1, 1, 2, 4)), count=rng.choice((1, 1, 2)), tenant=rng.choice("aabc"),
            model=rng.choice(("H100", "A100", None)), band=rng.choice(list(Band)),
            preemptible=rng.random() < 0.8, checkpoint=Checkpoint(grace_s=2.0),
        )  # fmt: skip

    if rng.random() < 0.4:
        return (one(),) * rng.randint(2, 8)
    return tuple(one() for _ in range(rng.randint(1, 6)))


def live_through(world: World, rng: random.Random) -> None:
    """Jobs come, run, end, fail and are cancelled; hosts are lost, cordoned and drained."""
    hosts = [h.name for r in world.fleet.regions for c in r.clusters for h in c.hosts]
    for _ in range(STEPS):
        deed, lot = rng.random(), rng.random()
        running = [name for name, record in world.jobs.items() if record.state in HOLDING]
        if deed < 0.45:
            world.submit(*random_jobs(rng))
        elif deed < 0.75:
            if running:
                world.start(one := running[int(lot * len(running))])
                world.finish(one, 0 if lot < 0.8 else 1)
        elif deed < 0.8:
            world.cancel(list(world.jobs)[int(lot * len(world.jobs))]) if world.jobs else None
        elif deed < 0.85:
            state = HostState.DRAINING if lot < 0.5 else HostState.CORDONED
            world.set_host(hosts[int(lot * len(hosts))], state)
        elif deed < 0.9:
            world.set_host(hosts[int(lot * len(hosts))], HostState.HEALTHY)
        else:
            world.advance(rng.choice((1.0, 12.0, 40.0)))


def lived(seed: int, most_jobs: int | None, *, in_bulk: bool) -> Twin:
    """One life in one such world."""
    rng = random.Random(seed)
    world = Twin(random_fleet(rng), random_options(rng), most_jobs, in_bulk=in_bulk)
    live_through(world, rng)
    return world


@pytest.mark.parametrize("most_jobs", [JOB_BY_JOB, AHEAD])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_job_waits_that_could_start(seed: int, most_jobs: int, in_bulk: bool) -> None:
    """Nothing is booked twice, no limit is passed, and nothing is kept that no job needs."""
    world = lived(seed, most_jobs, in_bulk=in_bulk)
    world.advance(60.0)
    check_all(world)
    check_no_inversion(world)
    for placer in world.machines.placers.values():
        assert not placer.holds, "something is held that no job needs"


def test_jobs_that_are_alike_cost_a_few_messages() -> None:
    """Forty in two regions: each is asked for many places at once."""
    asked = {}
    for most in (JOB_BY_JOB, AHEAD):
        world = Twin(fleet(cluster("east-1", hosts=5), cluster("west-1", hosts=5)), profile(), most)
        world.submit(*[job(gpus=1)] * 40)
        assert {record.region for record in world.jobs.values()} == {"east", "west"}
        asked[most] = world.queue.cycle.prefetch.questions
    assert asked[JOB_BY_JOB] == 80
    assert asked[AHEAD] <= 20


def test_a_full_fleet_costs_a_few_messages() -> None:
    """Many that find no room, each of another kind."""
    asked = {}
    for most in (JOB_BY_JOB, AHEAD):
        world = Twin(fleet(cluster("east-1"), cluster("west-1")), profile(), most)
        world.submit(*[job(gpus=8)] * 4)
        before = world.queue.cycle.prefetch.questions
        world.submit(*[job(gpus=1 + i % 8, count=1 + i // 8, model="H100") for i in range(32)])
        asked[most] = world.queue.cycle.prefetch.questions - before
    assert asked[JOB_BY_JOB] == 2 * 2 * 32
    assert asked[AHEAD] <= 24


# --- links that are late, and lose messages -------------------------------------------------------


LATE = "late/"


class Late(Twin):
    """Messages between the queue and its regions are under way for a while, in order.

    Questions and answers may be lost, as over a link. All others arrive.
    """

    def __init__(
        self, regions: Fleet, options: Profile, rng: random.Random, *, in_bulk: bool = False
    ) -> None:
        self.rng, self.delay_s, self.loss = rng, 0.0, 0.0
        self.under_way: list[tuple[float, int, m.Send]] = []
        self.last_s: dict[str, float] = {}
        self.count = 0
        super().__init__(regions, options, AHEAD, in_bulk=in_bulk)
        for address, machine in list(self.machines.addressed()):
            if address == ids.QUEUE or address.startswith("placer/"):
                self._make_late(address, machine)
        self.delay_s, self.loss = rng.choice((0.02, 0.5)), rng.choice((0.0, 0.0, 0.05))

    def _make_late(self, address: str, machine: Any) -> None:
        """Have all that a machine says to those of other processes go over a link."""
        handle, elsewhere = machine.handle, "placer/" if address == ids.QUEUE else ids.QUEUE

        def handled(event: m.Message, now: float) -> Decision:
            outcome = handle(event, now)
            sends = [
                m.Send(f"{LATE}{address}/{send.to}", send.message)
                if send.to.startswith(elsewhere)
                else send
                for send in outcome.sends
            ]
            return Decision(outcome.facts, sends, outcome.reply)

        machine.handle = handled

    def release(self, sends: Sequence[m.Send]) -> None:
        """What goes over a link takes its time, or is lost."""
        for send in sends:
            if not send.to.startswith(LATE):
                super().release([send])
            elif not (isinstance(send.message, MAY_BE_LOST) and self.rng.random() < self.loss):
                self.count += 1
                at_s = self.now + self.delay_s * self.rng.uniform(0.5, 1.5)
                at_s = self.last_s[send.to] = max(at_s, self.last_s.get(send.to, 0.0))
                to = ids.QUEUE if send.to.endswith(ids.QUEUE) else send.to.split("queue/")[1]
                heapq.heappush(self.under_way, (at_s, self.count, m.Send(to, send.message)))

    def next_wakeup_s(self) -> float | None:
        """The next message on its way arrives, or a machine wants to be woken."""
        at_s = super().next_wakeup_s()
        if not self.under_way:
            return at_s
        arrives_s = self.under_way[0][0]
        return arrives_s if at_s is None else min(at_s, arrives_s)

    def settle(self) -> None:
        """Deliver what has arrived."""
        while self.under_way and self.under_way[0][0] <= self.now:
            send = heapq.heappop(self.under_way)[2]
            self.deliver(send.to, send.message)
            for placer in self.machines.placers.values():
                with placer.holds.aside(placer.columns):
                    check_hosts(placer)
        super().settle()


@pytest.mark.parametrize("seed", range(20))
def test_bursts_over_late_links_are_placed_once(seed: int, in_bulk: bool) -> None:
    """Over two to four regions: nothing is booked twice, and a job of a higher rank gets its place.

    At rest no job waits that could start, by stopping others of a lower band too.
    """
    rng = random.Random(seed)
    names = ("east", "north", "south", "west")[: rng.randint(2, 4)]
    regions = fleet(*[cluster(f"{name}-1", hosts=rng.randint(2, 4)) for name in names])
    world = Late(regions, profile(preemption=Preemption.BAND), rng, in_bulk=in_bulk)
    for _ in range(rng.randint(1, 3)):
        burst = [
            job(gpus=rng.choice((1, 1, 1, 4, 8)), count=rng.choice((1, 1, 1, 2, 3)),
                band=rng.choice((Band.CRITICAL, Band.HIGH, Band.NORMAL, Band.LOW)))
            for _ in range(rng.randint(5, 40))
        ]  # fmt: skip
        world.submit(*burst)
        world.advance(rng.choice((0.1, 1.0, 5.0)))
    world.advance(240.0)
    world.loss = 0.0  # while messages are lost, regions that are heard of again are asked anew
    world.advance(60.0)
    assert not world.under_way
    check_rest(world)
    for placer in world.machines.placers.values():
        assert not placer.holds, "something is held that no job needs"


@pytest.mark.parametrize("seed", range(10))
def test_a_burst_that_fits_is_placed_whole_and_as_well(seed: int, in_bulk: bool) -> None:
    """Every job; and unless messages are lost, once, with scores not much worse on average.

    After a lost message a region is not asked for a while: the others take its jobs.
    """
    scores = {}
    for where in ("one", "apart"):
        rng = random.Random(seed)
        regions = fleet(*[cluster(f"{name}-1", hosts=20) for name in ("east", "north", "west")])
        burst = [
            job(gpus=rng.choice((1, 1, 1, 8)), count=rng.choice((1, 1, 1, 1, 2)), band=rng.choice(list(Band)))
            for _ in range(80)
        ]  # fmt: skip
        world = (
            Twin(regions, profile(), None)
            if where == "one"
            else Late(regions, profile(), rng, in_bulk=in_bulk)
        )
        world.submit(*burst)
        world.advance(120.0)
        made = world.decisions()
        assert len({job for _, job, *_ in made}) == len(burst)
        if isinstance(world, Late) and world.loss:
            return
        assert len(made) == len(burst), "a job was placed twice"
        scores[where] = sum(plan.score for _, _, _, plan, _ in made) / len(made)
    assert scores["apart"] <= scores["one"] * 1.05


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_burst_of_four_bands_waits_for_few_answers(seed: int, columns: bool) -> None:
    """Of 100 jobs over four regions few wait for a round trip of 40 ms.

    What is left over of the kinds of one band does not take the room of the next, and a region that
    wins a row of jobs has places for them.
    """
    rng = random.Random(seed)
    names = ("east", "north", "south", "west")
    regions = fleet(*[cluster(f"{name}-1", hosts=60) for name in names])
    world = Late(regions, profile(preemption=Preemption.BAND), rng, in_bulk=columns)
    world.delay_s, world.loss = 0.02, 0.0
    burst = [
        job(gpus=gpus, count=1 if gpus == 1 else rng.randint(1, 12), band=rng.choice(list(Band)))
        for gpus in (1, 1, 1, 8) * 25
    ]
    submitted_s = world.now
    world.submit(*burst)
    world.advance(60.0)
    made = world.decisions()
    assert len(made) == len(burst)
    assert made[-1][0] - submitted_s < 22 * 0.04


# --- in bulk --------------------------------------------------------------------------------------


def large_burst(rng: random.Random, jobs: int) -> list[JobSpec]:
    """Jobs of four bands: many with one GPU, some with a host or with several."""
    bands = (Band.CRITICAL, Band.HIGH, Band.NORMAL, Band.LOW)
    return [
        job(gpus=gpus, count=1 if gpus == 1 else rng.randint(1, 6), band=rng.choice(bands))
        for gpus in rng.choices((1, 8), (4, 1), k=jobs)
    ]


def large_world(rng: random.Random, *, in_bulk: bool, one: bool = False) -> Twin:
    """Four regions that have room for some three hundred such jobs."""
    names = ("east", "north", "south", "west")
    regions = fleet(*[cluster(f"{name}-1", hosts=120) for name in names])
    if one:
        return Twin(regions, profile(), None)
    world = Late(regions, profile(), rng, in_bulk=in_bulk)
    world.delay_s, world.loss = 0.02, 0.0
    return world


def plans_of(world: Twin) -> list[Any]:
    """The plans that won."""
    return [plan for _, _, _, plan, _ in world.decisions()]


@pytest.mark.parametrize("seed", range(4))
def test_a_large_burst_in_bulk_is_placed_as_well_as_in_one_process(seed: int) -> None:
    """All of it, each job once, in a few round trips; the mean score is not 1% worse."""
    means = []
    for one in (True, False):
        rng = random.Random(seed)
        burst = large_burst(rng, 300)
        world = large_world(rng, in_bulk=True, one=one)
        submitted_s = world.now
        world.submit(*burst)
        world.advance(30.0)
        plans = plans_of(world)
        assert len(plans) == len({plan.job for plan in plans}) == len(burst)
        assert world.decisions()[-1][0] - submitted_s < 12 * 0.04
        means.append(sum(plan.score for plan in plans) / len(plans))
        if not one:
            asked = world.queue.cycle.prefetch.questions
            assert asked <= 4 * 4, "more than the last few jobs were asked about alone"
            assert {r.region for r in world.jobs.values()} == {"east", "north", "south", "west"}
    assert means[1] <= means[0] * 1.01


def test_a_region_that_makes_no_columns_is_asked_as_before() -> None:
    """One of an older version is enough: no region is asked in bulk while it is there."""
    rng = random.Random(0)
    world = large_world(rng, in_bulk=True)
    world.tell(ids.QUEUE, m.LinkUp("south"))
    world.submit(*large_burst(rng, 100))
    world.advance(30.0)
    assert len(plans_of(world)) == 100
    assert world.queue.cycle.prefetch.questions > 0
    assert world.queue.cycle.bulk.answers == {}
    world.tell(ids.QUEUE, m.LinkUp("south", columns=True))
    before = world.queue.cycle.prefetch.questions
    world.submit(*large_burst(rng, 100))
    world.advance(30.0)
    assert len(plans_of(world)) == 200
    assert world.queue.cycle.prefetch.questions == before


def test_a_region_out_of_reach_does_not_keep_the_others_from_bulk_questions() -> None:
    """Nor does one that goes away while it is asked: its answer is not waited for."""
    rng = random.Random(1)
    world = large_world(rng, in_bulk=True)
    world.tell(ids.QUEUE, m.LinkDown("south", "the wire is cut"))
    world.submit(*large_burst(rng, 100))
    world.advance(0.01)
    assert plans_of(world) == []
    world.tell(ids.QUEUE, m.LinkDown("west", "the wire is cut"))
    world.advance(30.0)
    assert {plan.region for plan in plans_of(world)} == {"east", "north"}
    assert len(plans_of(world)) == 100
    assert world.queue.cycle.prefetch.questions == 0


def test_what_changed_while_regions_searched_is_seen() -> None:
    """A job that was cancelled gets no place, one of a higher rank that came is before the others, and
    no job goes to a host that was lost.
    """
    rng = random.Random(2)
    world = large_world(rng, in_bulk=True)
    world.submit(*[job(gpus=1, band=Band.NORMAL)] * 100)
    world.advance(0.01)
    world.cancel("j1")
    world.cancel("j50")
    world.submit(job("late", 1, band=Band.CRITICAL), job("odd", 5, band=Band.CRITICAL))
    world.set_host("east-1-0", HostState.CORDONED)
    world.advance(30.0)
    made = [plan.job for plan in plans_of(world)]
    assert sorted(set(made)) == sorted(set(world.jobs) - {"j1", "j50"})
    assert made.index("j101") < 3
    on = {host for record in world.jobs.values() if record.plan for host in record.hosts}
    assert "east-1-0" not in on
    check_rest(world)


def test_plans_in_bulk_are_taken_one_by_one_where_quota_may_end() -> None:
    """One question for all of them; those beyond the quota wait."""
    regions = fleet(
        cluster("east-1", hosts=20),
        cluster("west-1", hosts=20),
        tenants=(tenant("a", borrow=0, H100=70),),
    )
    world = Late(regions, profile(), random.Random(3), in_bulk=True)
    world.delay_s, world.loss = 0.02, 0.0
    world.submit(*[job(gpus=1, tenant="a")] * 90)
    world.advance(30.0)
    made = world.decisions()
    assert len(made) == 70
    assert made[-1][0] < 4 * 0.04
    assert world.queue.cycle.prefetch.questions == 0


def test_a_full_fleet_is_not_asked_in_bulk() -> None:
    """No region can have a place: a bulk question would be a round trip in vain. It is asked once some
    kind behind the next may have one.
    """
    regions = fleet(
        *[cluster(f"{name}-1", hosts=2) for name in ("east", "west")],
        cluster("east-2", hosts=2, model="A100"),
    )
    world = Late(regions, profile(), random.Random(4), in_bulk=True)
    world.delay_s, world.loss = 0.02, 0.0
    world.submit(*[job(gpus=8, band=Band.CRITICAL)] * 4)
    world.advance(5.0)
    kinds = [(1 + n % 8, 1 + n // 8) for n in range(16)]
    critical = [job(gpus=gpus, count=count, band=Band.CRITICAL) for gpus, count in kinds]
    world.submit(*critical, job(resources=needs(0, cpus=1), band=Band.LOW))
    world.advance(0.01)
    asked = world.queue.cycle.bulk
    assert asked.batch == 0
    world.advance(30.0)
    higher = [job(gpus=gpus, count=count, band=Band.HIGH) for gpus, count in kinds]
    world.submit(*higher, *[job(gpus=1, model="A100")] * 16)
    world.advance(0.01)
    assert asked.batch
    world.advance(30.0)
    assert len(plans_of(world)) == 4 + 1 + 16


def test_a_job_without_gpus_may_have_room_in_a_fleet_of_full_gpus() -> None:
    """It takes none of them, and is no reason not to ask."""
    world = Late(fleet(cluster("east-1", hosts=1, cpus=8)), profile(), random.Random(4))
    world.submit(job(gpus=8), *[job(resources=needs(0, cpus=8))] * 2, job(gpus=1))
    world.advance(5.0)
    backlog = world.queue.backlog
    kinds = {name: Kind(backlog.job_class(name), False, (0,)) for name in ("j3", "j4")}
    rooms = {name: may_have_room(world.queue, kind) for name, kind in kinds.items()}
    assert rooms == {"j3": True, "j4": False}
