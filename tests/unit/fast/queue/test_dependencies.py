"""Jobs that wait for other jobs: what lets them go on, what ends them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.support.build import cluster, fleet, job
from tests.support.world import World
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.dependency import After
from topmast.model.errors import InvalidInput, NotFound
from topmast.model.job import JobSpec
from topmast.model.reason import PendingReason
from topmast.model.states import JobState


def after(**named: After) -> JobSpec:
    """A job that depends on others."""
    return job("later", depends_on=named)


def with_first(**options: object) -> World:
    """One job runs, and there is room for others."""
    world = World(fleet(cluster("east-1")))
    world.submit(job("first", **options))  # type: ignore[arg-type]
    assert world.states() == {"j1": "RUNNING"}
    return world


def reason(world: World, name: str) -> tuple[PendingReason, str] | None:
    """Why a job waits."""
    verdict = world.queue.verdict_on(world.jobs[name])
    return None if verdict is None else (verdict.reason, verdict.detail)


@dataclass
class Case:
    """What happens to the first job, and what becomes of one that depends on it."""

    story: str
    after: After
    happens: Callable[[World], object]
    want: JobState
    more: dict[str, object] = field(default_factory=dict)


CASES = [
    Case("it succeeds", After.OK, lambda w: w.finish("j1"), JobState.RUNNING),
    Case("it succeeds", After.ANY, lambda w: w.finish("j1"), JobState.RUNNING),
    Case(
        "it fails", After.OK, lambda w: w.finish("j1", code=1), JobState.CANCELLED,
        {"max_restarts": 0},
    ),
    Case(
        "it fails", After.ANY, lambda w: w.finish("j1", code=1), JobState.RUNNING,
        {"max_restarts": 0},
    ),
    Case(
        "it fails and is tried again", After.ANY, lambda w: w.finish("j1", code=1),
        JobState.PENDING, {"max_restarts": 3},
    ),
    Case("it is cancelled", After.OK, lambda w: w.cancel("j1"), JobState.CANCELLED),
    Case("it is cancelled", After.ANY, lambda w: w.cancel("j1"), JobState.RUNNING),
    Case("nothing", After.OK, lambda w: w.advance(1_000), JobState.PENDING),
    Case("nothing, but it has started", After.STARTED, lambda w: None, JobState.RUNNING),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.after}: {case.story}")
@pytest.mark.parametrize("dies", [False, True], ids=["", "the process dies before"])
def test_what_becomes_of_a_job_that_depends_on_another(case: Case, dies: bool) -> None:
    """It goes on, waits or is cancelled, and another process decides the same."""
    world = with_first(**case.more)
    world.submit(after(j1=case.after))
    if dies:
        world.restart()
    case.happens(world)
    world.settle()
    assert world.state("j2") is case.want
    if case.want is JobState.PENDING:
        assert reason(world, "j2") == (PendingReason.WAITING_FOR_JOBS, world_text(case.after))
    if case.want is JobState.CANCELLED:
        assert "runs only after its success" in world.jobs["j2"].cause


def world_text(what: After) -> str:
    """What is told of a job that waits for j1."""
    return "j1 has succeeded" if what is After.OK else "j1 has ended"


def test_after_a_start_means_the_first_start_or_an_end_without_one() -> None:
    """Like a job that waits itself."""
    world = World(fleet(cluster("east-1")))
    world.submit(job("full", gpus=8, count=2), job("waits", gpus=8))
    world.submit(job("a", gpus=0, depends_on={"j2": After.STARTED}))
    assert world.state("j3") is JobState.PENDING
    world.cancel("j2")
    assert world.state("j3") is JobState.RUNNING


def test_all_that_it_depends_on_must_have_come() -> None:
    """What is still missing is told; what has come is waited for no more."""
    world = with_first()
    world.submit(job("second"))
    world.submit(after(j1=After.OK, j2=After.ANY))
    world.finish("j2")
    assert reason(world, "j3") == (PendingReason.WAITING_FOR_JOBS, "j1 has succeeded")
    view = world.jobs["j3"].view(world.now, None)
    assert (view.depends_on, view.waits_for) == ({"j1": "ok", "j2": "any"}, {"j1": "ok"})
    world.restart()
    world.finish("j1")
    assert world.state("j3") is JobState.RUNNING


def test_a_job_that_ended_before_counts_at_once() -> None:
    """Also one that the queue has forgotten, if the message says how it ended."""
    world = with_first()
    world.finish("j1")
    world.submit(after(j1=After.OK))
    assert world.state("j2") is JobState.RUNNING
    told = m.SubmitJobs((after(j0=After.OK),), ended={"j0": JobState.SUCCEEDED})
    assert world.tell(ids.QUEUE, told) == ("j3",)
    assert world.state("j3") is JobState.RUNNING


def test_what_could_never_start_is_refused() -> None:
    """An unknown job, or one that has failed already; then nothing of the request is admitted."""
    world = with_first(max_restarts=0)
    world.finish("j1", code=1)
    assert isinstance(world.submit(job("x"), after(j9=After.OK)), NotFound)
    answer = world.submit(job("x"), after(j1=After.OK))
    assert isinstance(answer, InvalidInput)
    assert answer.field == "depends_on"
    told = m.SubmitJobs((after(j0=After.OK),), ended={"j0": JobState.FAILED})
    assert isinstance(world.tell(ids.QUEUE, told), InvalidInput)
    assert world.submit(after(j1=After.ANY)) == ("j2",)


def test_a_job_cannot_depend_on_itself_or_on_one_that_comes_later() -> None:
    """So there are no circles: an id is not known before its job is there."""
    world = with_first()
    assert isinstance(world.submit(after(j2=After.OK)), NotFound)
    assert isinstance(world.submit(after(j3=After.OK), job("third")), NotFound)


def test_a_chain_ends_as_a_whole() -> None:
    """If the first cannot succeed, none after it starts; each says why."""
    world = with_first()
    for number in range(1, 5):
        world.submit(after(**{f"j{number}": After.OK}))
    world.cancel("j1")
    assert set(world.states().values()) == {"CANCELLED"}
    assert world.jobs["j5"].cause == (
        "never started: j4 has CANCELLED, and this job runs only after its success"
    )


def test_a_requeued_chain_is_judged_anew() -> None:
    """The first goes on, and so does the one after it; before that it would only end again."""
    world = with_first(max_restarts=0)
    world.submit(after(j1=After.OK))
    world.finish("j1", code=1)
    assert world.state("j2") is JobState.CANCELLED
    world.tell(ids.QUEUE, m.RequeueJobs(("j2",)))
    assert world.state("j2") is JobState.CANCELLED
    world.tell(ids.QUEUE, m.RequeueJobs(("j1", "j2")))
    assert world.states() == {"j1": "RUNNING", "j2": "PENDING"}
    world.finish("j1")
    assert world.state("j2") is JobState.RUNNING


def test_held_and_waiting_for_others_are_two_things() -> None:
    """A release does not start it before its time, nor does its time while it is held."""
    world = with_first()
    world.submit(after(j1=After.OK))
    world.submit(after(j1=After.OK))
    world.tell(ids.QUEUE, m.HoldJobs(("j2", "j3"), "ann"))
    assert reason(world, "j2") == (PendingReason.HELD, "held by ann")
    world.tell(ids.QUEUE, m.ReleaseJobs(("j2",), "ann"))
    assert reason(world, "j2") == (PendingReason.WAITING_FOR_JOBS, "j1 has succeeded")
    world.finish("j1")
    assert world.states() == {"j1": "SUCCEEDED", "j2": "RUNNING", "j3": "PENDING"}
    world.tell(ids.QUEUE, m.ReleaseJobs(("j3",), "ann"))
    assert world.state("j3") is JobState.RUNNING


def test_it_stands_in_nothings_way() -> None:
    """Others start meanwhile; it can be cancelled, and then nothing starts it."""
    world = with_first()
    world.submit(after(j1=After.OK))
    world.submit(job("other", gpus=8))
    assert world.state("j3") is JobState.RUNNING
    world.cancel("j2")
    world.finish("j1")
    assert world.state("j2") is JobState.CANCELLED


def test_a_process_that_dies_between_the_end_and_what_follows_makes_up_for_it() -> None:
    """The end is journalled by itself; a snapshot in between changes nothing."""
    world = with_first()
    world.tell(ids.QUEUE, m.SubmitJobs((job("held", gpus=16),)))
    world.submit(after(j2=After.ANY), after(j2=After.OK))
    world.deliver(ids.QUEUE, m.CancelJobs(("j2",), "ann"))
    assert world.state("j3") is JobState.PENDING
    world.snapshot()
    world.restart()
    assert (world.state("j3"), world.state("j4")) == (JobState.RUNNING, JobState.CANCELLED)


def test_jobs_of_one_submission_wait_for_one_another() -> None:
    """Their places become ids when these are known, in what runs and in what is told."""
    world = World(fleet(cluster("east-1")))
    world.submit(job("before"))
    second, third = ({ids.nth_job(place): After.OK} for place in (0, 1))
    specs = (job("a"), job("b", depends_on=second), job("c", depends_on=third))
    assert world.submit(*specs, key="monday") == ("j2", "j3", "j4")
    assert world.submit(*specs, key="monday") == ("j2", "j3", "j4")
    assert world.jobs["j3"].spec.depends_on == {"j2": After.OK}
    assert reason(world, "j4") == (PendingReason.WAITING_FOR_JOBS, "j3 has succeeded")
    assert "when j2 has succeeded" in world.journal.history("j3")[0].text
    world.crash()
    world.recover()
    world.finish("j2")
    assert world.states()["j3"] == "RUNNING"
    world.cancel("j3")
    assert world.states()["j4"] == "CANCELLED"


@pytest.mark.parametrize("place", [1, 2, 7])
def test_a_job_cannot_wait_for_one_that_is_not_before_it(place: int) -> None:
    """So that no two jobs wait for each other, and no place is empty."""
    world = World(fleet(cluster("east-1")))
    wrong = job("b", depends_on={ids.nth_job(place): After.OK})
    assert isinstance(world.submit(job("a"), wrong, job("c")), NotFound)
    assert world.jobs == {}
