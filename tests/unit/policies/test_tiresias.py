"""Tiresias: queues by attained service, the Gittins index, starved jobs, and who is placed together."""

import random

import numpy as np
import pytest

from tests.support.build import cluster, fleet, job
from tests.support.world import World
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.errors import InvalidInput
from topmast.model.job import Band, JobSpec, Level, Topology
from topmast.model.states import HOLDING
from topmast.policies.gittins_index import index_of
from topmast.policies.registry import load_profile

GPUS = 16
ENDS = (50.0, 400.0)
QUEUES = {"queues.thresholds_gpu_s": "[50, 400]", "rerank_interval_s": "0.001"}


def _world(profile: str = "tiresias-las", hosts: int = 2, **more: str) -> World:
    options = {**QUEUES, **{key.replace("__", "."): value for key, value in more.items()}}
    return World(fleet(cluster("east-1", hosts)), load_profile(profile, options))


def _gang(name: str, gpus: int, **more: object) -> JobSpec:
    """Tasks of one GPU each: it fits wherever enough GPUs are free."""
    return job(name, **{"gpus": 1, "count": gpus, **more})  # type: ignore[arg-type]


def _running(world: World) -> list[str]:
    return sorted(r.id for r in world.jobs.values() if r.state in HOLDING)


def _rank(world: World, record: JobRecord) -> tuple[float, ...]:
    """Queue, running or not, then first start or since when it waits: said anew, by hand."""
    ran_s = 0.0 if record.start_s is None else world.now - record.start_s
    attained = (record.held_s + ran_s) * record.spec.tasks
    queue = sum(attained >= end - 0.01 for end in ENDS)
    if record.start_s is not None:
        assert record.first_start_s is not None
        return (queue, 0, record.first_start_s, record.submit_s, record.number)
    since_s = record.submit_s if record.stopped_s is None else record.stopped_s
    return (queue, 1, since_s, record.submit_s, record.number)


def _prefix(world: World) -> list[str]:
    """Those who run if GPUs are handed out anew in order, passing over what does not fit."""
    free, chosen = GPUS, []
    alive = [r for r in world.jobs.values() if not r.finished]
    for record in sorted(alive, key=lambda r: _rank(world, r)):
        if record.spec.tasks <= free:
            free -= record.spec.tasks
            chosen.append(record.id)
    return sorted(chosen)


@pytest.mark.parametrize("seed", range(6))
def test_the_running_set_is_the_greedy_prefix_of_the_queues(seed: int) -> None:
    """Whatever arrives, ends, and sinks; bands and durations do not count."""
    rng = random.Random(seed)
    world = _world()
    for number in range(40):
        gpus = rng.choice((1, 1, 2, 4, 8, 12, 16))
        world.submit(_gang(f"job-{number}", gpus, band=rng.choice(list(Band))))
        assert _running(world) == _prefix(world)
        world.advance(float(rng.randrange(1, 20)))
        assert _running(world) == _prefix(world), "somebody sank, and nobody noticed"
        if rng.random() < 0.4:
            world.finish(rng.choice(_running(world)))
            assert _running(world) == _prefix(world)
        if rng.random() < 0.1:
            world.restart()
    assert any(record.preemptions for record in world.jobs.values())


def test_a_job_that_sinks_makes_room_at_once() -> None:
    """On the very second at which its service reaches the threshold: 16 GPUs x 4 s > 50."""
    world = _world()
    world.submit(_gang("old", 16))
    world.submit(_gang("new", 16))
    world.advance(3)
    assert _running(world) == ["j1"]
    world.advance(1)
    assert _running(world) == ["j2"]


def test_within_a_queue_nobody_stops_those_who_run() -> None:
    """Both are in the second queue, and the one that started first waits until the other sinks."""
    world = _world()
    world.submit(_gang("first", 16))
    world.advance(5)
    world.submit(_gang("second", 16))
    assert _running(world) == ["j2"]
    world.advance(10)
    assert _running(world) == ["j2"], "160 GPU-seconds: in the queue of the first, and goes on"
    world.advance(20)
    assert _running(world) == ["j1"], "480: it sank to the last"


def test_by_first_start_the_older_one_goes_first() -> None:
    """The other order inside a queue stops those who run for one who started earlier."""
    world = _world(queues__within="first-start")
    world.submit(_gang("first", 16))
    world.advance(5)
    world.submit(_gang("second", 16))
    world.advance(5)
    assert _running(world) == ["j1"]


# --- starved jobs -----------------------------------------------------------------------------------


def test_a_starved_job_rises_to_the_top() -> None:
    """It ran for 5 s, and with a knob of 4 waits for 20 s at most; then its service counts anew."""
    world = _world(queues__promote_knob="4")
    world.submit(_gang("starved", 16))
    world.advance(5)
    world.submit(*(_gang(f"new-{i}", 16) for i in range(20)))
    for _ in range(6):
        world.advance(3)
    assert world.jobs["j1"].promotions == 0
    world.advance(3)
    starved = world.jobs["j1"]
    assert starved.promotions == 1
    assert starved.uncounted_s == starved.held_s
    world.restart()
    assert world.jobs["j1"].promotions == 1


def test_without_a_knob_it_waits_for_ever() -> None:
    """As published for the simulations."""
    world = _world()
    world.submit(_gang("starved", 16))
    world.advance(5)
    world.submit(*(_gang(f"new-{number}", 16) for number in range(31)))
    for _ in range(30):
        world.advance(3)
        world.finish(_running(world)[0])
    assert world.jobs["j1"].epoch == 1


