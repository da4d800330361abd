"""Deadlines: of launching, of stopping, of the job itself; and when the engine is asked."""

import msgspec
import pytest

from tests.support.build import cluster
from tests.unit.fast.cluster.manager import Manager, exited, lost, started
from topmast.model import messages as m
from topmast.model.engines import Deadlines
from topmast.model.job import Checkpoint
from topmast.model.states import Outcome

GRACE_S = 30.0
LIMITS = Deadlines()


def test_a_manager_without_work_never_wakes() -> None:
    """Idle clusters cost nothing."""
    manager = Manager()
    assert manager.machine.next_wakeup_s() is None
    manager.run()
    manager.tell(exited(0), exited(1))
    assert manager.machine.next_wakeup_s() is None


def test_a_gang_that_is_not_up_in_time_is_stopped_whole() -> None:
    """Those that are late are suspects; those that were up stop with the others."""
    manager = Manager()
    manager.launch()
    manager.tell(started(0))
    manager.wake_at(LIMITS.start_within_s - 1)
    assert manager.ordered(m.StopTasks) == []
    manager.wake_at(LIMITS.start_within_s)
    assert manager.ordered(m.StopTasks) == [m.StopTasks("j1", 1, GRACE_S)]
    manager.tell(exited(0, 143), lost(1))
    assert manager.end().outcome is Outcome.LAUNCH_FAILED
    assert manager.end().suspects == ("east-1-1",)


def test_a_gang_that_waits_for_its_cluster_in_vain_says_for_what() -> None:
    """In the words of the cluster, the last ones; then no host is suspect."""
    manager = Manager()
    manager.launch()
    manager.tell(m.TaskPreparing("j1", 1, 1, "pulling image"))
    manager.tell(m.TaskPreparing("j1", 1, 1, "Resources"), m.TaskPreparing("j1", 7, 1, "other"))
    assert not [fact for fact in manager.facts if "Resources" in repr(fact)], "it is not kept"
    manager.wake_at(LIMITS.start_within_s)
    manager.tell(lost(0), lost(1))
    assert manager.end().cause == "the gang did not start within 120 s: Resources"
    assert (manager.end().outcome, manager.end().suspects) == (Outcome.LAUNCH_FAILED, ())


def test_a_gang_that_is_up_has_no_launch_deadline() -> None:
    """Also when a task ended before it was heard to start."""
    for happens in ((started(0), started(1)), (started(0), exited(1)), (exited(1), started(0))):
        manager = Manager()
        manager.launch()
        manager.tell(*happens)
        manager.wake_at(10 * LIMITS.start_within_s)
        assert manager.ordered(m.StopTasks) == []


def test_an_engine_that_does_not_stop_is_told_again_and_again() -> None:
    """First with the job's grace; later without."""
    manager = Manager()
    manager.run(checkpoint=Checkpoint(grace_s=100.0))
    manager.tell(m.StopGang("j1", 1, Outcome.PREEMPTED))
    manager.wake_at(100 + 3 * LIMITS.stop_within_s)
    assert [order.grace_s for order in manager.ordered(m.StopTasks)] == [100.0, 0.0, 0.0, 0.0]
    assert manager.told(m.AttemptEnded) == []
    manager.tell(exited(0, 137), exited(1, 137))
    assert manager.end().outcome is Outcome.PREEMPTED


def test_the_time_limit_strikes_in_the_middle_of_work() -> None:
    """What is left of it counts from the launch."""
    manager = Manager()
    manager.run(time_limit_s=3_600.0, time_left_s=500.0)
    manager.wake_at(499)
    assert manager.told(m.AttemptStopping) == []
    manager.wake_at(500)
    (stopping,) = manager.told(m.AttemptStopping)
    assert stopping.why is Outcome.TIME_LIMIT
    assert stopping.cause == "time limit of 3600 s reached"
    manager.tell(exited(0, 0), exited(1, 143))
    assert manager.end().outcome is Outcome.TIME_LIMIT


