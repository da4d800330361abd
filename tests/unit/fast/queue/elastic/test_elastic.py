"""Elastic jobs start with what fits, grow into idle GPUs, and shrink for jobs that wait."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support import invariants
from tests.support.build import (
    cluster,
    dataset,
    elastic,
    fleet,
    gang,
    job,
    needs,
    profile,
    tenant,
)
from tests.support.world import World
from topmast.model import messages as m
from topmast.model.fleet import Fleet
from topmast.model.job import Band, Checkpoint, JobSpec
from topmast.model.states import JobState
from topmast.policies.options import ElasticOptions, Preemption
from topmast.service.explain import explain_job, explain_spec

SETTLE_S, EVERY_S = 100.0, 20.0
BOTH = ElasticOptions(grow=True, shrink=True, every_s=EVERY_S, settle_s=SETTLE_S, gain=1.0)
LONG_S = 100_000.0


def _world(hosts: int = 2, options: ElasticOptions = BOTH, **more: Any) -> World:
    """Hosts with eight GPUs each."""
    where: Fleet = more.pop("where", None) or fleet(cluster("east-1", hosts=hosts))
    return World(where, profile(elastic=options, **more))


def _elastic(count: int, fewest: int, most: int, **more: Any) -> JobSpec:
    """One GPU for each task, and a day to go."""
    defaults: dict[str, Any] = {"gpus": 1, "duration_s": LONG_S, "checkpoint": Checkpoint("x")}
    return elastic(job("elastic", count=count, **{**defaults, **more}), fewest, most)


def _tasks(world: World, name: str) -> int:
    """The seats of a job; 0 for one that waits."""
    plan = world.jobs[name].plan
    return 0 if plan is None else len(plan.seats)


def _ranks(world: World, name: str) -> list[int]:
    """The ranks of the seats of a job, in their order."""
    plan = world.jobs[name].plan
    return [] if plan is None else [seat.rank for seat in plan.seats]


# --- starting -------------------------------------------------------------------------------------------


@dataclass
class Start:
    """What is taken already, what is asked for, and how many tasks it starts with."""

    story: str
    taken: int
    spec: JobSpec
    want: int
    where: Fleet | None = None
    options: dict[str, Any] = field(default_factory=dict)


QUOTA = fleet(cluster("east-1"), tenants=(tenant("default", borrow=0, H100=5),))
BORROWED = fleet(cluster("east-1"), tenants=(tenant("default", borrow=8, H100=5),))
TWO_MODELS = fleet(
    cluster("east-1", hosts=1), cluster("west-1", hosts=1, model="A100"),
    tenants=(tenant("default", borrow=0, H100=3, A100=6),),
)  # fmt: skip
FAR = fleet(
    cluster("east-1", hosts=1), cluster("west-1", hosts=1),
    datasets=(dataset("here", "east"),),
)  # fmt: skip
STARTS = [
    Start("there is room for all", 0, _elastic(6, 2, 16), 6),
    Start("as many as there is room for", 11, _elastic(8, 2, 16), 5),
    Start("the fewest", 14, _elastic(8, 2, 16), 2),
    Start("not even those", 15, _elastic(8, 2, 16), 0),
    Start("a task of several GPUs does not fit in part", 9, _elastic(4, 1, 4, gpus=2), 3),
    Start("quota leaves five", 0, _elastic(8, 2, 8), 5, QUOTA),
    Start("within quota comes before more that is borrowed", 0, _elastic(8, 2, 8), 5, BORROWED),
    Start("nothing is left of the quota", 4, _elastic(8, 2, 8), 0, QUOTA),
    Start("what is borrowed goes only as far as may be", 4, _elastic(12, 2, 12), 8, BORROWED),
    Start("the model of which quota leaves more", 0,
          _elastic(6, 2, 6, resources=needs(1, "H100", "A100")), 6, TWO_MODELS),
    Start("smaller where its data is", 5, _elastic(8, 2, 8, datasets=("here",)), 5, FAR),
    Start("one group of several", 4,
          elastic(gang({"chief": (1, needs(1)), "worker": (20, needs(1))}), 1, 20, group=1), 12),
]  # fmt: skip


@pytest.mark.parametrize("case", STARTS, ids=lambda case: case.story)
def test_it_starts_with_the_most_tasks_that_fit(case: Start) -> None:
    """All that it asked for, or else as many as there is room and quota for, but not fewer than will do."""
    world = _world(where=case.where)
    for _ in range(case.taken):
        world.submit(job("filler", gpus=1, preemptible=False, duration_s=LONG_S))
    (name,) = world.submit(case.spec)
    assert _tasks(world, name) == case.want
    assert _ranks(world, name) == list(range(case.want))
    invariants.check_rest(world)
    invariants.check_rebuilds(world)


def test_nobody_is_stopped_for_more_than_the_fewest() -> None:
    """A more important job starts small beside others; if not even that fits, it stops as few as will do."""
    world = _world(hosts=1)
    for _ in range(7):
        world.submit(job("low", gpus=1, band=Band.LOW, duration_s=LONG_S))
    world.submit(_elastic(8, 1, 8, band=Band.HIGH))
    world.submit(_elastic(8, 2, 8, band=Band.CRITICAL))
    assert [_tasks(world, name) for name in ("j8", "j9")] == [1, 2]
    assert sum(record.preemptions for record in world.jobs.values()) == 2


# --- growing --------------------------------------------------------------------------------------------


def test_it_grows_into_idle_gpus() -> None:
    """Once its size has settled and nobody waits, it stops with its checkpoint and goes on with more tasks."""
    world = _world()
    world.submit(_elastic(4, 2, 12))
    world.checkpoint("j1", 7)
    world.advance(SETTLE_S - 1)
    assert (_tasks(world, "j1"), world.jobs["j1"].epoch) == (4, 1)
    world.checkpoint("j1", 40)
    world.advance(EVERY_S + 1)
    record = world.jobs["j1"]
    assert (_tasks(world, "j1"), record.epoch, record.state) == (12, 2, JobState.RUNNING)
    assert (record.resizes, record.preemptions, record.migrations, record.step) == (1, 1, 1, 40)
    gangs = [o for o in world.orders(m.StartGang) if o.epoch == 2]
    assert [len(gang.seats) for gang in gangs] == [12]
    assert "grows from 4 to 12 tasks" in " ".join(r.text for r in world.journal.history("j1"))
    view = record.view(world.now, None)
    assert (view.tasks, view.gpus, view.min_tasks, view.max_tasks) == (12, 12.0, 2, 12)
    world.advance(10 * SETTLE_S)
    assert record.epoch == 2, "there is nothing more to gain"
    invariants.check_rest(world)
    invariants.check_rebuilds(world)


@dataclass
class Stays:
    """Why a job does not grow."""

    story: str
    spec: JobSpec = field(default_factory=lambda: _elastic(4, 2, 12))
    others: tuple[JobSpec, ...] = ()
    options: ElasticOptions = BOTH
    where: Fleet | None = None
    more: dict[str, Any] = field(default_factory=dict)


STAYS = [
    Stays("the profile does not say so", options=ElasticOptions(shrink=True)),
    Stays("it is not elastic", job("rigid", gpus=4, duration_s=LONG_S)),
    Stays("it may not be stopped", _elastic(4, 2, 12, preemptible=False)),
    Stays("too little is left of it", _elastic(4, 2, 12, duration_s=SETTLE_S + 40.0),
          more={"restart_cost_s": 30.0}),
    Stays("its speed would not be worth it", options=ElasticOptions(
        grow=True, every_s=EVERY_S, settle_s=SETTLE_S, efficiency=0.5)),
    Stays("somebody waits who could use the GPUs", others=(job("large", gpus=8, count=2),)),
    Stays("somebody waits for CPUs alone", _elastic(4, 2, 12, resources=needs(1, cpus=1)),
          (job("reader", resources=needs(0, cpus=32), count=2),),
          where=fleet(cluster("east-1", cpus=32.0))),
    Stays("quota", where=fleet(
        cluster("east-1"), tenants=(tenant("default", borrow=0, H100=4),))),
]  # fmt: skip


@pytest.mark.parametrize("case", STAYS, ids=lambda case: case.story)
def test_it_does_not_grow(case: Stays) -> None:
    """Without leave, gain, room or quota, or while others wait who could use what is idle, it keeps its size."""
    world = _world(options=case.options, where=case.where, **case.more)
    world.submit(case.spec)
    if case.others:
        world.submit(*case.others)
        assert world.state("j2") is JobState.PENDING
    world.advance(3 * SETTLE_S)
    assert (_tasks(world, "j1"), world.jobs["j1"].epoch) == (case.spec.tasks, 1)
    invariants.check_rest(world)


def test_who_waits_for_other_gpus_does_not_keep_it_small() -> None:
    """A job that could not use the GPUs that are idle is no reason to leave them idle."""
    world = _world(
        where=fleet(cluster("east-1", hosts=1), cluster("west-1", hosts=1, model="A100"))
    )
    world.submit(_elastic(4, 2, 8), job("large", gpus=16, model="A100"))
    world.submit(job("other", gpus=8, count=2, model="A100"))
    world.advance(SETTLE_S + EVERY_S)
    assert _tasks(world, "j1") == 8


def test_several_share_what_is_idle_and_their_quota() -> None:
    """Who has the least of what it asked for is first; what one may be about to take another is not promised."""
    where = fleet(cluster("east-1"), tenants=(tenant("default", borrow=0, H100=13),))
    world = _world(where=where)
    world.submit(_elastic(4, 2, 12), _elastic(5, 1, 12))
    world.advance(SETTLE_S + EVERY_S)
    assert sorted(_tasks(world, name) for name in ("j1", "j2")) == [5, 8]
    world.advance(3 * SETTLE_S)
    invariants.check_rest(world)


def test_borrowed_work_grows_on_what_may_be_borrowed() -> None:
    """Over quota it may have as much as the limit to borrowing says."""
    where = fleet(cluster("east-1"), tenants=(tenant("default", borrow=10, H100=0),))
    world = _world(where=where)
    world.submit(_elastic(4, 2, 16))
    assert world.jobs["j1"].over_quota
    world.advance(SETTLE_S + EVERY_S)
    assert (_tasks(world, "j1"), world.jobs["j1"].over_quota) == (10, True)


# --- shrinking ------------------------------------------------------------------------------------------


@dataclass
class Gives:
    """Who runs, who comes, and the sizes afterwards; 0: it waits."""

    story: str
    runs: tuple[JobSpec, ...]
    comes: JobSpec
    want: tuple[int, ...]
    more: dict[str, Any] = field(default_factory=dict)
    stopped: int = 0


GIVES = [
    Gives("as few as need be", (_elastic(16, 2, 16),), job(gpus=1, count=3), (13, 3)),
    Gives("down to the fewest", (_elastic(16, 4, 16),), job(gpus=4, count=3), (4, 3)),
    Gives("but not below", (_elastic(16, 5, 16),), job(gpus=4, count=3), (16, 0)),
    Gives("the cheapest of two", (_elastic(10, 2, 10, band=Band.HIGH), _elastic(6, 2, 6)),
          job(gpus=4, band=Band.HIGH), (10, 2, 1)),
    Gives("two of them", (_elastic(8, 4, 8), _elastic(8, 4, 8)), job(gpus=1, count=7), (5, 4, 7)),
    Gives("to lower work nothing that it asked for", (_elastic(16, 2, 16),),
          job(gpus=1, band=Band.LOW), (16, 0)),
    Gives("it rather shrinks than that others stop",
          (_elastic(8, 2, 8), job("low", gpus=8, band=Band.LOW)), job(gpus=4, band=Band.HIGH),
          (4, 1, 1)),
    Gives("if that does not do, others stop",
          (_elastic(8, 2, 8), job("low", gpus=8, band=Band.LOW)),
          job(gpus=8, band=Band.HIGH), (8, 0, 1), stopped=1),
    Gives("not if it may not be stopped", (_elastic(16, 2, 16, preemptible=False),),
          job(gpus=1), (16, 0)),
    Gives("without preemption too", (_elastic(16, 2, 16),), job(gpus=8), (8, 1),
          more={"preemption": Preemption.NONE}),
    Gives("for another that is elastic, the fewest that do", (_elastic(16, 2, 16),),
          _elastic(8, 3, 8), (13, 3)),
]  # fmt: skip


@pytest.mark.parametrize("case", GIVES, ids=lambda case: case.story)
def test_it_gives_tasks_to_who_waits(case: Gives) -> None:
    """Elastic work above its fewest tasks gives way before anybody is stopped whole."""
    no_growth = ElasticOptions(shrink=True, every_s=EVERY_S, settle_s=SETTLE_S)
    world = _world(options=no_growth, **case.more)
    world.submit(*case.runs)
    world.advance(SETTLE_S + 1)
    world.submit(case.comes)
    names = [f"j{n + 1}" for n in range(len(case.want))]
    assert tuple(_tasks(world, name) for name in names) == case.want
    whole = [r for r in world.jobs.values() if r.preemptions and not r.resizes]
    assert len(whole) == case.stopped
    invariants.check_rest(world)
    invariants.check_rebuilds(world)


def test_it_gives_what_it_grew_to_anybody() -> None:
    """What it has beyond its count was idle: work of any band may have it."""
    world = _world()
    world.submit(_elastic(4, 2, 16))
    world.advance(SETTLE_S + EVERY_S)
    assert _tasks(world, "j1") == 16
    world.advance(SETTLE_S + 1)
    world.submit(*(job("low", gpus=4, band=Band.LOW) for _ in range(4)))
    assert [_tasks(world, f"j{n}") for n in range(1, 6)] == [12, 1, 0, 0, 0]
    world.advance(4 * SETTLE_S)
    assert [_tasks(world, f"j{n}") for n in range(1, 6)] == [4, 1, 1, 1, 0]
    assert world.jobs["j1"].resizes == 4
    invariants.check_rest(world)


def test_a_young_size_is_kept_and_then_looked_at_again() -> None:
    """Who has just changed its size gives nothing; when it has settled, those who wait are asked about again."""
    world = _world()
    world.submit(_elastic(16, 2, 16), job("waits", gpus=8))
    assert _tasks(world, "j2") == 0
    world.advance(SETTLE_S - 1)
    assert _tasks(world, "j2") == 0
    world.advance(EVERY_S + 1)
    assert (_tasks(world, "j1"), _tasks(world, "j2")) == (8, 1)


# --- faults ---------------------------------------------------------------------------------------------


def _while_growing(world: World) -> None:
    world.submit(_elastic(4, 2, 12))
    for rank in range(4):
        world.start("j1", rank)
    world.advance(SETTLE_S + EVERY_S)


def _while_shrinking(world: World) -> None:
    world.submit(_elastic(16, 2, 16))
    world.start("j1")
    world.advance(SETTLE_S + 1)
    world.submit(job("waits", gpus=4))


@pytest.mark.parametrize(
    ("begin", "want"), [(_while_growing, (12,)), (_while_shrinking, (12, 1))],
    ids=["growing", "shrinking"],
)  # fmt: skip
def test_a_change_of_size_survives_a_crash(
    begin: Callable[[World], None], want: tuple[int, ...]
) -> None:
    """The process is killed while the attempt stops: another one carries the change through."""
    world = World(fleet(cluster("east-1")), profile(elastic=BOTH), obedient=False)
    begin(world)
    assert world.state("j1") is JobState.PREEMPTING
    world.restart()
    assert world.state("j1") is JobState.PREEMPTING
    world.finish("j1", 143)
    assert tuple(_tasks(world, f"j{n + 1}") for n in range(len(want))) == want
    assert [fact.epoch for fact in world.plans() if fact.job == "j1"] == [1, 2]
    world.start("j1")
    invariants.check_rest(world)
    invariants.check_rebuilds(world)


def test_a_place_is_cut_down_when_quota_went_meanwhile() -> None:
    """Another job of the tenant took the quota while it stopped: it comes back with what is left."""
    where = fleet(cluster("east-1"), tenants=(tenant("default", borrow=0, H100=14),))
    world = World(where, profile(elastic=BOTH), obedient=False)
    _while_growing(world)
    world.submit(job("quick", gpus=4, band=Band.CRITICAL, preemptible=False))
    assert world.jobs["j2"].plan is not None
    world.finish("j1", 143)
    assert _tasks(world, "j1") == 10
    assert _ranks(world, "j1") == list(range(10))
    invariants.check_rest(world)


# --- told -----------------------------------------------------------------------------------------------


def test_people_are_told_of_sizes() -> None:
    """`explain` says with how many tasks it would start, or runs, and what it may have."""
    world = _world(hosts=1)
    spec = _elastic(6, 2, 12)
    would = explain_spec(world.queue, world.machines.placers, spec, world.now)
    assert "starts with the most that fit, from 2 to 12 tasks; it asked for 6" in would.summary
    world.submit(job("filler", gpus=4, preemptible=False), spec, _elastic(6, 2, 12))
    runs, waits = (
        explain_job(world.queue, world.machines.placers, world.jobs[name], world.now)
        for name in ("j2", "j3")
    )
    assert "it runs with 4 tasks, and may have from 2 to 12 tasks" in runs.summary
    assert waits.reason == "InsufficientCapacity"
    assert "no cluster has room for 2 tasks with 1 H100 each now" in waits.summary
