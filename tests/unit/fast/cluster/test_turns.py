"""Turns on the same GPUs: who runs, who stands still, and what happens to them meanwhile."""

from typing import Any

import pytest

from tests.support.build import cluster, fleet, job, profile
from tests.support.world import World
from topmast.model import messages as m
from topmast.model.job import MILLI, Accelerator, Resources
from topmast.model.states import JobState
from topmast.policies.options import Preemption, RebalanceOptions, SliceOptions
from topmast.service import fleet as views

QUANTUM_S = 60.0


def world_of(
    hosts: int = 1, gpus: int = 8, layers: int = 3, obedient: bool = True, **options: Any
) -> World:
    """One cluster, whose gangs take turns."""
    options.setdefault("preemption", Preemption.NONE)
    slices = SliceOptions(layers=layers, quantum_s=QUANTUM_S)
    chosen = profile(slices=slices, order="submission", **options)
    return World(fleet(cluster("east-a", hosts, gpus)), chosen, obedient=obedient)


def going(world: World) -> list[str]:
    """Who has processes that do not stand still."""
    return sorted(world.engines["east-a"].going())


def stops(world: World, job_id: str) -> list[float]:
    """The graces with which the engine was told to stop a job."""
    told = [sent.message for sent in world.sent if isinstance(sent.message, m.StopTasks)]
    return [message.grace_s for message in told if message.job == job_id]


def submit(world: World, gpus: int, count: int = 1, **more: Any) -> str:
    """One more job."""
    return str(world.submit(job(f"job-{len(world.jobs)}", gpus, count, **more))[0])


def check_rebuilt(world: World) -> None:
    """A process that dies now is followed by one that knows the same."""
    rebuilt = world.rebuilt()
    assert {a: x.snapshot() for a, x in rebuilt.addressed()} == world.blobs()


def test_newcomers_run_at_once_and_turns_go_round() -> None:
    """Three jobs want all GPUs: each newcomer has them first, then each has a minute of three."""
    world = world_of()
    jobs = []
    for _ in range(3):
        jobs.append(submit(world, 8))
        assert going(world) == [jobs[-1]]
        assert world.state(jobs[-1]) is JobState.RUNNING
        world.advance(10)
    assert world.states() == {"j1": "SUSPENDED", "j2": "SUSPENDED", "j3": "RUNNING"}
    seen: dict[str, int] = {}
    for _ in range(30):
        world.advance(QUANTUM_S)
        (one,) = going(world)
        seen[one] = seen.get(one, 0) + 1
    assert sorted(seen.values()) == [10, 10, 10]
    check_rebuilt(world)


def test_there_is_no_fourth_where_there_are_three_layers() -> None:
    """Who finds no layer waits in the queue, and comes when one of the three is over."""
    world = world_of()
    jobs = [submit(world, 8) for _ in range(4)]
    assert world.state(jobs[3]) is JobState.PENDING
    world.finish(jobs[0])
    assert going(world) == [jobs[3]]


def test_a_gang_runs_whole_or_not_at_all() -> None:
    """A gang over two hosts and a job on one of them never run together; a job beside them always does."""
    world = world_of(hosts=2, gpus=4)
    wide = submit(world, 4, count=2)
    narrow = submit(world, 2)
    for _ in range(12):
        world.advance(QUANTUM_S)
        assert going(world) in ([wide], [narrow])
    other = submit(world, 2)
    world.advance(QUANTUM_S)
    seen = []
    for _ in range(12):
        world.advance(QUANTUM_S)
        seen.append(tuple(going(world)))
    assert set(seen) == {(wide,), (narrow, other)}, "two narrow ones have room for one another"


def test_idle_gpus_are_used_before_any_is_shared() -> None:
    """Jobs that fit side by side all run, all the time, and nothing is suspended."""
    world = world_of(hosts=2, gpus=2)
    jobs = [submit(world, 1) for _ in range(4)]
    world.advance(5 * QUANTUM_S)
    assert going(world) == jobs
    assert any(isinstance(sent.message, m.StartGang) for sent in world.sent)
    assert not any(isinstance(sent.message, m.SuspendGang) for sent in world.sent)


def test_without_layers_nobody_takes_turns() -> None:
    """One layer is what there always was: the second job waits in the queue."""
    world = world_of(layers=1)
    submit(world, 8)
    assert world.state(submit(world, 8)) is JobState.PENDING


