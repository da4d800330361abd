"""SRTF and SRSF: whatever happens, those run who would if the order alone handed out the GPUs."""

import random

import pytest

from tests.support.build import cluster, fleet, job
from tests.support.world import World
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.job import Band, JobSpec
from topmast.model.states import HOLDING, WAITING
from topmast.policies.registry import load_profile

GPUS = 16


def _world(profile: str) -> World:
    return World(fleet(cluster("east-1", 2)), load_profile(profile))


def _for(name: str, duration_s: float, gpus: int, **more: object) -> JobSpec:
    """A gang of tasks with one GPU each: it fits wherever enough GPUs are free."""
    spec = {"gpus": 1, "count": gpus, "duration_s": duration_s, **more}
    return job(name, **spec)  # type: ignore[arg-type]


def _left_s(world: World, record: JobRecord) -> float:
    assert record.spec.duration_s is not None
    ran_s = 0.0 if record.start_s is None else world.now - record.start_s
    return max(0.0, record.spec.duration_s - record.kept_s - ran_s)


def _prefix(world: World, *, by_service: bool) -> list[str]:
    """The greedy prefix of the order, passing over what does not fit."""

    def key(record: JobRecord) -> tuple[float, float, int]:
        weight = record.spec.tasks if by_service else 1
        return (_left_s(world, record) * weight, record.submit_s, record.number)

    free, chosen = GPUS, []
    for record in sorted((r for r in world.jobs.values() if not r.finished), key=key):
        if record.spec.tasks <= free:
            free -= record.spec.tasks
            chosen.append(record.id)
    return sorted(chosen)


def _running(world: World) -> list[str]:
    return sorted(r.id for r in world.jobs.values() if r.state in HOLDING)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("profile", "by_service"), [("srtf", False), ("srsf", True)])
def test_the_running_set_is_the_greedy_prefix(profile: str, by_service: bool, seed: int) -> None:
    """Arrivals, ends and checkpoints in any sequence; bands do not count."""
    rng = random.Random(seed)
    world = _world(profile)
    for number in range(40):
        duration_s, gpus = float(rng.randrange(1, 500)), rng.choice((1, 1, 2, 4, 8, 12, 16))
        world.submit(_for(f"job-{number}", duration_s, gpus, band=rng.choice(list(Band))))
        assert _running(world) == _prefix(world, by_service=by_service)
        world.advance(float(rng.randrange(20)))
        running = _running(world)
        if rng.random() < 0.5:
            world.checkpoint(rng.choice(running), number)
        if rng.random() < 0.4:
            world.finish(rng.choice(running))
            assert _running(world) == _prefix(world, by_service=by_service)
    assert any(record.preemptions for record in world.jobs.values())
    waiting = [record for record in world.jobs.values() if record.state in WAITING]
    assert waiting
    assert all(record.plan is None for record in waiting)


def test_the_last_in_order_is_stopped_first() -> None:
    """Of those that rank behind, no more go than must."""
    world = _world("srtf")
    world.submit(_for("b", 200.0, 8), _for("d", 400.0, 4), _for("c", 300.0, 4))
    world.advance(10)
    world.submit(_for("a", 100.0, 4))
    assert world.states() == {"j1": "RUNNING", "j2": "PENDING", "j3": "RUNNING", "j4": "RUNNING"}


def test_time_and_service_order_differently() -> None:
    """A short large job goes first by time, a long small one by service."""
    for profile, want in (("srtf", "large"), ("srsf", "small")):
        world = _world(profile)
        world.submit(_for("small", 200.0, 1), _for("large", 100.0, 16))
        assert [world.jobs[j].spec.name for j in _running(world)] == [want]


def test_what_may_not_be_stopped_is_not() -> None:
    """Such a job keeps its place whatever comes."""
    world = _world("srtf")
    world.submit(_for("long", 1_000.0, 16, preemptible=False))
    world.submit(_for("short", 1.0, 1))
    assert _running(world) == ["j1"]


def test_a_job_that_is_nearly_done_is_not_stopped() -> None:
    """What has run counts: 20 s are left of it, less than of the one that comes."""
    world = _world("srtf")
    world.submit(_for("old", 100.0, 16))
    world.advance(80)
    world.submit(_for("new", 30.0, 16))
    assert _running(world) == ["j1"]
    world.restart()
    assert _running(world) == ["j1"]
    world.submit(_for("newest", 10.0, 16))
    assert _running(world) == ["j3"]
