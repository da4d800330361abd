"""Gangs: they start whole or not at all, and end whole; whatever is said twice does no harm."""

from dataclasses import dataclass

import pytest

from tests.support.build import cluster
from tests.unit.fast.cluster.manager import Manager, evicted, exited, lost, started
from topmast.fast.cluster import gangs as cluster_machine
from topmast.fast.cluster.attempt import AttemptPhase
from topmast.model import messages as m
from topmast.model.states import Outcome

CANCEL = m.StopGang("j1", 1, Outcome.CANCELLED, "cancelled by ann")


@dataclass
class Life:
    """What happens to a gang of two, in order; what is told of it, and how it ends."""

    story: str
    happens: tuple[m.Message, ...]
    want_outcome: Outcome | None
    want_told: tuple[str, ...]
    want_stops: int = 0
    want_suspects: tuple[str, ...] = ()


RAN, STOPPED, ENDED = "AttemptRunning", "AttemptStopping", "AttemptEnded"
UP = (started(0), started(1))

LIVES = [
    Life("it is launched", (), None, ()),
    Life("one task is up", (started(0),), None, ()),
    Life("all are up", UP, None, (RAN,)),
    Life("one has done its work", (*UP, exited(0)), None, (RAN,)),
    Life("all have", (*UP, exited(0), exited(1)), Outcome.SUCCEEDED, (RAN, ENDED)),
    Life("they end in another order", (*UP, exited(1), exited(0)), Outcome.SUCCEEDED, (RAN, ENDED)),
    Life(
        "news of an end overtakes that of the start", (started(0), exited(1)), None, (RAN,)
    ),
    Life(
        "nobody was heard to start", (exited(0), exited(1)), Outcome.SUCCEEDED, (RAN, ENDED)
    ),
    Life("one fails: the other is stopped", (*UP, exited(0, 1)), None, (RAN, STOPPED), 1),
    Life(
        "and then is gone", (*UP, exited(0, 1), exited(1, 143)), Outcome.FAILED,
        (RAN, STOPPED, ENDED), 1,
    ),
    Life(
        "both fail: the first reason stands", (*UP, exited(0, 1), exited(1, 2)), Outcome.FAILED,
        (RAN, STOPPED, ENDED), 1,
    ),
    Life(
        "one gives up because the host of the other is lost, which is known later",
        (*UP, exited(0, 1), lost(1)), Outcome.HOST_LOST, (RAN, STOPPED, ENDED), 1, ("east-1-1",),
    ),
    Life(
        "one fails, and the other cannot be told from a stopped one: the failure stands",
        (*UP, exited(0, 1), m.TaskLost("j1", 1, 1, "no exit status", True)), Outcome.FAILED,
        (RAN, STOPPED, ENDED), 1,
    ),
    Life(
        "one fails, and the other never started: the failure stands",
        (started(0), exited(0, 1), lost(1)), Outcome.FAILED, (STOPPED, ENDED), 1,
    ),
    Life(
        "one fails while the other starts", (started(0), exited(0, 1), started(1), exited(1, 143)),
        Outcome.FAILED, (STOPPED, ENDED), 1,
    ),
    Life(
        "the host of one cannot be prepared: as if it had not started",
        (*UP, m.TaskLost("j1", 1, 1, "the host cannot be prepared: no space", True), exited(0, 143)),
        Outcome.LAUNCH_FAILED, (RAN, STOPPED, ENDED), 1,
    ),
    Life(
        "one cannot start: the other is stopped", (started(0), lost(1), exited(0, 143)),
        Outcome.LAUNCH_FAILED, (STOPPED, ENDED), 1, ("east-1-1",),
    ),
    Life(
        "a host dies", (*UP, m.HostDown("east-1-1"), lost(1), exited(0, 143)), Outcome.HOST_LOST,
        (RAN, "HostChanged", STOPPED, ENDED), 1, ("east-1-1",),
    ),
    Life(
        "a host dies, and nothing was heard of its task", (*UP, m.HostDown("east-1-1"),
        exited(0, 143)), None, (RAN, "HostChanged", STOPPED), 1,
    ),
    Life(
        "a host dies whose task has done its work", (*UP, exited(1), m.HostDown("east-1-1")), None,
        (RAN, "HostChanged"),
    ),
    Life(
        "a host dies before its task is up",
        (started(0), m.HostDown("east-1-1"), lost(1), exited(0, 143)),
        Outcome.HOST_LOST, ("HostChanged", STOPPED, ENDED), 1, ("east-1-1",),
    ),
    Life(
        "both hosts die", (*UP, m.HostDown("east-1-1"), m.HostDown("east-1-0"), lost(0), lost(1)),
        Outcome.HOST_LOST, (RAN, "HostChanged", STOPPED, "HostChanged", ENDED), 1, ("east-1-1",),
    ),
    Life(
        "a task vanishes", (*UP, lost(0), exited(1, 143)), Outcome.HOST_LOST,
        (RAN, STOPPED, ENDED), 1, ("east-1-0",),
    ),
    Life(
        "a task is evicted: the gang is preempted, and no host is suspect",
        (*UP, evicted(0), exited(1, 143)), Outcome.PREEMPTED, (RAN, STOPPED, ENDED), 1,
    ),
    Life(
        "a task is evicted before it is up", (started(0), evicted(1), exited(0, 143)),
        Outcome.PREEMPTED, (STOPPED, ENDED), 1,
    ),
    Life(
        "all are evicted", (*UP, evicted(0), evicted(1)), Outcome.PREEMPTED,
        (RAN, STOPPED, ENDED), 1,
    ),
    Life(
        "a task gives up because another is evicted, which is known later",
        (*UP, exited(0, 1), evicted(1)), Outcome.PREEMPTED, (RAN, STOPPED, ENDED), 1,
    ),
    Life(
        "it ends well after a stop that is not known here, as after a restore: it waits again",
        (*UP, exited(0, stopped=True), exited(1, stopped=True)), Outcome.PREEMPTED,
        (RAN, STOPPED, ENDED), 1,
    ),
    Life(
        "it ends badly after such a stop: that is no failure",
        (*UP, exited(0, 143, stopped=True), exited(1, 1, stopped=True)), Outcome.PREEMPTED,
        (RAN, STOPPED, ENDED), 1,
    ),
    Life(
        "one was done before such a stop", (*UP, exited(0), exited(1, stopped=True)),
        Outcome.PREEMPTED, (RAN, STOPPED, ENDED), 1,
    ),
    Life(
        "such a stop came before all were up", (started(0), exited(0, stopped=True), lost(1)),
        Outcome.PREEMPTED, (STOPPED, ENDED), 1,
    ),
    Life(
        "one fails, and the other is stopped for it: the failure stands",
        (*UP, exited(0, 1), exited(1, stopped=True)), Outcome.FAILED, (RAN, STOPPED, ENDED), 1,
    ),
    Life(
        "it is cancelled, and evicted while it stops", (*UP, CANCEL, evicted(0), evicted(1)),
        Outcome.CANCELLED, (RAN, ENDED), 1,
    ),
    Life("it is cancelled", (*UP, CANCEL), None, (RAN,), 1),
    Life(
        "it is cancelled and gone", (*UP, CANCEL, exited(0, 143), exited(1, 137)),
        Outcome.CANCELLED, (RAN, ENDED), 1,
    ),
    Life(
        "it ends well although it was told to stop", (*UP, CANCEL, exited(0), exited(1)),
        Outcome.CANCELLED, (RAN, ENDED), 1,
    ),
    Life(
        "one was done, then it is cancelled", (*UP, exited(0), CANCEL, exited(1, 143)),
        Outcome.CANCELLED, (RAN, ENDED), 1,
    ),
    Life(
        "it fails, then is cancelled: the failure stands",
        (*UP, exited(0, 1), CANCEL, exited(1, 143)), Outcome.FAILED, (RAN, STOPPED, ENDED), 1,
    ),
    Life(
        "it is cancelled before a task is up", (started(0), CANCEL, lost(1), exited(0, 143)),
        Outcome.CANCELLED, (ENDED,), 1,
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", LIVES, ids=lambda case: case.story)
def test_the_life_of_a_gang(case: Life) -> None:
    """Running is told when all run, the end when nothing is left, and the first reason stands."""
    manager = Manager()
    manager.launch()
    manager.tell(*case.happens)
    assert tuple(type(message).__name__ for message in manager.to_placer) == case.want_told
    assert len(manager.ordered(m.StopTasks)) == case.want_stops
    if case.want_outcome is None:
        assert "j1" in manager.machine.state.attempts
    else:
        assert manager.machine.state.attempts == {}
        assert manager.end().outcome is case.want_outcome
        assert manager.end().suspects == case.want_suspects


@pytest.mark.parametrize("case", LIVES, ids=lambda case: case.story)
def test_whatever_is_said_twice_does_no_harm(case: Life) -> None:
    """Every event of a life repeated, once at once and once at the end: nothing more is decided."""
    once, twice = Manager(), Manager()
    once.launch()
    once.tell(*case.happens)
    twice.launch()
    twice.launch()
    for message in case.happens:
        twice.tell(message, message)
    assert twice.facts == once.facts
    decided = len(twice.facts)
    twice.launch()
    late = [x for x in case.happens if not isinstance(x, m.HostDown)]
    twice.tell(*late)
    if case.want_outcome is not None:
        assert len(twice.facts) == decided
    host_news = sum(isinstance(x, m.HostDown) for x in case.happens)
    assert len(twice.to_placer) == len(once.to_placer) + host_news


def test_a_repeated_launch_starts_nothing_twice() -> None:
    """The engine gets one order, and after the end none."""
    manager = Manager()
    manager.run()
    manager.launch()
    manager.tell(exited(0), exited(1))
    manager.launch()
    assert len(manager.ordered(m.StartGang)) == 1


# --- fencing ------------------------------------------------------------------------------------------------


def test_an_older_attempt_is_not_launched_after_a_newer_one() -> None:
    """The epoch of the newest is remembered when it is long gone."""
    manager = Manager()
    manager.launch(epoch=2)
    manager.tell(exited(0, epoch=2), exited(1, epoch=2))
    manager.launch(epoch=1)
    assert manager.machine.state.attempts == {}
    manager.launch(epoch=3)
    assert manager.machine.state.attempts["j1"].epoch == 3


def test_a_stop_that_overtakes_its_launch_forbids_it() -> None:
    """The placer hears of the end at once; the launch, when it comes, is refused."""
    manager = Manager()
    manager.tell(CANCEL)
    assert manager.end().outcome is Outcome.CANCELLED
    manager.launch()
    assert manager.machine.state.attempts == {}
    assert manager.to_engine == []
    manager.tell(CANCEL)
    assert len(manager.told(m.AttemptEnded)) == 1


def test_a_stop_for_another_attempt_stops_nothing() -> None:
    """An order that comes late is for an attempt that is over."""
    manager = Manager()
    manager.launch(epoch=2)
    manager.tell(CANCEL)
    assert manager.machine.state.attempts["j1"].phase is AttemptPhase.STARTING
    assert manager.to_placer == []


def test_fences_are_forgotten_longest_unseen_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded; the jobs that are fenced last are the ones whose orders may still fly."""
    monkeypatch.setattr(cluster_machine, "FENCES_KEPT", 2)
    manager = Manager()
    for job, epoch in (("j1", 1), ("j2", 1), ("j1", 2), ("j3", 1)):
        manager.tell(m.StopGang(job, epoch, Outcome.CANCELLED))
    assert manager.machine.state.fences == {"j1": 2, "j3": 1}


@pytest.mark.parametrize(
    "message",
    [
        started(0, epoch=2), exited(0, epoch=2), lost(0, epoch=2), started(7), exited(-1), lost(2),
        m.Checkpointed("j1", 2, 5, 1.0), m.Resumed("j1", 2, 5), m.Checkpointed("j9", 1, 5, 1.0),
    ],
    ids=repr,
)  # fmt: skip
def test_news_of_unknown_tasks_are_ignored(message: m.Message) -> None:
    """Other epochs, other jobs, ranks that the gang does not have."""
    manager = Manager()
    manager.run()
    decided = len(manager.facts)
    manager.tell(message)
    assert len(manager.facts) == decided


# --- what is reported at the end ------------------------------------------------------------------------------


def test_a_success_keeps_all_its_time() -> None:
    """What succeeded has lost nothing, with or without checkpoints."""
    manager = Manager()
    manager.run()
    manager.now = 50.0
    manager.tell(exited(0), exited(1))
    assert (manager.end().start_s, manager.end().end_s, manager.end().kept_s) == (0.0, 50.0, 50.0)


@pytest.mark.parametrize(
    ("story", "ended_s", "want_s"),
    [
        ("they ended long before anyone heard of it", (20.0, 30.0), 30.0),
        ("only one ended unheard", (20.0, 50.0), 50.0),
        ("a clock runs ahead", (20.0, 70.0), 50.0),
        ("a clock was set back to before the start", (5.0, 4.0), 50.0),
        ("their engine cannot tell", (0.0, 0.0), 50.0),
    ],
)
def test_a_gang_ends_when_its_last_task_did(
    story: str, ended_s: tuple[float, float], want_s: float
) -> None:
    """Not when it was heard of, for the server may have been down; but never before its start."""
    manager = Manager()
    manager.now = 10.0
    manager.run()
    manager.now = 50.0
    manager.tell(*(m.TaskExited("j1", 1, rank, 0, at_s) for rank, at_s in enumerate(ended_s)))
    assert (manager.end().end_s, manager.end().kept_s) == (want_s, want_s - 10.0)


def test_an_end_that_the_truth_tells_has_its_time() -> None:
    """Also one that only a reconciliation finds."""
    manager = Manager()
    manager.run()
    manager.now = 50.0
    manager.ask_truth()
    ends = (m.TruthTask("j1", 1, rank, running=False, code=0, at_s=20.0 + rank) for rank in (0, 1))
    manager.tell(m.TaskList(tuple(ends)))
    assert manager.end().end_s == 21.0


@pytest.mark.parametrize(("blameless", "want"), [(True, ()), (False, ("east-1-1",))])
def test_only_a_host_that_is_at_fault_is_suspected(blameless: bool, want: tuple[str, ...]) -> None:
    """An attempt that could not even be planned says nothing of its hosts."""
    manager = Manager()
    manager.launch()
    manager.tell(started(0), m.TaskLost("j1", 1, 1, "too many open files", blameless))
    manager.tell(exited(0, 143))
    assert (manager.end().outcome, manager.end().suspects) == (Outcome.LAUNCH_FAILED, want)


@pytest.mark.parametrize(
    ("code", "want"),
    [
        (1, "status 1"),
        (127, "status 127 (a command was not found)"),
        (137, "status 137 (SIGKILL)"),
        (139, "status 139 (SIGSEGV)"),
        (255, "status 255"),
    ],
)
def test_a_status_is_explained(code: int, want: str) -> None:
    """Few people know the numbers of signals."""
    manager = Manager()
    manager.run()
    manager.tell(exited(0, code), exited(1, 143))
    assert manager.end().cause == f"task 0 exited with {want}"


def test_a_failure_keeps_what_was_checkpointed() -> None:
    """The rest is lost; the furthest checkpoint counts, in whatever order they are heard."""
    manager = Manager()
    manager.run()
    manager.tell(m.Checkpointed("j1", 1, 300, 30.0), m.Checkpointed("j1", 1, 200, 20.0))
    manager.now = 50.0
    manager.tell(exited(0, 1), exited(1, 143))
    assert (manager.end().kept_s, manager.end().step, manager.end().exit_code) == (30.0, 300, 1)
    assert [c.step for c in manager.told(m.AttemptCheckpointed)] == [300]


def test_a_failure_without_checkpoints_keeps_nothing() -> None:
    """Nor can a clock that runs ahead keep more than was run."""
    manager = Manager()
    manager.run()
    manager.now = 50.0
    manager.tell(exited(0, 1), exited(1, 143))
    assert manager.end().kept_s == 0.0
    ahead = Manager()
    ahead.run()
    ahead.tell(m.Checkpointed("j1", 1, 9, 1e9))
    ahead.now = 50.0
    ahead.tell(exited(0, 1), exited(1, 143))
    assert ahead.end().kept_s == 50.0


def test_the_last_report_of_rank_0_is_the_job_s() -> None:
    """Others fill in only where rank 0 said nothing."""
    manager = Manager()
    manager.run()
    manager.tell(
        exited(1, report=m.TaskReport(7, {"loss": 0.7})),
        exited(0, report=m.TaskReport(8, {"loss": 0.5})),
    )
    assert (manager.end().step, manager.end().metrics) == (8, {"loss": 0.5})
    silent = Manager()
    silent.run()
    silent.tell(exited(0), exited(1, report=m.TaskReport(7, {"loss": 0.7})))
    assert (silent.end().step, silent.end().metrics) == (7, {"loss": 0.7})


def test_where_a_job_went_on_is_passed_on() -> None:
    """The placer passes it to the queue."""
    manager = Manager()
    manager.run()
    manager.tell(m.Resumed("j1", 1, 200))
    assert manager.told(m.AttemptResumed) == [m.AttemptResumed("j1", 1, 200)]


def test_a_configuration_that_is_known_is_no_news() -> None:
    """Starting with the same fleet file writes nothing."""
    manager = Manager()
    decided = len(manager.facts)
    manager.tell(m.ConfigureCluster("east", cluster("east-1")))
    assert len(manager.facts) == decided
    manager.tell(m.ConfigureCluster("east", cluster("east-1", hosts=3)))
    assert len(manager.facts) == decided + 1
