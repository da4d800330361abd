"""Regions that are asked about many candidates at once: every decision is that of one question at a time."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.build import cluster, fleet, job, profile, tenant
from tests.support.world import World
from topmast.fast.queue import facts as f
from topmast.fast.queue.cycle.prefetch import Answer
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import Fleet
from topmast.model.job import Band, Checkpoint, JobSpec
from topmast.model.states import HOLDING, WAITING, HostState
from topmast.policies.options import Preemption, Profile, WhenBlocked
from topmast.runtime.codec import decode_facts

STEPS = 40
SEEDS = range(40)
JOB_BY_JOB, AHEAD = 1, 16


class Twin(World):
    """A world whose regions are asked by message, as those of other processes are, without the way between.

    ``most_jobs`` None: they are asked through the desk, as those of one process are.
    """

    def __init__(self, regions: Fleet, options: Profile, most_jobs: int | None) -> None:
        super().__init__(regions, replace(options, ask_ahead=most_jobs or 1))
        self.told: dict[str, int] = {}
        if most_jobs is not None:
            for region in regions.regions:
                self.tell(ids.QUEUE, m.LinkUp(region.name))

    def decisions(self) -> list[tuple[Any, ...]]:
        """Every plan that won, in order. A plan of a batch may have been made at an older version."""
        return [
            (record.at_s, fact.job, fact.epoch, replace(fact.plan, region_version=0), fact.over_quota)
            for record in self.journal.written
            if record.machine == ids.QUEUE
            for fact in decode_facts(record.machine, record.facts)
            if isinstance(fact, f.Planned)
        ]  # fmt: skip

    def waiting(self) -> dict[str, tuple[Any, ...]]:
        """Why each job that waits does."""
        waiting = {job: record for job, record in self.jobs.items() if record.state in WAITING}
        found = {job: self.queue.verdict_on(record) for job, record in waiting.items()}
        return {job: (v and v.reason, v and v.detail) for job, v in found.items()}

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
        tenants=(tenant("a", H100=12, A100=12), tenant("b", borrow=8, H100=3), tenant("c", borrow=4)),
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


def lived(seed: int, most_jobs: int | None) -> Twin:
    """One life in one such world."""
    rng = random.Random(seed)
    world = Twin(random_fleet(rng), random_options(rng), most_jobs)
    live_through(world, rng)
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_asked_at_once_all_are_decided_as_one_by_one(seed: int) -> None:
    """The same plans win, in the same order; who waits, waits for the same; nobody is refused for it."""
    one_by_one, at_once = lived(seed, JOB_BY_JOB), lived(seed, AHEAD)
    assert at_once.decisions() == one_by_one.decisions()
    assert at_once.states() == one_by_one.states()
    assert at_once.waiting() == one_by_one.waiting()
    assert at_once.refusals() == one_by_one.refusals() == 0
    for placer in at_once.machines.placers.values():
        assert not placer.holds, "something is held that nobody needs"


def test_a_sweep_costs_a_few_messages() -> None:
    """Forty alike in two regions: what one of them is not given there is offered to the next."""
    asked = {}
    for most in (JOB_BY_JOB, AHEAD):
        world = Twin(fleet(cluster("east-1", hosts=5), cluster("west-1", hosts=5)), profile(), most)
        world.submit(*[job(gpus=1)] * 40)
        assert {record.region for record in world.jobs.values()} == {"east", "west"}
        asked[most] = world.queue.cycle.prefetch.questions
    assert asked[JOB_BY_JOB] == 80
    assert asked[AHEAD] <= 8


def test_a_full_fleet_costs_a_few_messages() -> None:
    """Many who find no room, each of another kind: nothing is held, so nothing is asked twice."""
    asked = {}
    for most in (JOB_BY_JOB, AHEAD):
        world = Twin(fleet(cluster("east-1"), cluster("west-1")), profile(), most)
        world.submit(*[job(gpus=8)] * 4)
        before = world.queue.cycle.prefetch.questions
        world.submit(*[job(gpus=1 + i % 8, count=1 + i // 8, model="H100") for i in range(32)])
        asked[most] = world.queue.cycle.prefetch.questions - before
    assert asked[JOB_BY_JOB] == 2 * 2 * 32
    assert asked[AHEAD] <= 16


def test_somebody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take answers that count on offers which were not taken: some decision must differ."""
    monkeypatch.setattr(Answer, "is_held", property(lambda self: False))
    assert any(
        lived(seed, JOB_BY_JOB).decisions() != lived(seed, AHEAD).decisions() for seed in SEEDS
    )
