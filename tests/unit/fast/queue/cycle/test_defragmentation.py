"""Work is moved for a job that waited long without room, if that is worth it; never otherwise."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from tests.support import invariants
from tests.support.build import ask, cluster, fleet, job, needs, profile, tenant
from tests.support.world import World
from topmast.fast.queue.facts import Migrates
from topmast.fast.region.facts import PlaceBooked, PlaceGivenUp
from topmast.model import messages as m
from topmast.model.job import Band, Checkpoint
from topmast.model.plan import Move
from topmast.model.reason import ChangeKind
from topmast.model.states import HostState, JobState, Outcome
from topmast.policies.options import Preemption
from topmast.service.explain import explain_job, explain_spec

AFTER_S = 100.0


def _world(*, hosts: int = 2, obedient: bool = True, **options: Any) -> World:
    """Hosts with eight GPUs each, on which jobs with four are packed in pairs."""
    defaults = {"defragment": True, "defragment_after_s": AFTER_S, "defragment_gain": 1.0}
    return World(
        fleet(cluster("east-1", hosts=hosts)), profile(**{**defaults, **options}), obedient=obedient
    )


def _fragmented(world: World, **more: Any) -> None:
    """On each of two hosts four GPUs are in use: j1 on the first, j3 on the second."""
    filler = job("filler", gpus=4, preemptible=False)
    for spec in (job("mover", gpus=4, **more), filler, job("other", gpus=4, **more), filler):
        world.submit(spec)
    for name in ("j2", "j4"):
        world.finish(name)
    hosts = [world.jobs[name].hosts for name in ("j1", "j3")]
    assert hosts == [("east-1-0",), ("east-1-1",)]


def test_a_fragmented_region_is_made_whole() -> None:
    """The gang waits, then one job makes room for it, and goes on from its checkpoint elsewhere."""
    world = _world()
    _fragmented(world)
    world.advance(50)
    world.checkpoint("j1", 40)
    world.submit(job("gang", gpus=8))
    assert world.reason("j5") == "InsufficientCapacity"
    world.advance(AFTER_S - 1)
    assert world.state("j5") is JobState.PENDING
    assert world.jobs["j1"].epoch == 1
    world.advance(2)
    assert world.state("j5") is JobState.RUNNING
    assert world.jobs["j5"].hosts == ("east-1-0",)
    mover = world.jobs["j1"]
    assert (mover.state, mover.hosts, mover.epoch) == (JobState.RUNNING, ("east-1-1",), 2)
    assert (mover.preemptions, mover.migrations, mover.step) == (1, 1, 40)
    assert mover.submit_s == 0.0
    assert world.jobs["j3"].epoch == 1
    story = " ".join(row.text for row in world.journal.history("j1"))
    assert "migrated for j5" in story
    assert "moves j1 to east-1-1" in " ".join(r.text for r in world.journal.history("j5"))
    assert [fact.used for fact in world.facts(PlaceGivenUp)] == [True]
    state = world.placer("east").state
    assert (state.places, state.places_used, state.places_missed) == ({}, 1, 0)
    invariants.check_rest(world)
    invariants.check_rebuilds(world)


def test_moves_are_foretold() -> None:
    """Before the gang is submitted, and while it waits: which job will move, and when."""
    world = _world()
    _fragmented(world)
    world.advance(50)
    placers, gang = world.machines.placers, job("gang", gpus=8)
    told = [explain_spec(world.queue, placers, gang, world.now)]
    world.submit(gang)
    world.advance(AFTER_S / 2)
    told.append(explain_job(world.queue, placers, world.jobs["j5"], world.now))
    moves = [change for one in told for change in one.changes if change.kind is ChangeKind.MOVES]
    assert [change.jobs for change in moves] == [("j1",)] * 2
    assert [change.at_s for change in moves] == [50 + AFTER_S] * 2
    assert "then j1 moves to other hosts, and there is room in east/east-1" in moves[0].text
    assert world.jobs["j1"].epoch == 1
    world.advance(AFTER_S / 2)
    assert world.state("j5") is JobState.RUNNING
    assert (world.jobs["j1"].migrations, world.jobs["j3"].migrations) == (1, 0)


@dataclass
class Spared:
    """Why nobody is moved: options, the movers, the gang."""

    story: str
    options: dict[str, Any]
    movers: dict[str, Any]
    gang: dict[str, Any]


SPARED = [
    Spared("the profile does not want it", {"defragment": False}, {}, {}),
    Spared("those who run may not be preempted", {}, {"preemptible": False}, {}),
    Spared("those who run are too young", {"min_runtime_s": 10_000.0}, {}, {}),
    Spared("the gain is to be larger", {"defragment_gain": 1_000.0}, {}, {}),
    Spared("a restart costs too much", {"restart_cost_s": 10_000.0}, {}, {}),
    Spared("what it waited counts but little", {"defragment_cap_s": 0.1}, {}, {}),
    Spared("the gang fits no host, nor a region made whole", {}, {}, {"gpus": 8, "count": 2}),
    Spared("it wants another model", {}, {}, {"model": "A100"}),
]


@pytest.mark.parametrize("case", SPARED, ids=lambda case: case.story)
def test_nobody_is_moved_in_vain(case: Spared) -> None:
    """Whatever forbids it, all run on as if nothing had been asked."""
    world = _world(**{"preemption": Preemption.NONE, **case.options})
    _fragmented(world, **case.movers)
    world.submit(job("gang", **{"gpus": 8, **case.gang}))
    world.advance(5 * AFTER_S)
    assert world.state("j5") is JobState.PENDING
    assert [world.jobs[name].epoch for name in ("j1", "j3")] == [1, 1]
    assert not world.facts(PlaceBooked)
    invariants.check_rest(world)


def test_work_of_a_higher_band_is_moved_as_well_but_costs_more() -> None:
    """A low gang may move critical work, once that has saved, and the gang waited for long enough."""
    world = _world(restart_cost_s=50.0)
    _fragmented(world, band=Band.CRITICAL)
    world.submit(job("gang", gpus=8, band=Band.LOW))
    world.advance(AFTER_S + 1)
    assert world.state("j5") is JobState.PENDING  # 4 x (100 + 50) x 5 = 3000 > 8 x 100 x 2 = 1600
    world.checkpoint("j1", 1)
    world.advance(AFTER_S)
    assert world.state("j5") is JobState.RUNNING  # 4 x (99 + 50) x 5 = 2980 < 8 x 200 x 2 = 3200
    assert (world.jobs["j1"].migrations, world.jobs["j3"].migrations) == (1, 0)


@dataclass
class Rivals:
    """Who saved its work just now, and so is the one to go."""

    story: str
    saved: str
    moved: bool


@pytest.mark.parametrize(
    "case",
    [
        Rivals("preemption goes first where it costs less", "j5", False),
        Rivals("moving goes first where it costs less", "j1", True),
    ],
    ids=lambda case: case.story,
)
def test_moving_and_preemption_are_weighed(case: Rivals) -> None:
    """The gang may stop the job of a lower band as well as have one moved; the cheaper is done."""
    world = _world(hosts=3, min_runtime_s=AFTER_S)
    _fragmented(world)
    world.submit(job("low", gpus=8, band=Band.LOW))
    world.submit(job("gang", gpus=8))
    world.advance(AFTER_S - 1)
    assert world.state("j6") is JobState.PENDING
    world.checkpoint(case.saved, 5)
    world.advance(2)
    assert world.state("j6") is JobState.RUNNING
    assert (world.jobs["j1"].migrations, world.jobs["j5"].preemptions) == (
        case.moved,
        not case.moved,
    )


def test_a_mover_stays_on_its_gpu_model() -> None:
    """Its quota is by model, and so is its speed: free GPUs of another one that it accepts are no place."""
    world = World(
        fleet(cluster("east-1", hosts=2), cluster("east-2", hosts=1, model="A100")),
        profile(defragment=True, defragment_after_s=AFTER_S, defragment_gain=1.0),
    )
    filler = job("filler", gpus=4, preemptible=False)
    either = job("mover", resources=needs(4, "H100", "A100"))
    for spec in (either, filler, either, filler):
        world.submit(spec)
    world.finish("j2")
    world.submit(job("gang", gpus=8))
    world.advance(3 * AFTER_S)
    assert world.jobs["j1"].epoch == 1
    world.finish("j4")
    world.advance(2 * AFTER_S)
    assert world.jobs["j1"].hosts == ("east-1-1",)
    assert world.state("j5") is JobState.RUNNING


# --- the place kept -----------------------------------------------------------------------------------


def _under_way(**options: Any) -> World:
    """j1 was told to stop for j5, and its place on the second host is kept."""
    world = _world(obedient=False, **options)
    filler = job("filler", gpus=4, preemptible=False)
    mover = job("mover", gpus=4, checkpoint=Checkpoint(grace_s=20.0))
    world.submit(mover, filler, mover, filler)
    for name in ("j1", "j2", "j3", "j4"):
        world.start(name)
    world.finish("j2")
    world.finish("j4")
    world.advance(10)
    world.checkpoint("j1", 3)
    world.submit(job("gang", gpus=8))
    world.advance(AFTER_S + 1)
    assert world.state("j1") is JobState.PREEMPTING
    assert world.reason("j5") == "PreemptionInProgress"
    return world


def test_nobody_takes_the_place_that_is_kept() -> None:
    """Not even a job that ranks first and would fit there."""
    world = _under_way(preemption=Preemption.NONE)
    world.submit(job("thief", gpus=4, band=Band.HIGH))
    assert world.reason("j6") == "InsufficientCapacity"
    invariants.check_all(world)
    world.finish("j1", 143)
    world.start("j1")
    assert world.jobs["j1"].hosts == ("east-1-1",)
    assert world.state("j5") is JobState.STARTING
    assert world.state("j6") is JobState.PENDING
    invariants.check_rest(world)
    invariants.check_rebuilds(world)


def test_a_restart_of_the_server_keeps_the_place() -> None:
    """It is in the journal, and in the snapshot."""
    world = _under_way()
    world.snapshot()
    world.restart()
    assert list(world.placer("east").state.places) == ["j1"]
    world.finish("j1", 143)
    world.restart()
    world.start("j1")
    assert world.jobs["j1"].hosts == ("east-1-1",)
    invariants.check_all(world)


def test_a_place_that_nobody_needs_is_given_up() -> None:
    """The mover was done before it heard that it had to stop: others may have its place at once."""
    world = _under_way()
    placer = world.placer("east")
    done = m.AttemptEnded("j1", 1, Outcome.SUCCEEDED, 0.0, world.now, world.now)
    facts = placer.handle(done, world.now).facts
    assert PlaceGivenUp("j1", used=False) in facts
    assert not placer.state.places
    invariants.check_placer(placer)


def test_a_place_is_kept_for_a_limited_time() -> None:
    """Its job does not end: a minute after its grace others may have the place."""
    world = _under_way()
    world.submit(job("next", gpus=4))
    assert world.state("j6") is JobState.PENDING
    world.advance(81)
    assert world.jobs["j6"].hosts == ("east-1-1",)
    assert world.placer("east").state.places_missed == 1
    invariants.check_all(world)


def test_a_place_whose_job_was_cancelled_is_free_at_once() -> None:
    """It was cancelled while it stopped: nobody waits for its time to be up."""
    world = _under_way()
    world.cancel("j1")
    world.finish("j1", 143)
    assert world.state("j1") is JobState.CANCELLED
    world.submit(job("next", gpus=4))
    assert world.jobs["j6"].hosts == ("east-1-1",)
    assert world.placer("east").state.places_missed == 1
    invariants.check_all(world)


def test_a_mover_whose_place_went_away_waits_like_any_other() -> None:
    """The host is lost before it comes back: no place is promised, none is taken twice."""
    world = _under_way()
    world.finish("j3")
    world.lose("east-1-1")
    world.finish("j1", 143)
    assert world.state("j1") is JobState.PENDING
    assert world.state("j5") is JobState.STARTING
    world.revive("east-1-1")
    world.start("j1")
    assert world.state("j1") is JobState.RUNNING
    invariants.check_all(world)


def test_a_gang_that_goes_away_leaves_the_movers_their_places() -> None:
    """The gang is cancelled while the mover stops: the mover goes where it was to go."""
    world = _under_way()
    world.cancel("j5")
    world.finish("j1", 143)
    world.start("j1")
    assert world.jobs["j1"].hosts == ("east-1-1",)
    assert len(world.facts(Migrates)) == 1
    invariants.check_all(world)


def test_a_plan_whose_place_is_gone_is_refused() -> None:
    """The books are looked at again: nobody is stopped for a place that is not there."""
    world = _world(defragment=False)
    _fragmented(world)
    placer = world.placer("east")
    spec = job("gang", gpus=8)
    placer.now = world.now
    plan = placer.offer(ask(spec, mode=Move(1e6))).plan
    assert plan is not None
    assert [v.job for v in plan.victims] == ["j1"]
    world.set_host("east-1-0", HostState.CORDONED)
    world.submit(job("thief", gpus=4))
    world.set_host("east-1-0", HostState.HEALTHY)
    plan = msgspec.structs.replace(plan, job="j99")
    sends = placer.handle(m.CommitPlan(plan, 1, spec, Band.NORMAL), world.now).sends
    assert [s.message for s in sends] == [
        m.PlanRefused("j99", 1, "the place for j1 is not free"),
    ]


def test_quota_taken_meanwhile_makes_the_mover_wait() -> None:
    """A place is no claim on quota: the tenant uses it for another job, which ranks first."""
    world = World(
        fleet(
            cluster("east-1"), cluster("east-2", hosts=1, gpus=1),
            tenants=(tenant("a", borrow=0, H100=8), tenant("b", H100=9)),
        ),
        profile(defragment=True, defragment_after_s=AFTER_S, defragment_gain=1.0,
                preemption=Preemption.NONE),
    )  # fmt: skip
    filler = job("filler", gpus=4, preemptible=False, tenant="b")
    mover = job("mover", gpus=4, tenant="a")
    for spec in (mover, filler, mover, filler):
        world.submit(spec)
    world.finish("j2")
    world.finish("j4")
    world.submit(job("gang", gpus=8, tenant="b"))
    world.submit(job("first", gpus=1, tenant="a", band=Band.HIGH))
    assert world.reason("j6") == "WaitingForQuota"
    world.advance(AFTER_S + 1)
    assert [world.state(j) for j in ("j5", "j6")] == [JobState.RUNNING] * 2
    assert world.reason("j1") == "WaitingForQuota"
    world.advance(100)
    assert not world.placer("east").state.places
    world.finish("j6")
    assert world.state("j1") is JobState.RUNNING
    invariants.check_rest(world)