def test_a_suspended_job_has_its_gpus_while_it_stops() -> None:
    """Whoever stops needs its GPUs to save its work: the other stands still until it is gone."""
    world = world_of(obedient=False)
    first = submit(world, 8)
    world.start(first)
    second = submit(world, 8)
    world.start(second)
    assert world.state(first) is JobState.SUSPENDED
    world.cancel(first)
    assert world.state(first) is JobState.CANCELLING
    assert world.state(second) is JobState.SUSPENDED
    check_rebuilt(world)
    world.finish(first, 143)
    assert world.state(first) is JobState.CANCELLED
    assert world.state(second) is JobState.RUNNING


def test_suspended_jobs_that_stop_have_their_gpus_one_after_the_other() -> None:
    """Three are told to stop at once: no two hold the same GPUs, and each has its whole grace when it has them."""
    world = world_of(obedient=False)
    jobs = []
    for _ in range(3):
        jobs.append(submit(world, 8))
        world.start(jobs[-1])
    world.cancel(*jobs)
    seen = []
    for _ in jobs:
        (one,) = going(world)
        world.advance(40.0)
        assert stops(world, one) == [30.0], "it is not hurried for the time that it stood still"
        check_rebuilt(world)
        world.finish(one, 143)
        seen.append(one)
    assert sorted(seen) == jobs
    assert set(world.states().values()) == {"CANCELLED"}


def test_who_waits_for_the_gpus_of_one_that_starts_can_be_cancelled() -> None:
    """It was never started, and ends without a word to the engine."""
    world = world_of(obedient=False)
    first = submit(world, 8)
    second = submit(world, 8)
    assert world.engines["east-a"].of(second, 1) == [], (
        "held back: one that starts is not suspended"
    )
    check_rebuilt(world)
    world.cancel(second)
    assert world.state(second) is JobState.CANCELLED
    world.start(first)
    assert world.state(first) is JobState.RUNNING


def test_who_was_held_back_starts_when_the_other_is_up() -> None:
    """Both come at once; the second starts as soon as the first can be suspended."""
    world = world_of(obedient=False)
    first, second = submit(world, 8), submit(world, 8)
    world.start(first)
    assert world.state(first) is JobState.SUSPENDED
    world.start(second)
    assert world.state(second) is JobState.RUNNING


def test_a_host_that_is_lost_takes_the_suspended_ones_with_it() -> None:
    """They start again elsewhere, or when it is back."""
    world = world_of()
    jobs = [submit(world, 8) for _ in range(2)]
    world.lose("east-a-0")
    assert set(world.states().values()) == {"RECOVERING"}
    world.revive("east-a-0")
    world.advance(QUANTUM_S)
    assert len(going(world)) == 1
    assert {world.jobs[job].epoch for job in jobs} == {2}


def test_a_job_may_end_while_it_stands_still() -> None:
    """Its last task ended just before it was told to: it has succeeded."""
    world = world_of()
    first, _ = submit(world, 8), submit(world, 8)
    assert world.state(first) is JobState.SUSPENDED
    world.finish(first)
    assert world.state(first) is JobState.SUCCEEDED


def test_a_time_limit_counts_turns_alone() -> None:
    """Of two jobs with ten minutes each, each has them: it is 20 minutes before one is stopped."""
    world = world_of()
    jobs = [submit(world, 8, time_limit_s=600.0) for _ in range(2)]
    world.advance(1_000)
    assert {world.state(job) for job in jobs} == {JobState.RUNNING, JobState.SUSPENDED}
    world.advance(300)
    assert {world.state(job) for job in jobs} == {JobState.FAILED}
    assert sum(world.jobs[job].held_s for job in jobs) == pytest.approx(1_200, abs=QUANTUM_S)


def test_what_was_held_leaves_out_what_others_had() -> None:
    """After an hour of turns each of two jobs has held its GPUs for half of it."""
    world = world_of()
    jobs = [submit(world, 8) for _ in range(2)]
    world.advance(3_600)
    for one in jobs:
        world.finish(one)
    held_s = [world.jobs[one].held_s for one in jobs]
    assert sum(held_s) == pytest.approx(3_600)
    assert abs(held_s[0] - held_s[1]) <= QUANTUM_S


