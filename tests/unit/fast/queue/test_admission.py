"""Submitting and cancelling: ids, idempotency, and what an acknowledgement promises."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.support import invariants
from tests.support.build import cluster, fleet, job
from tests.support.world import World
from topmast.fast.queue import bytes_of
from topmast.fast.queue.jobs import jobs
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import Conflict, NotFound
from topmast.model.job import Band
from topmast.model.states import JobState


def test_jobs_are_numbered_in_the_order_of_admission() -> None:
    """Ids count up over all submissions."""
    world = World(fleet(cluster("east-1")))
    assert world.submit(job(), job()) == ("j1", "j2")
    assert world.submit(job()) == ("j3",)


def test_an_id_is_never_used_again() -> None:
    """Neither the end of a job nor a new process gives its number to another."""
    world = World(fleet(cluster("east-1")))
    world.submit(job())
    world.finish("j1")
    world.restart()
    assert world.submit(job()) == ("j2",)


@pytest.mark.parametrize("restarted", [False, True])
def test_one_key_admits_once(restarted: bool) -> None:
    """A repetition gets the first answer, also from another process."""
    world = World(fleet(cluster("east-1")))
    assert world.submit(job(), job(), key="k") == ("j1", "j2")
    if restarted:
        world.restart()
    assert world.submit(job(), job(), key="k") == ("j1", "j2")
    assert list(world.jobs) == ["j1", "j2"]


def test_one_key_for_two_contents_is_a_conflict() -> None:
    """A key that comes with another submission is refused, and admits nothing."""
    world = World(fleet(cluster("east-1")))
    world.submit(job("mine"), key="k")
    assert isinstance(world.submit(job("other"), key="k"), Conflict)
    assert list(world.jobs) == ["j1"]


def test_submissions_without_a_key_are_all_different() -> None:
    """No key, no memory."""
    world = World(fleet(cluster("east-1")))
    assert world.submit(job()) != world.submit(job())


def test_old_keys_are_forgotten_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of keys is bounded; the newest are the ones that matter."""
    monkeypatch.setattr(jobs, "KEYS_KEPT", 2)
    world = World(fleet(cluster("east-1")))
    for key in ("a", "b", "c"):
        world.submit(job(), key=key)
    assert world.submit(job(), key="c") == ("j3",)
    assert world.submit(job(), key="b") == ("j2",)
    assert world.submit(job(), key="a") == ("j4",)


def test_finished_jobs_leave_memory_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many finished jobs are kept; a job that lives is never dropped."""
    monkeypatch.setattr(jobs, "FINISHED_KEPT", 10)
    world = World(fleet(cluster("east-1", gpus=1, hosts=2)))
    world.submit(job("long"))
    for number in range(2, 14):
        world.advance(1.0)
        world.submit(job())
        world.finish(f"j{number}")
    assert world.state("j1") is JobState.RUNNING
    assert "j2" not in world.jobs
    assert len(world.jobs) <= 12
    assert world.journal.finished_job("j2") is not None


def test_finished_jobs_with_much_text_leave_memory_earlier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is kept has a bound in bytes, too."""
    monkeypatch.setattr(jobs, "FINISHED_BYTES", 4 * bytes_of(job()))
    world = World(fleet(cluster("east-1", gpus=1)))
    together = [world.submit(job(gpus=8))[0] for _ in range(6)]
    world.cancel(*together)
    assert list(world.jobs) == together[2:]
    for number in range(7, 30):
        world.advance(1.0)
        world.submit(job())
        world.finish(f"j{number}")
        invariants.check_figures(world)
        assert world.queue.jobs.weights.ended_bytes <= 4 * bytes_of(job())
    assert list(world.jobs) == [f"j{number}" for number in range(30 - len(world.jobs), 30)]
    assert all(world.journal.finished_job(one) is not None for one in together)


