"""Reservation and backfill: a large gang starts when it was told it would, and idle GPUs are used."""

import random
from dataclasses import dataclass, field

import pytest

from tests.support.build import cluster, dataset, fleet, job, profile
from tests.support.world import World
from topmast.fast.queue.cycle.backfill import REFRESH_S
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import Band, JobSpec
from topmast.policies.options import Preemption, Profile
from topmast.policies.registry import load_profile
from topmast.service.explain import explain_job

EASY = load_profile("easy")


def _world(hosts: int = 2, options: Profile = EASY) -> World:
    return World(fleet(cluster("east-1", hosts)), options)


def _kept_for(world: World) -> str | None:
    reservation = world.queue.cycle.backfill.reservation
    return None if reservation is None else reservation.job


def _for(duration_s: float, **more: object) -> JobSpec:
    return job(**{"duration_s": duration_s, **more})  # type: ignore[arg-type]


@dataclass
class Passing:
    """16 GPUs: 12 busy until 100 s, a gang of 16 waits; may a job pass it?"""

    story: str
    spec: JobSpec
    want: bool
    gang: JobSpec = field(default_factory=lambda: _for(50.0, gpus=8, count=2))


PASSING = [
    Passing("it will be gone in time", _for(90.0, gpus=2), True),
    Passing("it will be gone at the very moment", _for(100.0, gpus=2), True),
    Passing("it would be late", _for(101.0, gpus=2), False),
    Passing("nobody knows how long it takes", job(gpus=2), False),
    Passing("its limit ends it in time", job(gpus=2, time_limit_s=60.0), True),
    Passing("late, of the highest band", _for(101.0, gpus=2, band=Band.CRITICAL), False),
    Passing(
        "late, but the gang needs only one host, and not that one",
        _for(1_000.0, gpus=2), True, _for(50.0, gpus=8),
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", PASSING, ids=lambda case: case.story)
def test_who_may_pass_a_waiting_gang(case: Passing) -> None:
    """Only who is gone in time, or does not need what is kept for it."""
    world = _world()
    world.submit(_for(100.0, gpus=6, count=2))
    world.submit(case.gang)
    (passing,) = world.submit(case.spec)
    assert (world.states()[passing] == "RUNNING") is case.want
    if not case.want:
        job_class = world.queue.backlog.job_class(passing)
        assert job_class.verdict.detail == "room in east is kept for j2"


def test_the_gang_starts_when_it_was_told_it_would() -> None:
    """A stream of small jobs keeps the GPUs busy, and does not put it off."""
    world = _world()
    world.submit(*[_for(100.0, gpus=2) for _ in range(8)])
    world.advance(10)
    (gang,) = world.submit(_for(100.0, gpus=8, count=2))
    assert world.queue.cycle.backfill.reservation is not None
    assert world.queue.cycle.backfill.reservation.from_s == 100.0
    rng = random.Random(1)
    while world.now < 100.0:
        world.submit(_for(float(rng.randrange(1, 200)), gpus=rng.choice((1, 2, 4))))
        world.advance(1.0)
        _end_what_is_due(world)
    assert world.states()[gang] == "RUNNING"
    assert world.jobs[gang].first_start_s == 100.0


def _end_what_is_due(world: World) -> None:
    for record in list(world.jobs.values()):
        if record.state.value == "RUNNING" and record.start_s is not None:
            assert record.spec.duration_s is not None
            if record.start_s + record.spec.duration_s <= world.now:
                world.finish(record.id)


def test_without_a_reservation_the_same_gang_starves() -> None:
    """What the reservation is for."""
    world = _world(options=load_profile("fifo-skip"))
    world.submit(*[_for(100.0, gpus=2) for _ in range(8)])
    (gang,) = world.submit(_for(100.0, gpus=8, count=2))
    while world.now < 500.0:
        world.submit(_for(100.0, gpus=2))
        world.advance(10.0)
        _end_what_is_due(world)
    assert world.states()[gang] == "PENDING"


# --- who gets it, and when -------------------------------------------------------------------------


def test_nothing_is_kept_for_a_job_that_has_not_waited_long_enough() -> None:
    """And time alone makes the reservation, with nothing else going on."""
    world = _world(options=profile(reserve_after_s=600.0, preemption=Preemption.NONE))
    world.submit(_for(10_000.0, gpus=6, count=2))
    world.submit(_for(50.0, gpus=8, count=2))
    (small,) = world.submit(_for(99_000.0))
    assert world.states()[small] == "RUNNING"
    world.advance(599.0)
    assert _kept_for(world) is None
    world.advance(1.0)
    assert _kept_for(world) == "j2"
    (late,) = world.submit(_for(99_000.0))
    assert world.states()[late] == "PENDING"


def test_the_first_in_order_gets_it_and_keeps_it() -> None:
    """Who comes later, of whatever band, does not take it away."""
    world = _world(options=profile(reserve_after_s=0.0, preemption=Preemption.NONE))
    world.submit(_for(100.0, gpus=6, count=2))
    world.submit(_for(50.0, gpus=8, count=2), _for(50.0, gpus=8, count=2, band=Band.HIGH))
    assert _kept_for(world) == "j3"
    world.submit(_for(50.0, gpus=4, count=4, band=Band.CRITICAL))
    assert _kept_for(world) == "j3"


def test_a_larger_job_of_a_higher_band_is_not_bound() -> None:
    """It could stop the gang as soon as that ran: waiting for it would be for nothing."""
    world = _world(options=profile(reserve_after_s=0.0))
    world.submit(_for(10.0, gpus=8, band=Band.CRITICAL), _for(100.0, gpus=8, count=2))
    (bound,) = world.submit(_for(1e6, gpus=4, band=Band.CRITICAL))
    (free,) = world.submit(_for(1e6, gpus=8, count=2, band=Band.CRITICAL))
    world.finish("j1")
    assert world.states() == {"j1": "SUCCEEDED", "j2": "PENDING", bound: "PENDING", free: "RUNNING"}


def test_what_was_kept_is_there_for_others_when_the_gang_is_cancelled() -> None:
    """At once."""
    world = _world()
    world.submit(_for(100.0, gpus=6, count=2), _for(50.0, gpus=8, count=2), _for(500.0))
    assert world.states()["j3"] == "PENDING"
    world.cancel("j2")
    assert world.states()["j3"] == "RUNNING"


def test_a_gang_that_would_never_fit_reserves_nothing() -> None:
    """It waits, and holds nobody up."""
    world = _world()
    world.submit(_for(100.0, gpus=6, count=2), _for(50.0, gpus=8, count=3), _for(500.0))
    assert world.queue.cycle.backfill.reservation is None
    assert world.states()["j3"] == "RUNNING"


@pytest.mark.parametrize(
    ("now", "want"), [(99.0, 100.0), (100.0, 100.0), (101.0, 160.0), (170.0, 400.0), (1e6, 1.18e6)]
)
def test_an_attempt_that_overruns_is_expected_to_end_before_long(now: float, want: float) -> None:
    """The reservation moves, and never lies in the past; the later, the less is known."""
    world = _world()
    world.submit(_for(100.0, gpus=8), _for(2e6, gpus=6), _for(50.0, gpus=8))
    world.advance(now)
    world.tell(ids.QUEUE, m.CapacityChanged("east", 99))
    assert world.queue.cycle.backfill.reservation is not None
    assert world.queue.cycle.backfill.reservation.from_s == pytest.approx(want, rel=0.001)


def test_the_region_where_it_starts_first_is_chosen() -> None:
    """By expected ends, over all regions."""
    world = World(fleet(cluster("east-1", 1), cluster("west-1", 1)), EASY)
    world.submit(_for(200.0, gpus=8), _for(100.0, gpus=8))
    slow, soon = (world.jobs[j].region for j in ("j1", "j2"))
    world.submit(_for(10.0, gpus=8))
    reservation = world.queue.cycle.backfill.reservation
    assert reservation is not None
    assert (reservation.region, reservation.from_s) == (soon, 100.0)
    assert slow != soon


def test_room_near_its_data_is_kept_for_a_job_that_could_run_elsewhere() -> None:
    """A copy would take hours, and room comes in minutes: nobody takes that room first. Who should have gone may be late."""
    world = World(
        fleet(
            cluster("east-1", 1), cluster("west-1", 1),
            datasets=(dataset("d", "west", size_bytes=10**14),),
        ),
        profile(reserve_after_s=0.0, preemption=Preemption.NONE),
    )  # fmt: skip
    (first,) = world.submit(_for(100.0, gpus=8, datasets=("d",)))
    assert world.jobs[first].region == "west"
    (gang,) = world.submit(_for(50.0, gpus=8, datasets=("d",)))
    reservation = world.queue.cycle.backfill.reservation
    assert reservation is not None
    assert (reservation.job, reservation.region, reservation.from_s) == (gang, "west", 100.0)
    world.advance(100.0 + REFRESH_S)
    later = world.queue.cycle.backfill.reservation
    assert later is not None
    assert (later.job, later.from_s > 100.0) == (gang, True)
    world.finish(first)
    assert (world.states()[gang], world.jobs[gang].region) == ("RUNNING", "west")
    assert _kept_for(world) is None


def test_a_reservation_is_made_again_after_a_restart() -> None:
    """It is not written down: the first that finds no room has it again."""
    world = _world()
    world.submit(_for(100.0, gpus=6, count=2), _for(50.0, gpus=8, count=2))
    before = world.queue.cycle.backfill.reservation
    world.restart()
    assert world.queue.cycle.backfill.reservation == before


def test_explain_tells_what_is_kept_and_until_when() -> None:
    """The gang's expected start, its hosts; and whom a small job waits for."""
    world = _world()
    world.submit(_for(100.0, gpus=6, count=2), _for(50.0, gpus=8, count=2), _for(500.0))
    placers = world.machines.placers
    gang = explain_job(world.queue, placers, world.jobs["j2"], world.now)
    assert gang.expected_start_s == 100.0
    assert "kept for it in east/east-1 (east-1-0, east-1-1)" in gang.summary
    small = explain_job(world.queue, placers, world.jobs["j3"], world.now)
    assert "room in east is kept for j2" in small.summary
    assert small.plans == ()
    assert small.expected_start_s is None


def test_room_that_is_no_longer_kept_is_offered_again() -> None:
    """A job that ranks before the gang was refused for what is kept; then that moves elsewhere."""
    world = _world(options=profile(reserve_after_s=0.0, preemption=Preemption.NONE))
    first, _, early = world.submit(_for(100.0, gpus=4), _for(50.0, gpus=6), _for(200.0, gpus=2))
    (gang,) = world.submit(_for(50.0, gpus=8))
    assert _kept_for(world) == gang
    (critical,) = world.submit(_for(1_000.0, gpus=4, band=Band.CRITICAL))
    assert world.states()[critical] == "PENDING"
    before = world.queue.cycle.backfill.reservation
    world.finish(early)
    world.advance(REFRESH_S)  # it is not made anew more often
    after = world.queue.cycle.backfill.reservation
    assert before is not None
    assert after is not None
    assert before.seats != after.seats
    assert world.states()[critical] == "RUNNING"
    assert world.jobs[critical].hosts == world.jobs[first].hosts


def test_the_moment_that_was_waited_for_is_not_missed_by_a_rounding() -> None:
    """Of some times t, t + 1800 - t is less than 1800: asked again at that very moment, and again, for ever."""
    submit_s, after_s = 65_159.297272, 1_800.0
    assert (submit_s + after_s) - submit_s < after_s
    world = World(fleet(cluster("east-1", 1)), profile(reserve_after_s=after_s))
    world.submit(job(gpus=8, preemptible=False))
    world.now = submit_s
    world.submit(job(gpus=8))
    world.advance(after_s + 1.0)
    assert _kept_for(world) == "j2"