def test_a_restart_says_again_who_stands_still() -> None:
    """The new process repeats its orders, and turns go on."""
    world = world_of()
    jobs = [submit(world, 8) for _ in range(2)]
    sent = len(world.sent)
    world.restart()
    again = [s.message for s in world.sent[sent:]]
    assert m.SuspendGang(jobs[0], 1) in again
    before = going(world)
    world.advance(QUANTUM_S)
    assert going(world) != before
    check_rebuilt(world)


def test_a_restart_without_turns_lets_all_end() -> None:
    """The profile has one layer from now on: who was placed above goes on in turns to its end."""
    world = world_of()
    jobs = [submit(world, 8) for _ in range(2)]
    world.options = profile(order="submission", preemption=Preemption.NONE)
    world.restart()
    world.advance(2 * QUANTUM_S)
    assert len(going(world)) == 1
    for one in jobs:
        world.finish(one)
    assert {world.state(one) for one in jobs} == {JobState.SUCCEEDED}


def test_people_see_gpus_once_and_names_that_they_know() -> None:
    """Views count every GPU once, free where no layer has it, and name hosts as the fleet file does."""
    world = world_of(hosts=2, gpus=4)
    jobs = [submit(world, 4), submit(world, 4), submit(world, 4)]
    placers = world.machines.placers
    (region,) = views.regions(world.queue, placers)
    assert (region.hosts, region.clusters, region.gpus, region.free_gpus) == (2, 1, 8, 0)
    (seen,) = views.clusters(world.queue, placers)
    assert (seen.name, seen.gpus, seen.running_jobs) == ("east-a", 8, 3)
    hosts = views.hosts(placers, world.now)
    assert [host.name for host in hosts] == ["east-a-0", "east-a-1"]
    assert sorted(job for host in hosts for job in host.jobs) == jobs
    assert {host for job in jobs for host in world.jobs[job].hosts} == {"east-a-0", "east-a-1"}
    assert {world.jobs[job].cluster for job in jobs} == {"east-a"}
    assert world.jobs[jobs[2]].plan.time_slice == 1  # type: ignore[union-attr]


TRIES: dict[str, Any] = {
    "pack": "greedy",
    "rebalance": "introspective",
    "rebalancing": RebalanceOptions(retry_s=600.0),
}


def told(world: World) -> list[str]:
    """What people are told about sharing."""
    return [r.text for r in world.journal.rows if r.kind in ("packed", "unpacked")]


@pytest.mark.parametrize(
    ("beside", "stays"), [(0.8, True), (0.53, True), (0.5, False), (0.0, False)]
)
def test_a_pair_stays_together_if_it_does_more_than_in_turns(beside: float, stays: bool) -> None:
    """Two are tried at once after two quanta each, for one; what their own steps say decides."""
    world = world_of(gpus=1, **TRIES)
    world.engines["east-a"].speed = lambda job, others: 10.0 * (beside if others else 1.0)
    jobs = [submit(world, 1) for _ in range(2)]
    world.advance(8 * QUANTUM_S)
    texts = told(world)
    assert any("on trial" in text for text in texts)
    assert any("kept" in text for text in texts) is stays
    assert any("taken back" in text for text in texts) is not stays
    assert (going(world) == jobs) is stays
    check_rebuilt(world)
    before = len(told(world))
    world.advance(4 * QUANTUM_S)
    assert len(told(world)) == before, "not again so soon"
    world.advance(600)
    assert (len(told(world)) > before) is not stays


def test_a_pair_that_gets_worse_is_parted() -> None:
    """Speeds are measured in each quantum as long as two are together."""
    world = world_of(gpus=1, **TRIES)
    engine = world.engines["east-a"]
    engine.speed = lambda job, others: 9.0 if others else 10.0
    jobs = [submit(world, 1) for _ in range(2)]
    world.advance(8 * QUANTUM_S)
    assert going(world) == jobs
    engine.speed = lambda job, others: 3.0 if others else 10.0
    world.advance(3 * QUANTUM_S)
    assert len(going(world)) == 1


