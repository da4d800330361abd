"""With `rounds_s` jobs are tried at multiples of it, and at no other time."""

from tests.support.build import cluster, fleet, job, profile
from tests.support.world import World
from topmast.model.plan import Plan
from topmast.model.states import JobState
from topmast.policies.options import Preemption
from topmast.service.explain import explain_job


def _world() -> World:
    """8 GPUs; every 100 s; it is 130 s, 30 s past a round."""
    world = World(fleet(cluster("east-1", hosts=1)), profile(rounds_s=100.0))
    world.advance(130.0)
    return world


def test_a_job_waits_for_the_next_round() -> None:
    """The server sleeps until then, and the job says why it was not tried."""
    world = _world()
    world.submit(job("one", gpus=8))
    world.settle()
    assert world.queue.next_wakeup_s() == 200.0
    [record] = world.jobs.values()
    assert record.plan is None
    said = explain_job(world.queue, {"east": world.placer("east")}, record, world.now)
    assert said.summary == "jobs are tried every 100 s"
    assert [plan.cluster for plan in said.plans] == ["east-1"], "where it would start"
    world.advance(69.0)
    assert record.plan is None
    world.advance(1.0)
    assert record.plan is not None


def test_what_becomes_free_is_idle_until_the_next_round() -> None:
    """And the job that comes first in order has it then, whichever came first to the queue."""
    world = _world()
    world.submit(job("one", gpus=8, tenant="ops"))
    world.advance(70.0)
    world.submit(job("two", gpus=8), job("three", gpus=8))
    one, two, three = world.jobs
    world.start(one)
    world.advance(50.0)
    world.finish(one)
    world.settle()
    assert world.jobs[two].plan is None
    world.advance(49.0)
    assert world.jobs[two].plan is None
    world.advance(1.0)
    assert (world.jobs[two].plan is None, world.jobs[three].plan is None) == (False, True)


def test_rounds_without_jobs_wake_nothing_and_begin_nothing() -> None:
    """A job that comes long after the last round waits for a round all the same."""
    world = _world()
    assert world.queue.next_wakeup_s() is None
    world.advance(1_025.0)
    world.submit(job("one", gpus=8))
    world.settle()
    [record] = world.jobs.values()
    assert record.plan is None
    world.advance(45.0)
    assert record.plan is not None


def test_after_a_restart_a_round_begins_at_once() -> None:
    """Nobody knows which rounds there were: one begins at once, and the next at its time."""
    world = _world()
    world.submit(job("one", gpus=8))
    world.snapshot()
    world.restart()
    world.settle()
    [record] = world.jobs.values()
    assert record.plan is not None
    world.advance(1.0)
    world.submit(job("two", gpus=4, tenant="ops"))
    world.cancel(record.id)
    world.settle()
    assert world.queue.next_wakeup_s() == 200.0


def _preemptive() -> World:
    """8 GPUs, two jobs of 4 that run for long, and the shortest goes first; it is 200 s."""
    options = {"order": "remaining-time", "preemption": Preemption.RANK, "rounds_s": 100.0}
    world = World(fleet(cluster("east-1", hosts=1)), profile(**options), obedient=False)
    lengths_s = {"longest": 10_000.0, "long": 9_000.0}
    world.submit(*(job(name, gpus=4, duration_s=length) for name, length in lengths_s.items()))
    world.advance(100.0)
    world.start("j1")
    world.start("j2")
    world.submit(job("one", gpus=2, duration_s=60.0), job("two", gpus=2, duration_s=70.0))
    world.advance(99.0)
    return world


def _plan(world: World, job: str) -> Plan | None:
    return world.jobs[job].plan


def test_what_a_stop_leaves_over_is_for_the_next_in_order() -> None:
    """The longest stops for the first of two; the second has the rest of its GPUs, and the other goes on."""
    world = _preemptive()
    world.advance(1.0)
    first = world.jobs["j3"].plan
    assert first is not None
    assert [victim.job for victim in first.victims] == ["j1"]
    world.advance(5.0)
    assert _plan(world, "j4") is None
    assert world.jobs["j2"].state is JobState.RUNNING
    world.finish("j1", 143)
    second = _plan(world, "j4")
    assert second is not None
    assert second.victims == ()


def test_a_place_that_nobody_wants_any_more_is_not_waited_for() -> None:
    """Before the longest has stopped, the job that it stops for is cancelled: the next is tried."""
    world = _preemptive()
    world.advance(1.0)
    assert world.jobs["j4"].plan is None
    world.cancel("j3")
    world.settle()
    assert world.jobs["j4"].plan is not None