# --- the Gittins index -------------------------------------------------------------------------------


def _textbook(total: list[float], quantum: float, after: int) -> float:
    """The definition: every look-ahead, every job that lasted longer than this, one by one."""
    alive = [s for s in total if s > after * quantum]
    best = 0.0
    for ahead in range(1, int(max(total) / quantum) + 2 - after + 1):
        until = (after + ahead) * quantum
        ends = sum(s <= until for s in alive)
        service = sum(min(s, until) - after * quantum for s in alive)
        best = max(best, ends / service if service else 0.0)
    return best


@pytest.mark.parametrize("seed", range(10))
def test_the_index_is_that_of_the_textbook(seed: int) -> None:
    """Found by a hull instead of by trying every look-ahead."""
    rng = random.Random(seed)
    total = [rng.choice((5.0, 30.0, 31.0, 90.0)) * rng.choice((1, 1, 2, 20)) for _ in range(30)]
    index = index_of(np.array(total), 10.0)
    for after in range(len(index) - 1):
        assert index[after] == pytest.approx(_textbook(total, 10.0, after)), after


def test_the_largest_index_goes_first() -> None:
    """Jobs take 60 or 1,000 GPU-seconds: one that had 50 is likelier to end soon than one that had 100."""
    world = _world(
        "tiresias-gittins",
        queues__thresholds_gpu_s="[10]",
        gittins__quantum_gpu_s="10",
        gittins__known_gpu_s="[60, 60, 1000, 1000]",
    )
    world.submit(_gang("long", 16))
    world.advance(100 / 16)
    world.submit(_gang("soon over", 16))
    world.advance(40 / 16)
    assert _running(world) == ["j2"]
    world.advance(40 / 16)
    assert _running(world) == ["j1"], "had it been one of 60, it would have ended"


def test_the_distribution_is_learnt_from_jobs_that_succeeded() -> None:
    """And is known again after a restart, from the snapshot."""
    world = _world("tiresias-gittins", gittins__quantum_gpu_s="10")
    for _ in range(3):
        (name,) = world.submit(_gang("short", 2))
        world.advance(30)
        world.finish(name)
    queue = world.machines.queue
    assert queue.backlog.attained_service.total_gpu_s == pytest.approx([60.0] * 3)
    snapshot = queue.snapshot()
    other = _world("tiresias-gittins").machines.queue
    other.restore(snapshot)
    assert other.backlog.attained_service.total_gpu_s == queue.backlog.attained_service.total_gpu_s


# --- placement by skew -------------------------------------------------------------------------------


def _hosts(world: World, number: str) -> int:
    return len(world.jobs[number].hosts)


def _scattered(**more: str) -> World:
    """Four hosts of which each has two GPUs free."""
    world = _world("tiresias-las", hosts=4, scoring="skew", score__locality="100", **more)
    world.submit(*(job(f"blocker-{i}", gpus=6, preemptible=False) for i in range(4)))
    return world


def test_a_skewed_job_waits_for_one_host_and_others_do_not() -> None:
    """One large tensor: its tasks must sit together."""
    world = _scattered()
    skewed, free, unknown = world.submit(
        _gang("vgg", 4, skew=0.74), _gang("resnet", 4, skew=0.1), _gang("unknown", 2)
    )
    assert _running(world)[-2:] == [free, unknown]
    assert _hosts(world, free) == 2
    world.finish("j1")
    assert _hosts(world, skewed) == 1


def test_without_strictness_it_takes_what_there_is() -> None:
    """A price, not a rule."""
    world = _scattered(skew__strict="false")
    (skewed,) = world.submit(_gang("vgg", 4, skew=0.74))
    assert _hosts(world, skewed) == 2
    world.finish(skewed)
    world.finish("j1")
    (skewed,) = world.submit(_gang("vgg", 4, skew=0.74))
    assert _hosts(world, skewed) == 1


def test_what_no_host_could_hold_is_placed_as_near_as_can_be() -> None:
    """16 GPUs take two hosts of eight, and are not refused."""
    world = _world("tiresias-las", hosts=4, scoring="skew")
    (large,) = world.submit(_gang("vgg", 16, skew=0.74))
    assert _hosts(world, large) == 2
    own = Topology(required=Level.RACK)
    assert (
        world.machines.queue.backlog.topology_policy.topology_of(
            _gang("x", 4, skew=0.9, topology=own)
        )
        == own
    )


# --- bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("queues.thresholds_gpu_s", "[7200, 3250]"),
        ("queues.thresholds_gpu_s", "[0, 3250]"),
        ("queues.thresholds_gpu_s", "[.nan]"),
        ("queues.thresholds_gpu_s", "3250"),
        ("queues.promote_knob", "0"),
        ("queues.promote_knob", "-1"),
        ("queues.within", "submission"),
        ("gittins.quantum_gpu_s", "0"),
        ("gittins.quanta_ahead", "0"),
        ("gittins.known_gpu_s", "[60, -1]"),
        ("skew.threshold", "-0.1"),
    ],
)
def test_options_out_of_place_are_refused_by_name(key: str, value: str) -> None:
    """Before anything starts."""
    with pytest.raises(InvalidInput, match=key.split(".")[1]):
        load_profile("tiresias-gittins", {key: value, "scoring": "skew"})
