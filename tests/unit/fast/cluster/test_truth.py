"""The engine's truth: what was not heard is made up for, what nobody owns is reaped."""

from dataclasses import dataclass

import pytest

from tests.unit.fast.cluster.manager import Manager, exited, over, runs, started
from topmast.fast.cluster.attempt import AttemptPhase
from topmast.model import messages as m
from topmast.model.states import Outcome


@dataclass
class Truth:
    """What was heard of a gang of two; what the engine then says it runs; what comes of it."""

    story: str
    heard: tuple[m.Message, ...]
    tasks: tuple[m.TruthTask, ...]
    want_phase: AttemptPhase | None
    want_outcome: Outcome | None = None
    want_stops: tuple[m.StopTasks, ...] = ()
    down: tuple[str, ...] = ()
    launched: bool = True


UP = (started(0), started(1))
STOP = m.StopGang("j1", 1, Outcome.PREEMPTED)
GRACEFULLY = m.StopTasks("j1", 1, 30.0)
STARTING, RUNNING, STOPPING = AttemptPhase

TRUTHS = [
    Truth("as we know it", UP, (runs(0), runs(1)), RUNNING),
    Truth("starts were not heard", (), (runs(0), runs(1)), RUNNING),
    Truth("one start was not heard", (started(1),), (runs(0), runs(1)), RUNNING),
    Truth("not all are up yet", (), (runs(0),), STARTING),
    Truth("nothing has begun yet", (), (), STARTING),
    Truth("ends were not heard", UP, (over(0), over(1)), None, Outcome.SUCCEEDED),
    Truth("neither starts nor ends were heard", (), (over(0), over(1)), None, Outcome.SUCCEEDED),
    Truth("one has done its work", UP, (over(0), runs(1)), RUNNING),
    Truth("a failure was not heard", UP, (over(0, 1), runs(1)), STOPPING, want_stops=(GRACEFULLY,)),
    Truth("two failures were not heard", UP, (over(0, 1), over(1, 1)), None, Outcome.FAILED,
          (GRACEFULLY,)),
    Truth("a loss was not heard", UP, (over(0, None), runs(1)), STOPPING,
          want_stops=(GRACEFULLY,)),
    Truth("the engine lost one", UP, (runs(0),), STOPPING, want_stops=(GRACEFULLY,)),
    Truth("the engine lost all", UP, (), None, Outcome.HOST_LOST, (GRACEFULLY,)),
    Truth("the stop was obeyed in silence", (*UP, STOP), (over(0, 143), over(1, 143)), None,
          Outcome.PREEMPTED, (GRACEFULLY,)),
    Truth("the stop came before the start", (STOP,), (), None, Outcome.PREEMPTED, (GRACEFULLY,)),
    Truth("the stop was not obeyed yet", (*UP, STOP), (runs(0), runs(1)), STOPPING,
          want_stops=(GRACEFULLY,)),
    Truth("a host is down", UP, (runs(0), over(1, None)), STOPPING, want_stops=(GRACEFULLY,),
          down=("east-1-1",)),
    Truth("both are down", UP, (over(0, None), over(1, None)), None, Outcome.HOST_LOST,
          (GRACEFULLY,), down=("east-1-0", "east-1-1")),
    Truth("an older attempt still runs", UP, (runs(0, 0), runs(0), runs(1)), RUNNING,
          want_stops=(m.StopTasks("j1", 0, 0.0),)),
    Truth("an older attempt is long over", UP, (over(0, 1, 0), runs(0), runs(1)), RUNNING),
    Truth("nobody knows that job", (), (runs(0, 3, "j7"), runs(1, 3, "j7")), None,
          want_stops=(m.StopTasks("j7", 3, 0.0),) * 2, launched=False),
    Truth("nobody knows that job, and it is over", (), (over(0),), None, launched=False),
]  # fmt: skip


@pytest.mark.parametrize("case", TRUTHS, ids=lambda case: case.story)
def test_the_engine_is_believed(case: Truth) -> None:
    """Orphans are reaped, the missing have failed, the ended are accounted for."""
    manager = Manager()
    if case.launched:
        manager.launch()
    manager.tell(*case.heard)
    manager.ask_truth()
    manager.tell(m.TaskList(case.tasks, case.down))
    attempt = manager.machine.state.attempts.get("j1")
    assert (attempt.phase if attempt else None) is case.want_phase
    if case.want_outcome is not None:
        assert manager.end().outcome is case.want_outcome
    assert tuple(manager.ordered(m.StopTasks)) == case.want_stops
    decided = len(manager.facts)
    manager.tell(m.TaskList(case.tasks, case.down))
    assert len(manager.facts) == decided, "hearing it twice changes nothing"


def test_a_truth_from_before_an_order_is_no_answer_to_it() -> None:
    """A task that began after the truth was told is not in it, and yet may be alive in its grace."""
    manager = Manager()
    manager.launch()
    manager.ask_truth()
    manager.tell(STOP, m.TaskList((), ()))
    assert manager.told(m.AttemptEnded) == []
    manager.ask_truth()
    manager.tell(m.TaskList((), ()))
    assert manager.end().outcome is Outcome.PREEMPTED


