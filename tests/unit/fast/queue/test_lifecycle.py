"""What becomes of a job when its attempts end: restarts, delays, limits, preemption."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.build import cluster, fleet, job, profile
from tests.support.world import World
from topmast.fast.queue.facts import AttemptsSkipped, Ended
from topmast.fast.queue.jobs.record import REFUSAL_DELAY_S, REFUSALS_AT_ONCE
from topmast.fast.queue.machine import GlobalQueue
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import Band
from topmast.model.states import HostState, JobState, Outcome
from topmast.policies.options import Profile


def _one_host(options: Profile | None = None) -> World:
    return World(fleet(cluster("east-1", hosts=1)), options)


def _fail(world: World, times: int, code: int = 1) -> None:
    for _ in range(times):
        world.finish("j1", code)
        world.advance(10_000)


def test_a_job_that_ends_with_zero_has_succeeded() -> None:
    """Every task must; the slots are free at once."""
    world = _one_host()
    world.submit(job(count=2))
    world.finish("j1", 0, ranks=[1])
    assert world.state("j1") is JobState.RUNNING
    world.finish("j1", 0)
    assert world.state("j1") is JobState.SUCCEEDED
    assert world.jobs["j1"].finish_s == 0.0
    assert world.placer("east").state.allocations == {}


@pytest.mark.parametrize("saved", [False, True], ids=["replayed", "from a snapshot"])
def test_names_that_are_taken_are_not_given_again(saved: bool) -> None:
    """By attempts that the journal does not know: neither to new jobs nor to new attempts, ever."""
    world = _one_host()
    world.submit(job(max_restarts=9))
    world.tell(ids.QUEUE, m.SkipAttempts(7, {"j1": 4}))
    world.tell(ids.QUEUE, m.SkipAttempts(2))
    if saved:
        world.snapshot()
    world.crash()
    world.recover()
    world.submit(job(band=Band.NORMAL))
    assert list(world.jobs) == ["j1", "j7"]
    _fail(world, 2)
    assert [order.epoch for order in world.orders(m.StartGang) if order.job == "j1"][-1] == 6
    epochs = {order.epoch for order in world.orders(m.StartGang) if order.job == "j1"}
    assert epochs == {1, 5, 6}


def _believe(queue: GlobalQueue, event: m.SkipAttempts) -> None:
    """What a version did that took any name."""
    queue.decide(AttemptsSkipped())


@pytest.mark.parametrize("number", [10**8, 10**15, 10**23])
@pytest.mark.parametrize("how", ["told", "replayed", "from a snapshot"])
def test_no_name_pushes_numbers_out_of_bounds(
    monkeypatch: pytest.MonkeyPatch, how: str, number: int
) -> None:
    """Tasks can make files of any name: also where a version before wrote it down, the next job is admitted."""
    world = _one_host()
    world.submit(job(max_restarts=9))
    if how == "replayed":
        handlers: dict[type[m.Message], Callable[..., Any]] = dict(GlobalQueue.handlers)
        handlers[m.SkipAttempts] = _believe
        monkeypatch.setattr(GlobalQueue, "handlers", handlers)
    world.tell(ids.QUEUE, m.SkipAttempts(number, {"j1": number}))
    if how == "from a snapshot":
        if number < 1 << 53:
            return  # such numbers fit, and may have been given
        world.queue.jobs.next_number = number
        world.snapshot()
    world.crash()
    world.recover()
    world.submit(job(band=Band.NORMAL))
    assert list(world.jobs) == ["j1", "j2"]
    _fail(world, 2)
    assert world.jobs["j1"].epoch == 3


def test_the_number_of_a_job_is_read_as_it_is_written() -> None:
    """What is spelled otherwise is the id of no job."""
    assert [ids.job_number(ids.job_id(n)) for n in (0, 1, 17, 10**14)] == [0, 1, 17, 10**14]
    for name in (
        "",
        "j",
        "7",
        "j07",
        "j-1",
        "j1 ",
        "j1\n",
        "j\xb2",
        "j" + "9" * 24,
        "j" + "9" * 5000,
    ):
        assert ids.job_number(name) == -1


@pytest.mark.parametrize(
    ("story", "code", "after_s", "max_restarts", "want"),
    [
        ("a command is missing at the start", 127, 1.0, 3, "not restarted: it would fail again"),
        ("a command is missing after a while", 127, 60.0, 3, None),
        ("its work folder is no archive", 65, 1.0, 3, "not restarted: it would fail again"),
        ("its input is wrong after a while", 65, 60.0, 3, None),
        ("a command that is not executable may be so later", 126, 1.0, 3, None),
        ("it failed by itself", 1, 1.0, 3, None),
        ("no restart was wanted", 1, 1.0, 0, "not restarted: max_restarts is 0"),
    ],
)
def test_what_would_fail_again_is_not_restarted(
    story: str, code: int, after_s: float, max_restarts: int, want: str | None
) -> None:
    """Three attempts more would hold their GPUs for nothing."""
    world = _one_host()
    world.submit(job(max_restarts=max_restarts))
    world.advance(after_s)
    world.finish("j1", code)
    record = world.jobs["j1"]
    if want is None:
        assert record.state is JobState.RECOVERING
    else:
        assert (record.state, record.cause.endswith(want)) == (JobState.FAILED, True)


@dataclass
class Budget:
    """How often a job may fail; what it is after each failure."""

    max_restarts: int
    want: tuple[JobState, ...]


@pytest.mark.parametrize(
    "case",
    [
        Budget(0, (JobState.FAILED,)),
        Budget(1, (JobState.RUNNING, JobState.FAILED)),
        Budget(3, (*[JobState.RUNNING] * 3, JobState.FAILED)),
    ],
    ids=lambda case: f"{case.max_restarts} restarts",
)
def test_a_job_is_restarted_as_often_as_it_may(case: Budget) -> None:
    """One attempt more than restarts, and then it has failed."""
    world = _one_host()
    world.submit(job(max_restarts=case.max_restarts))
    for want in case.want:
        _fail(world, 1)
        assert world.state("j1") is want
    assert world.jobs["j1"].restarts == case.max_restarts
    assert world.jobs["j1"].epoch == case.max_restarts + 1
    assert ("restarts used up" in world.jobs["j1"].cause) is (case.max_restarts > 0)


def test_each_failure_waits_longer_than_the_one_before() -> None:
    """2, 4, 8, ... seconds, up to the cap."""
    world = _one_host(profile(backoff_s=2.0, backoff_cap_s=10.0))
    world.submit(job(max_restarts=9))
    delays = []
    for _ in range(5):
        world.finish("j1", 1)
        assert world.state("j1") is JobState.RECOVERING
        delays.append(world.jobs["j1"].not_before_s - world.now)
        world.advance(delays[-1] - 0.5)
        assert world.state("j1") is JobState.RECOVERING
        world.advance(0.5)
        assert world.state("j1") is JobState.RUNNING
    assert delays == [2.0, 4.0, 8.0, 10.0, 10.0]


def test_no_number_of_restarts_is_too_large_for_the_delay() -> None:
    """The growth ends at the cap also where floats end."""
    world = _one_host()
    world.submit(job(max_restarts=100_000))
    world.jobs["j1"].restarts = 99_999
    world.finish("j1", 1)
    assert world.jobs["j1"].not_before_s == 300.0


def test_the_delay_is_over_also_in_a_new_process() -> None:
    """A restart of Topmast neither shortens nor forgets it."""
    world = _one_host(profile(backoff_s=100.0))
    world.submit(job())
    world.finish("j1", 1)
    world.advance(50)
    world.snapshot()
    world.restart()
    assert world.state("j1") is JobState.RECOVERING
    world.advance(50)
    assert world.state("j1") is JobState.RUNNING


# --- hosts ----------------------------------------------------------------------------------------------


def test_a_lost_host_is_not_charged_to_the_job() -> None:
    """It starts again at once, elsewhere, with its whole budget of restarts."""
    world = World(fleet(cluster("east-1")))
    world.submit(job(gpus=8, max_restarts=0))
    (lost,) = world.jobs["j1"].hosts
    world.lose(lost)
    record = world.jobs["j1"]
    assert record.state is JobState.RUNNING
    assert (record.restarts, record.host_losses, record.epoch) == (0, 1, 2)
    assert record.hosts != (lost,)


def test_a_lost_host_is_avoided_while_there_is_another() -> None:
    """The job prefers to wait in no place; it only prefers other hosts to the one that failed it."""
    world = World(fleet(cluster("east-1")))
    world.submit(job(gpus=8))
    (lost,) = world.jobs["j1"].hosts
    world.lose(lost)
    world.revive(lost)
    assert world.jobs["j1"].avoid_hosts == (lost,)
    assert world.jobs["j1"].hosts != (lost,)


def test_a_job_that_was_lost_on_a_host_that_is_well_tries_others_first() -> None:
    """It may have killed what runs it: the host is open for others."""
    world = World(fleet(cluster("east-1")))
    world.submit(job(gpus=8))
    (host,) = world.jobs["j1"].hosts
    world.queue.handle(m.AttemptEnded("j1", 1, Outcome.HOST_LOST, 0.0, 5.0, 0.0), 5.0)
    assert world.jobs["j1"].avoid_hosts == (host,)


def test_a_host_once_lost_is_better_than_none() -> None:
    """The only host of a fleet takes the job again when it is back."""
    world = _one_host()
    world.submit(job())
    world.lose("east-1-0")
    assert world.state("j1") is JobState.RECOVERING
    world.revive("east-1-0")
    assert world.state("j1") is JobState.RUNNING


def test_a_job_that_kills_its_hosts_is_stopped_in_the_end() -> None:
    """Losing hosts is free, but not without limit: such a job is poison."""
    world = _one_host(profile(host_losses_allowed=2))
    world.submit(job())
    for _ in range(2):
        world.lose("east-1-0")
        world.revive("east-1-0")
        world.advance(5)
        assert world.state("j1") is JobState.RUNNING
    world.lose("east-1-0")
    assert world.state("j1") is JobState.FAILED
    assert "host east-1-0 was lost" in world.jobs["j1"].cause


def test_hosts_that_are_lost_soon_one_after_another_are_not_tried_at_once() -> None:
    """The job may kill what runs it. The first loss waits for nothing, nor does one after a while."""
    world = _one_host()
    world.submit(job())

    def waited_s(ran_s: float) -> float:
        world.advance(ran_s)
        began_s = world.now
        world.lose("east-1-0")
        world.revive("east-1-0")
        while world.state("j1") is JobState.RECOVERING:
            world.advance(0.5)
        return world.now - began_s

    assert [waited_s(10) for _ in range(4)] == [0, 2, 4, 8]
    assert waited_s(300) == 0


def test_a_launch_that_fails_is_charged_to_the_host() -> None:
    """A task that never began casts suspicion on its host, and costs no restart."""
    world = World(fleet(cluster("east-1")), obedient=False)
    world.submit(job(gpus=8, max_restarts=0))
    (host,) = world.jobs["j1"].hosts
    world.finish("j1", None)
    record = world.jobs["j1"]
    assert (record.state, record.restarts, record.host_losses) == (JobState.RECOVERING, 0, 1)
    assert record.avoid_hosts == (host,)
    assert world.placer("east").host_state(host) is HostState.SUSPECT
    world.advance(5)
    assert record.state is JobState.STARTING
    assert record.hosts != (host,)


# --- time limit -----------------------------------------------------------------------------------------


def test_the_time_limit_counts_all_attempts() -> None:
    """Time in finished attempts is gone; time in the queue and in delays is not counted."""
    world = _one_host(profile(backoff_s=1_000.0, backoff_cap_s=1_000.0))
    world.submit(job(time_limit_s=100.0))
    world.advance(60)
    world.finish("j1", 1)
    world.advance(1_000)
    assert world.state("j1") is JobState.RUNNING
    world.advance(39)
    assert world.state("j1") is JobState.RUNNING
    world.advance(1)
    record = world.jobs["j1"]
    assert record.state is JobState.FAILED
    assert record.cause == "time limit of 100 s reached"
    assert record.held_s == 100.0


def test_a_job_without_time_left_fails_as_soon_as_it_starts() -> None:
    """A failure right at the limit leaves nothing for another attempt."""
    world = World(fleet(cluster("east-1", hosts=1)), obedient=False)
    world.submit(job(time_limit_s=50.0))
    world.start("j1")
    world.advance(50)
    world.finish("j1", 1)
    assert world.state("j1") is JobState.FAILED


def test_preemption_does_not_extend_the_time_limit() -> None:
    """The limit is of the job, and not of an attempt."""
    world = _one_host()
    world.submit(job(gpus=8, band=Band.LOW, time_limit_s=100.0))
    world.advance(70)
    world.submit(job(gpus=8, band=Band.HIGH))
    world.advance(500)
    world.finish("j2")
    world.advance(30)
    assert world.state("j1") is JobState.FAILED


# --- preemption, seen from the queue ------------------------------------------------------------------


def test_a_preempted_job_comes_back_without_charge() -> None:
    """It waits at once, with budget and epoch as they should be, and starts again when it can."""
    world = _one_host()
    world.submit(job(gpus=8, band=Band.LOW, max_restarts=0))
    world.submit(job(gpus=8, band=Band.HIGH))
    record = world.jobs["j1"]
    assert (record.state, record.preemptions, record.restarts) == (JobState.PENDING, 1, 0)
    world.finish("j2")
    assert (record.state, record.epoch) == (JobState.RUNNING, 2)


def test_a_job_that_checkpointed_goes_on_from_there() -> None:
    """Steps are kept over attempts: the latest checkpoint, and where the job went on."""
    world = _one_host()
    world.submit(job(gpus=8))
    world.checkpoint("j1", 200)
    world.finish("j1", 1)
    world.advance(10)
    assert world.jobs["j1"].step == 200
    world.tell("cluster/east-1", m.Resumed("j1", 2, 200))
    assert world.jobs["j1"].resumed_from_step == 200


def test_news_of_an_older_attempt_is_not_believed() -> None:
    """An epoch that is over changes nothing any more, whatever is said of it."""
    world = _one_host()
    world.submit(job())
    world.finish("j1", 1)
    world.advance(10)
    before = len(world.journal.written)
    old = m.AttemptEnded("j1", 1, Outcome.FAILED, 0.0, 1.0, 0.0)
    news = (m.AttemptRunning("j1", 1), m.AttemptCheckpointed("j1", 1, 5, 1.0), old,
            m.AttemptStopping("j1", 1, Outcome.PREEMPTED), m.PlanRefused("j1", 1, "late"),
            m.AttemptStarting("j1", 1), m.AttemptResumed("j1", 1, 5))  # fmt: skip
    for message in news:
        world.tell(ids.QUEUE, message)
    assert len(world.journal.written) == before


def test_a_refused_plan_puts_the_job_back_in_its_line() -> None:
    """Nothing stays booked; it is asked about again, at once after each of the first refusals."""
    world = World(fleet(cluster("east-1", hosts=1)))
    planned = world.queue
    world.deliver(ids.QUEUE, m.SubmitJobs((job(),)))
    for epoch in range(1, REFUSALS_AT_ONCE + 2):
        batch = planned.handle(m.Wake(), world.now).sends
        offers = world.machines.fleet_placer.handle(batch[0].message, world.now).sends
        planned.handle(offers[0].message, world.now)
        record = world.jobs["j1"]
        assert (record.epoch, record.plan is not None) == (epoch, True)
        planned.handle(m.PlanRefused("j1", epoch, "host east-1-0 takes no work"), world.now)
        assert (record.state, record.plan, record.hosts) == (JobState.PENDING, None, ())
        assert planned.tenancy.ledger.held == {}
    world.settle()
    assert record.plan is None
    world.advance(REFUSAL_DELAY_S)
    assert (record.state, record.epoch) == (JobState.RUNNING, REFUSALS_AT_ONCE + 2)


@pytest.mark.parametrize(
    ("outcome", "want"),
    [
        (Outcome.SUCCEEDED, JobState.SUCCEEDED),
        (Outcome.FAILED, JobState.RECOVERING),
        (Outcome.HOST_LOST, JobState.RECOVERING),
        (Outcome.LAUNCH_FAILED, JobState.RECOVERING),
        (Outcome.PREEMPTED, JobState.PENDING),
        (Outcome.TIME_LIMIT, JobState.FAILED),
        (Outcome.CANCELLED, JobState.CANCELLED),
    ],
)
@pytest.mark.parametrize("state", [JobState.STARTING, JobState.RUNNING, JobState.PREEMPTING])
def test_every_outcome_leads_somewhere_from_every_state(
    state: JobState, outcome: Outcome, want: JobState
) -> None:
    """Whatever an attempt did when it ended, the job moves on, and its slots are not booked."""
    world = _one_host()
    world.submit(job())
    record = world.jobs["j1"]
    world.queue.jobs.move(record, state)
    if outcome is Outcome.CANCELLED:
        world.queue.jobs.move(record, JobState.CANCELLING)
        record.cancelling = True
    world.queue.handle(m.AttemptEnded("j1", 1, outcome, 0.0, 5.0, 0.0), 5.0)
    assert record.state is want
    assert world.queue.tenancy.ledger.held == {}
    assert len(world.facts(Ended)) == 0