def test_a_pair_has_the_turns_of_two() -> None:
    """Two of three go well together: they have two turns in three, and the third as many as without them."""
    world = world_of(gpus=1, **TRIES)
    jobs = [submit(world, 1) for _ in range(3)]
    crowded = {jobs[0], jobs[1]}
    world.engines["east-a"].speed = lambda job, others: (
        10.0 * (1.0 if not others else 0.9 if {job, *others} == crowded else 0.1)
    )
    world.advance(30 * QUANTUM_S)
    seen: dict[tuple[str, ...], int] = {}
    for _ in range(30):
        world.advance(QUANTUM_S)
        now = tuple(going(world))
        seen[now] = seen.get(now, 0) + 1
    assert seen == {tuple(jobs[:2]): 20, (jobs[2],): 10}
    check_rebuilt(world)


def test_when_one_of_a_pair_is_over_the_other_is_alone() -> None:
    """It may be tried beside somebody else then."""
    world = world_of(gpus=1, **TRIES)
    world.engines["east-a"].speed = lambda job, others: 9.0 if others else 10.0
    jobs = [submit(world, 1) for _ in range(2)]
    world.advance(8 * QUANTUM_S)
    world.finish(jobs[0])
    assert told(world)[-1] == "no longer shares its GPUs: the other is over"
    third = submit(world, 1)
    world.advance(12 * QUANTUM_S)
    assert going(world) == sorted([jobs[1], third])
    check_rebuilt(world)


def test_a_crash_during_a_trial_ends_it_without_a_verdict() -> None:
    """What was being measured is lost with the process; the pair is judged by new measurements."""
    world = world_of(gpus=1, **TRIES)
    world.engines["east-a"].speed = lambda job, others: 9.0 if others else 10.0
    jobs = [submit(world, 1) for _ in range(2)]
    while not told(world):
        world.advance(QUANTUM_S)
    world.restart()
    world.advance(8 * QUANTUM_S)
    assert going(world) == jobs


def test_who_shares_moves_to_gpus_that_come_free() -> None:
    """Two share a host, another host comes free: one of them goes there by its checkpoint, to its end."""
    options = RebalanceOptions(migrate=True, migrate_after_s=60.0)
    world = world_of(hosts=2, gpus=4, rebalance="introspective", rebalancing=options)
    first, second, third = (submit(world, 4) for _ in range(3))
    world.advance(600)
    world.finish(second)
    world.advance(5)
    assert going(world) == [first, third]
    assert {world.jobs[job].hosts for job in (first, third)} == {("east-a-0",), ("east-a-1",)}
    assert sum(world.jobs[job].migrations for job in (first, third)) == 1
    check_rebuilt(world)


@pytest.mark.parametrize(
    ("speed", "moves"),
    [(2.0, True), (1.0, False), (0.5, False)],
    ids=["faster there", "as fast there", "slower there"],
)
def test_who_has_slow_gpus_moves_to_fast_ones_that_come_free(speed: float, moves: bool) -> None:
    """Nobody shares anything; a host of another model comes free, which is faster for this job or is not."""
    options = RebalanceOptions(migrate=True, migrate_after_s=60.0)
    chosen = profile(
        slices=SliceOptions(layers=3, quantum_s=QUANTUM_S), order="submission",
        preemption=Preemption.NONE, rebalance="introspective", rebalancing=options,
    )  # fmt: skip
    there = fleet(cluster("east-a", 1, 4, "A100"), cluster("east-b", 1, 4, "H100"))
    world = World(there, chosen)
    first = submit(world, 4, model="H100")
    either = Resources((Accelerator("A100", 4 * MILLI, 1.0), Accelerator("H100", 4 * MILLI, speed)))
    second = submit(world, 4, resources=either)
    assert world.jobs[second].hosts == ("east-a-0",)
    world.advance(600)
    world.finish(first)
    world.advance(5)
    assert world.jobs[second].hosts == (("east-b-0",) if moves else ("east-a-0",))
    assert world.jobs[second].migrations == int(moves)
    check_rebuilt(world)


def test_nobody_moves_that_would_gain_nothing() -> None:
    """Not while it is young, and not where moving is switched off."""
    for options in (
        RebalanceOptions(migrate=True, migrate_after_s=6_000.0),
        RebalanceOptions(migrate=False),
    ):
        world = world_of(hosts=2, gpus=4, rebalance="introspective", rebalancing=options)
        jobs = [submit(world, 4) for _ in range(3)]
        world.advance(600)
        world.finish(jobs[1])
        world.advance(5)
        assert len(going(world)) == 1