def test_jobs_that_end_together_all_have_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many they are: none leaves memory before the step that ended it was recorded."""
    monkeypatch.setattr(jobs, "FINISHED_KEPT", 10)
    world = World(fleet(cluster("east-1", gpus=1)))
    together = [world.submit(job(gpus=8))[0] for _ in range(50)]
    world.cancel(*together)
    assert all(world.journal.finished_job(one) is not None for one in together)
    world.advance(1.0)
    world.submit(job())
    world.finish("j51")
    assert len(world.jobs) == 11
    assert all(world.journal.finished_job(one) is not None for one in together)


# --- cancelling --------------------------------------------------------------------------------------


@dataclass
class Cancel:
    """A job in some state; what cancelling makes of it at once, and when its tasks are gone."""

    story: str
    bring_there: Callable[[World], None]
    before: JobState
    want_at_once: JobState
    want_later: JobState = JobState.CANCELLED


def _nothing_free(world: World) -> None:
    world.submit(job("filler", gpus=8, count=2))
    world.submit(job("mine", gpus=8))


def _launched(world: World) -> None:
    world.submit(job("other"))
    world.submit(job("mine"))


def _half_up(world: World) -> None:
    world.submit(job("other"))
    world.submit(job("mine", count=2))
    world.start("j2", 0)


def _running(world: World) -> None:
    _launched(world)
    world.start("j2")


def _being_preempted(world: World) -> None:
    world.submit(job("other"))
    world.submit(job("mine", gpus=8, count=1, band=Band.LOW))
    world.start("j2")
    world.submit(job("urgent", gpus=8, count=2, band=Band.HIGH))


def _waits_for_victims(world: World) -> None:
    world.submit(job("victim", gpus=8, count=2, band=Band.LOW))
    world.start("j1")
    world.submit(job("mine", gpus=8, count=2, band=Band.HIGH))


def _backing_off(world: World) -> None:
    _running(world)
    world.finish("j2", 1)


def _recovering_without_room(world: World) -> None:
    world.submit(job("other", gpus=8))
    world.submit(job("mine", gpus=8))
    world.start("j2")
    world.lose("east-1-1")


def _cancelled_already(world: World) -> None:
    _running(world)
    world.cancel("j2")


CANCELS = [
    Cancel("waits", _nothing_free, JobState.PENDING, JobState.CANCELLED),
    Cancel("is starting", _launched, JobState.STARTING, JobState.CANCELLED),
    Cancel("is starting, one task up", _half_up, JobState.STARTING, JobState.CANCELLING),
    Cancel("runs", _running, JobState.RUNNING, JobState.CANCELLING),
    Cancel("is preempted", _being_preempted, JobState.PREEMPTING, JobState.CANCELLING),
    Cancel("waits for victims", _waits_for_victims, JobState.PENDING, JobState.CANCELLED),
    Cancel("waits out a delay", _backing_off, JobState.RECOVERING, JobState.CANCELLED),
    Cancel(
        "recovers, without room", _recovering_without_room, JobState.RECOVERING, JobState.CANCELLED
    ),
    Cancel("is cancelled already", _cancelled_already, JobState.CANCELLING, JobState.CANCELLING),
]


@pytest.mark.parametrize("case", CANCELS, ids=lambda case: case.story)
def test_a_job_can_be_cancelled_wherever_it_stands(case: Cancel) -> None:
    """It ends for good once its tasks are gone, holds nothing then, and is never placed again."""
    world = World(fleet(cluster("east-1")), obedient=False)
    case.bring_there(world)
    assert world.state("j2") is case.before
    assert world.cancel("j2") == (() if case.before is JobState.CANCELLING else ("j2",))
    assert world.state("j2") is case.want_at_once
    if world.state("j2") is JobState.CANCELLING:
        world.finish("j2", 143)
    assert world.state("j2") is case.want_later
    assert "j2" not in world.placer("east").state.allocations
    world.advance(1_000)
    assert world.state("j2") is case.want_later


def test_cancelling_what_is_over_changes_nothing() -> None:
    """Terminal states are final; the request is no error."""
    world = World(fleet(cluster("east-1")))
    world.submit(job())
    world.finish("j1")
    assert world.cancel("j1") == ()
    assert world.state("j1") is JobState.SUCCEEDED


def test_cancelling_the_unknown_cancels_nothing() -> None:
    """One id that does not exist spoils the request; the others stay as they are."""
    world = World(fleet(cluster("east-1")))
    world.submit(job())
    assert isinstance(world.cancel("j1", "j9"), NotFound)
    assert world.state("j1") is JobState.RUNNING


def test_a_job_that_succeeds_while_it_is_cancelled_is_cancelled() -> None:
    """Its tasks were told to stop; their status no longer tells success from obedience."""
    world = World(fleet(cluster("east-1")), obedient=False)
    world.submit(job())
    world.start("j1")
    world.cancel("j1")
    world.finish("j1", 0)
    assert world.state("j1") is JobState.CANCELLED


def test_the_next_in_line_moves_up_when_the_first_is_cancelled_before_its_turn() -> None:
    """Submitting and cancelling may come in one batch, before any ranking."""
    world = World(fleet(cluster("east-1")))
    world.deliver(ids.QUEUE, m.SubmitJobs((job(), job(), job())))
    world.deliver(ids.QUEUE, m.CancelJobs(("j1",)))
    world.settle()
    assert world.states() == {"j1": "CANCELLED", "j2": "RUNNING", "j3": "RUNNING"}


def test_victims_of_a_cancelled_preemptor_come_back_at_once() -> None:
    """They were told to stop and do; then the room is theirs again."""
    world = World(fleet(cluster("east-1")), obedient=False)
    _waits_for_victims(world)
    world.cancel("j2")
    assert world.state("j1") is JobState.PREEMPTING
    world.finish("j1", 143)
    assert world.state("j1") is JobState.STARTING
    assert world.jobs["j1"].epoch == 2