def test_a_host_that_the_engine_has_again_is_told_of() -> None:
    """News of its return may be lost; the truth without it among the dead brings it."""
    manager = Manager()
    manager.launch()
    manager.tell(m.HostDown("east-1-1"))
    manager.tell(m.TaskList((), ("east-1-1",)))
    assert [news.up for news in manager.told(m.HostChanged)] == [False, False]
    manager.tell(m.TaskList((), ()))
    assert manager.told(m.HostChanged)[-1] == m.HostChanged("east-1-1", up=True)
    count = len(manager.told(m.HostChanged))
    manager.tell(m.TaskList((), ()))
    assert len(manager.told(m.HostChanged)) == count


def test_an_engine_with_a_dead_host_is_asked_although_nothing_runs() -> None:
    """Or nobody would ever learn that it is back."""
    manager = Manager()
    manager.tell(m.HostDown("east-1-1"))
    manager.wake_at(60.0)
    assert len(manager.ordered(m.ListTasks)) == 1
    manager.tell(m.HostUp("east-1-1"))
    assert manager.machine.next_wakeup_s() is None


def test_a_new_process_learns_which_hosts_are_back() -> None:
    """Their return may have been told to the old one, which wrote nothing down before it died."""
    manager = Manager()
    manager.tell(m.HostDown("east-1-1"))
    manager.machine.restore(manager.machine.snapshot())
    manager.tell(m.Recovered(), m.TaskList((), ("east-1-0",)))
    assert manager.told(m.HostChanged)[-2:] == [
        m.HostChanged("east-1-0", up=False), m.HostChanged("east-1-1", up=True),
    ]  # fmt: skip


def test_a_task_that_was_evicted_meanwhile_is_no_lost_task() -> None:
    """The news of it may be lost; the truth says why it ended."""
    manager = Manager()
    manager.run()
    manager.ask_truth()
    gone = (m.TruthTask("j1", 1, 0, running=False, evicted="timed out"), over(1, 143))
    manager.tell(m.TaskList(gone))
    assert manager.end().outcome is Outcome.PREEMPTED
    assert manager.end().cause == "task 0 was evicted: timed out"
    assert manager.end().suspects == ()


def test_the_truth_tells_of_a_stop_too() -> None:
    """One that is not known here, as after a restore."""
    manager = Manager()
    manager.run()
    manager.ask_truth()
    ends = [m.TruthTask("j1", 1, rank, False, 0, stopped=True) for rank in (0, 1)]
    manager.tell(m.TaskList(tuple(ends)))
    assert manager.end().outcome is Outcome.PREEMPTED
    assert manager.end().cause == "task 0 exited with status 0, after a stop of unknown reason"
    assert manager.end().exit_code is None


def test_the_truth_says_all_hosts_that_are_closed() -> None:
    """What was told in vain is told again, and what has not changed is not."""
    manager = Manager()
    manager.tell(m.TaskList((), (), {"east-1-0": "drained", "stranger": "drained"}))
    assert manager.told(m.ClosedHosts) == [m.ClosedHosts("east-1", {"east-1-0": "drained"})]
    manager.tell(m.TaskList((), (), {"east-1-0": "drained"}))
    manager.tell(m.HostClosed("east-1-1", "in use"), m.HostOpened("east-1-0"))
    manager.tell(m.TaskList((), (), {"east-1-1": "in use"}))
    assert len(manager.told(m.ClosedHosts)) == 1
    manager.tell(m.TaskList(()))
    assert manager.told(m.ClosedHosts)[1:] == [m.ClosedHosts("east-1", {})]


def test_an_engine_with_a_closed_host_is_asked_although_nothing_runs() -> None:
    """Or the news that it is open again could be lost for good."""
    manager = Manager()
    manager.tell(m.TaskList(()))
    manager.tell(m.HostClosed("east-1-1", "drained"))
    assert manager.machine.next_wakeup_s() == 60.0
    manager.tell(m.HostOpened("east-1-1"))
    assert manager.machine.next_wakeup_s() is None


def test_strange_hosts_are_neither_closed_nor_opened() -> None:
    """An engine may know machines that the fleet file does not."""
    manager = Manager()
    manager.tell(m.HostClosed("stranger", "drained"), m.HostOpened("stranger"))
    assert manager.to_placer == []


# --- recovery -----------------------------------------------------------------------------------------------


@dataclass
class Recovery:
    """What had been heard when the process died; what the new one says to the engine."""

    story: str
    heard: tuple[m.Message, ...]
    want: tuple[type[m.Message], ...]


@pytest.mark.parametrize(
    "case",
    [
        Recovery("nothing was there", (exited(0), exited(1)), (m.ListTasks,)),
        Recovery("it was being launched", (started(0),), (m.StartGang, m.ListTasks)),
        Recovery("it ran", UP, (m.ListTasks,)),
        Recovery("it was being stopped", (*UP, STOP), (m.StopTasks, m.ListTasks)),
    ],
    ids=lambda case: case.story,
)
def test_a_new_process_says_again_what_may_not_have_been_heard(case: Recovery) -> None:
    """Orders are repeated, which does no harm, and then the engine is asked what it runs."""
    manager = Manager()
    manager.launch()
    manager.tell(*case.heard)
    blob = manager.machine.snapshot()
    manager.machine.restore(blob)
    assert manager.machine.snapshot() == blob
    manager.to_engine.clear()
    manager.tell(m.Recovered())
    assert tuple(type(order) for order in manager.to_engine) == case.want
