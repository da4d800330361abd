"""Sweeps: one submission, a job for each setting, and no more of them under way than it may have."""

from __future__ import annotations

import pytest

from tests.support.build import cluster, fleet, job
from tests.support.invariants import check_all, check_dependencies
from tests.support.world import World
from topmast.fast.queue.backlog.backlog import Backlog
from topmast.fast.queue.cycle.state import QueueState
from topmast.fast.queue.jobs import sweeps
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.jobs.sweeps import Sweeps
from topmast.fast.queue.jobs.weights import Weights, bytes_of
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.dependency import After
from topmast.model.errors import InvalidInput
from topmast.model.job import Band
from topmast.model.reason import PendingReason
from topmast.model.sweep import Span, Sweep, SweepPart


def world_of(*more: object) -> World:
    """Sixteen GPUs."""
    return World(fleet(cluster("east-1")))


def seeds(count: int, at_once: int | None = None) -> Sweep:
    """A job for each of the first numbers."""
    return Sweep(span=Span(0, count - 1), variable="SEED", max_parallel=at_once)


def going(world: World) -> list[str]:
    """The jobs that run."""
    return [name for name, state in world.states().items() if state == "RUNNING"]


def test_a_sweep_becomes_a_job_for_each_setting() -> None:
    """The last variable changes fastest; each job knows its place; ids follow each other."""
    world = world_of()
    world.submit(job("before"))
    sweep = Sweep(matrix={"LR": ("0.1", "0.2"), "SEED": ("1", "2", "3")})
    assert world.submit(job("s", sweep=sweep, envs={"A": "b"})) == tuple(
        f"j{n}" for n in range(2, 8)
    )
    spec = world.jobs["j5"].spec
    assert spec.part == SweepPart("s2", 3, 6)
    assert spec.envs == {
        "A": "b", "LR": "0.2", "SEED": "1",
        "TOPMAST_SWEEP": "s2", "TOPMAST_SWEEP_INDEX": "3", "TOPMAST_SWEEP_SIZE": "6",
    }  # fmt: skip
    assert not spec.sweep
    assert world.submit(job("after")) == ("j8",)
    assert len(going(world)) == 8


def test_a_submission_is_expanded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions wait meanwhile: the log and the metrics take what the queue has made of it."""
    world, asked, setting = world_of(), list[int](), Sweep.setting

    def counted(sweep: Sweep, index: int) -> dict[str, str]:
        asked.append(index)
        return setting(sweep, index)

    monkeypatch.setattr(Sweep, "setting", counted)
    world.submit(job("before"), job("s", sweep=seeds(5)), job("after"))
    assert asked == list(range(5))
    assert world.meter.submitted.sums == {("default", "normal"): 7}
    told = [world.journal.history(f"j{number}")[0].text for number in range(1, 8)]
    assert [text.partition("; ")[2] for text in told] == [
        "", *(f"s2[{index}], of 5 jobs" for index in range(5)), "",
    ]  # fmt: skip


@pytest.mark.parametrize("paused", [False, True])
def test_the_jobs_of_a_sweep_wait_as_if_each_came_alone(
    monkeypatch: pytest.MonkeyPatch, paused: bool
) -> None:
    """The first is looked at for all: however many there are, others' requests wait for them."""

    def told(*, alike: bool) -> tuple[World, list[str]]:
        looked_at, add = list[str](), Backlog.add

        def added(backlog: Backlog, record: JobRecord, now: float) -> None:
            looked_at.append(record.id)
            add(backlog, record, now)

        with monkeypatch.context() as patched:
            patched.setattr(Backlog, "add", added)
            if not alike:
                patched.setattr(QueueState, "may_admit_alike", False)
            world = world_of()
            if paused:
                world.tell(ids.QUEUE, m.PauseTenant("default"))
            world.submit(job("before", gpus=4))
            world.submit(job("s", sweep=seeds(30)))
            world.submit(job("after", band=Band.HIGH))
        return world, looked_at

    together, looked_at = told(alike=True)
    alone, each = told(alike=False)
    assert len(dict.fromkeys(each)) == 32
    assert paused or list(dict.fromkeys(looked_at)) == ["j1", "j2", "j32"]
    assert together.states() == alone.states()
    assert together.blobs() == alone.blobs()
    order = [[(key[:-1], name) for key, name in world.queue.backlog.ranking.in_order()]
             for world in (together, alone)]  # fmt: skip
    assert order[0] == order[1]
    for world in (together, alone):
        check_all(world)


def test_the_journal_has_a_sweep_once_and_another_process_the_same_jobs() -> None:
    """However many jobs it becomes."""
    world = world_of()
    world.submit(job("s", gpus=8, count=2, sweep=seeds(3_000)))
    sizes = [len(record.event) for record in world.journal.written]
    assert max(sizes) < 2_000
    before = {name: record.spec for name, record in world.jobs.items()}
    world.restart()
    assert {name: record.spec for name, record in world.jobs.items()} == before


def test_a_key_is_good_for_the_whole_sweep() -> None:
    """A repetition is answered with the same ids."""
    world = world_of()
    first = world.submit(job("s", sweep=seeds(4)), key="k")
    assert world.submit(job("s", sweep=seeds(4)), key="k") == first
    assert len(world.jobs) == 4