def test_the_time_limit_does_not_touch_what_is_stopping() -> None:
    """The first reason stands."""
    manager = Manager()
    manager.run(time_limit_s=100.0, time_left_s=100.0)
    manager.now = 90.0
    manager.tell(m.StopGang("j1", 1, Outcome.PREEMPTED))
    manager.wake_at(101)
    assert [order.grace_s for order in manager.ordered(m.StopTasks)] == [GRACE_S]


@pytest.mark.parametrize("phase", ["starting", "running", "stopping"])
def test_the_engine_is_asked_for_its_truth_while_anything_is_there(phase: str) -> None:
    """At the first launch, and every minute from then on, whatever the gang is doing."""
    manager = Manager()
    manager.now = 1_000.0
    manager.launch()
    if phase != "starting":
        manager.tell(started(0), started(1))
    if phase == "stopping":
        manager.tell(m.StopGang("j1", 1, Outcome.PREEMPTED))
    manager.wake_at(1_000.0)
    assert len(manager.ordered(m.ListTasks)) == 1
    manager.wake_at(1_000.0 + 3 * LIMITS.truth_every_s)
    assert len(manager.ordered(m.ListTasks)) == 4


def test_a_cluster_may_take_its_own_time() -> None:
    """To start, to stop, and until it is asked again; the last configuration counts."""
    manager = Manager()
    slow = Deadlines(start_within_s=900.0, stop_within_s=90.0, truth_every_s=300.0)
    spec = msgspec.structs.replace(cluster("east-1"), deadlines=slow)
    manager.tell(m.ConfigureCluster("east", spec))
    manager.machine.restore(manager.machine.snapshot())
    manager.launch()
    manager.wake_at(899.0)
    assert len(manager.ordered(m.ListTasks)) == 2, "after 300 and 600 s"
    assert manager.ordered(m.StopTasks) == []
    manager.wake_at(900.0)
    manager.wake_at(900.0 + GRACE_S + 89.0)
    assert len(manager.ordered(m.StopTasks)) == 1
    manager.wake_at(900.0 + GRACE_S + 90.0)
    assert len(manager.ordered(m.StopTasks)) == 2
    manager.tell(lost(0), lost(1))
    assert manager.end().cause == "the gang did not start within 900 s"


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_gang_has_its_whole_time_to_start_after_a_restart(jump_s: float) -> None:
    """The next leader's clock may be another one, and until then no news was heard."""
    manager = Manager()
    manager.now = 10_000.0
    manager.launch()
    start_within_s = manager.machine.limits.start_within_s
    manager.now += jump_s
    manager.tell(m.Recovered(), m.Wake())
    manager.wake_at(manager.now + start_within_s - 1.0)
    assert manager.ordered(m.StopTasks) == []
    manager.tell(started(0), started(1))
    assert manager.told(m.AttemptRunning) == [m.AttemptRunning("j1", 1)]


def test_a_gang_that_does_not_start_after_a_restart_is_stopped_in_time() -> None:
    manager = Manager()
    manager.now = 10_000.0
    manager.launch()
    manager.now -= 3600.0
    manager.tell(m.Recovered())
    manager.wake_at(manager.now + manager.machine.limits.start_within_s)
    (stopping,) = manager.told(m.AttemptStopping)
    assert stopping.why is Outcome.LAUNCH_FAILED


def test_a_gang_that_is_to_stop_has_its_grace_after_a_restart_too() -> None:
    """What ends it without grace comes when its grace is over, whatever the clock says."""
    manager = Manager()
    manager.run()
    manager.tell(m.StopGang("j1", 1, Outcome.PREEMPTED, "make room"))
    manager.now += 3600.0
    manager.tell(m.Recovered(), m.Wake())
    grace_s = [stop.grace_s for stop in manager.ordered(m.StopTasks)]
    assert len(grace_s) == 2
    assert min(grace_s) > 0.0
    within_s = grace_s[0] + manager.machine.limits.stop_within_s
    manager.wake_at(manager.now + within_s)
    assert manager.ordered(m.StopTasks)[-1].grace_s == 0.0