def test_no_more_jobs_are_under_way_than_it_may_have() -> None:
    """The next in order goes when one has ended, no matter how, also in another process."""
    world = world_of()
    world.submit(job("s", max_restarts=0, sweep=seeds(6, at_once=2)))
    assert going(world) == ["j1", "j2"]
    verdict = world.queue.verdict_on(world.jobs["j3"])
    assert verdict is not None
    assert verdict.reason is PendingReason.WAITING_FOR_JOBS
    world.finish("j2")
    assert going(world) == ["j1", "j3"]
    told = [row.text for row in world.journal.history("j3") if row.kind == "dependency-met"]
    assert told == ["it is its turn in s1"]
    world.snapshot()
    world.restart()
    world.finish("j1", code=1)
    assert going(world) == ["j3", "j4"]
    world.cancel("j5")  # it has not had its turn
    assert going(world) == ["j3", "j4"]
    world.finish("j3")
    assert going(world) == ["j4", "j6"]
    world.finish("j4")
    world.finish("j6")
    sweep = world.queue.jobs.sweeps.records["s1"]
    assert sweep.has_ended
    assert {state.value: n for state, n in sweep.ended.items()} == {
        "SUCCEEDED": 4, "FAILED": 1, "CANCELLED": 1,
    }  # fmt: skip
    check_all(world)
    check_dependencies(world)


def test_a_preempted_job_keeps_its_turn_and_a_requeued_one_has_its_turn_again() -> None:
    """What waits again is still under way; one that was cancelled before its turn waits for it."""
    world = world_of()
    world.submit(job("s", sweep=seeds(4, at_once=1)))
    world.tell(ids.QUEUE, m.PreemptJobs(("j1",), "ann"))
    world.advance(60)
    assert going(world) == ["j1"]
    world.cancel("j2")
    world.finish("j1")
    assert going(world) == ["j3"]
    world.tell(ids.QUEUE, m.RequeueJobs(("j2",), "ann"))
    assert going(world) == ["j3"]
    check_dependencies(world)
    world.finish("j3")
    assert going(world) == ["j2"]
    world.finish("j2")
    assert going(world) == ["j4"]


def test_jobs_wait_for_a_whole_sweep() -> None:
    """For its success, or its end; each of its own jobs waits for what the sweep depends on."""
    world = world_of()
    world.submit(job("first"))
    world.submit(job("s", max_restarts=0, depends_on={"j1": After.OK}, sweep=seeds(3, at_once=2)))
    world.submit(job("good", depends_on={"s2": After.OK}), job("any", depends_on={"s2": After.ANY}))
    assert going(world) == ["j1"]
    world.finish("j1")
    assert going(world) == ["j2", "j3"]
    world.finish("j2")
    world.finish("j3", code=1)
    assert going(world) == ["j4"]
    world.finish("j4")
    assert world.states()["j5"] == "CANCELLED"
    assert "jobs that did not succeed" in world.jobs["j5"].cause
    assert going(world) == ["j6"]
    answer = world.submit(job("late", depends_on={"s2": After.OK}))
    assert isinstance(answer, InvalidInput)


def test_cancelling_all_of_a_sweep_lets_none_of_it_go() -> None:
    """No job starts in between."""
    world = world_of()
    world.submit(job("s", sweep=seeds(8, at_once=2)))
    world.cancel(*world.jobs)
    world.settle()
    assert set(world.states().values()) == {"CANCELLED"}
    assert [record.epoch for record in world.jobs.values()] == [1, 1, *[0] * 6]


def test_sweeps_that_ended_have_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest stays, those that go on stay, and one that goes on again counts no more."""
    monkeypatch.setattr(sweeps, "ENDED_BYTES", 20_000)
    world = world_of()
    (going_on,) = world.submit(job("on", gpus=8, count=2, sweep=Sweep(settings=({"A": "1"},))))
    known = world.queue.jobs.sweeps
    for number in range(20):
        text = Sweep(settings=({"A": "x" * 1_000},))
        (one,) = world.submit(job("s", gpus=8, count=2, sweep=text))
        world.cancel(one)
        world.settle()
        assert known.ended.total_bytes <= 22_000
        assert known.ended.names == Sweeps(Weights(), dict(known.records)).ended.names
        assert [world.jobs[going_on].spec.in_sweep, f"s{number + 2}"] == [*known.records][
            :: len(known.records) - 1
        ]
    assert 2 < len(known.records) < 10
    world.tell(ids.QUEUE, m.RequeueJobs((one,), "ann"))
    assert known.ended.names == Sweeps(Weights(), dict(known.records)).ended.names


def test_a_sweep_that_goes_on_counts_with_all_that_it_says() -> None:
    """Also when a short one of its jobs alone is left: what was submitted is kept with it."""
    world = world_of()
    weights = world.queue.jobs.weights
    text = Sweep(settings=({"A": "1"}, {"A": "x" * 10_000}))
    short, long = world.submit(job("s", gpus=8, count=2, sweep=text))
    plain = bytes_of(world.jobs[short].spec)
    world.cancel(long)
    world.settle()
    (left,) = weights.by_user.values()
    assert left > plain + 30_000
    before = dict(weights.by_user)
    world.queue.restore(world.queue.snapshot())
    weights = world.queue.jobs.weights
    assert weights.by_user == before
    world.cancel(short)
    world.settle()
    assert not weights.by_user
    world.tell(ids.QUEUE, m.RequeueJobs((short,), "ann"))
    assert list(weights.by_user.values()) == [left]


def test_jobs_with_one_reason_share_its_text_also_after_a_start() -> None:
    """A snapshot says it once for each: thousands of long texts would take gigabytes."""
    world = world_of()
    world.submit(*(job(f"w{n}", gpus=8, count=2) for n in range(3)))
    jobs = tuple(world.jobs)
    world.tell(ids.QUEUE, m.HoldJobs(jobs, "ann", "because " * 100))
    world.queue.restore(world.queue.snapshot())
    holds = [record.hold for record in world.queue.jobs.records.values()]
    assert "because" in str(holds[0])
    assert len({id(hold) for hold in holds}) == 1
    assert len(holds) == 3
