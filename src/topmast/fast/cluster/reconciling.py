"""What an engine says of its hosts, and of all that it runs: differences are made up for."""

from __future__ import annotations

from typing import Any

from topmast.fast.cluster.attempt import Attempt, AttemptPhase, TaskPhase
from topmast.fast.cluster.gangs import GangLifecycle
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.absent import given
from topmast.model.states import Outcome


def host_down(gangs: GangLifecycle, event: m.HostDown) -> None:
    """Stop the gangs of the host; that its tasks are gone the engine says of each.

    The news may be older than a task that runs there by now, for hosts come back.
    """
    if event.host not in gangs.hosts:
        return  # it belongs to another cluster by now, which speaks for it
    gangs.down[event.host] = True
    gangs.tell(m.HostChanged(event.host, up=False))
    for attempt in list(gangs.state.attempts.values()):
        here = [task for task in attempt.tasks if task.seat.host == event.host]
        over = all(task.phase is TaskPhase.ENDED for task in here)
        if not over and attempt.phase is not AttemptPhase.STOPPING:
            cause = f"host {event.host} was lost"
            gangs.stop(attempt, Outcome.HOST_LOST, cause, suspects=(event.host,))


def host_up(gangs: GangLifecycle, event: m.HostUp) -> None:
    """The host answers (again)."""
    if event.host in gangs.hosts:
        gangs.down.pop(event.host, None)
        gangs.tell(m.HostChanged(event.host, up=True))


def host_closed(gangs: GangLifecycle, event: m.HostClosed | m.HostOpened) -> None:
    """The placer puts no new work there, or does so again; what runs there is let alone."""
    if event.host not in gangs.hosts:
        return
    if gangs.closed is not None and isinstance(event, m.HostClosed):
        gangs.closed[event.host] = event.why
    elif gangs.closed is not None:
        gangs.closed.pop(event.host, None)
    gangs.tell(event)


def truth(gangs: GangLifecycle, event: m.TaskList) -> None:
    """Account late news, fail what the engine lost, end tasks without an attempt."""
    _compare_hosts(gangs, event)
    known = {(t.job, t.epoch, t.rank) for t in event.tasks}
    for task in event.tasks:
        _compare_task(gangs, task)
    for attempt in list(gangs.state.attempts.values()):
        if attempt.phase is not AttemptPhase.STARTING:
            _fail_missing(gangs, attempt, known)


def _compare_hosts(gangs: GangLifecycle, event: m.TaskList) -> None:
    for host in event.down_hosts:
        host_down(gangs, m.HostDown(host))
    for host in [host for host in gangs.down if host not in event.down_hosts]:
        host_up(gangs, m.HostUp(host))
    closed = {h: why for h, why in given(event.closed_hosts, {}).items() if h in gangs.hosts}
    if closed != gangs.closed:
        gangs.closed = closed
        gangs.tell(m.ClosedHosts(gangs.name, dict(closed)))


def _compare_task(gangs: GangLifecycle, task: m.TruthTask) -> None:
    key = (task.job, task.epoch, task.rank)
    if gangs.attempt(task.job, task.epoch) is None:
        if task.running:
            # Without grace: its GPUs count as free, and its job may be started again meanwhile.
            gangs.send(ids.engine(gangs.name), m.StopTasks(task.job, task.epoch, 0.0))
    elif task.running:
        gangs.task_started(m.TaskStarted(*key, task.at_s))
    elif task.code is not None:
        at = (task.code, task.at_s, task.report)
        gangs.task_exited(m.TaskExited(*key, *at, stopped=task.stopped))
    elif given(task.evicted, None) is not None:
        gangs.task_evicted(m.TaskEvicted(*key, given(task.evicted, "")))
    else:
        gangs.task_lost(m.TaskLost(*key, "no exit status"))


def _fail_missing(gangs: GangLifecycle, attempt: Attempt, known: set[Any]) -> None:
    """What the engine does not know is gone, if it was asked after our last order for it."""
    if not gangs.asked_since_order(attempt):
        return
    for task in list(attempt.tasks):
        key = (attempt.job, attempt.epoch, task.seat.rank)
        if task.phase is not TaskPhase.ENDED and key not in known:
            gangs.task_lost(m.TaskLost(*key, "the engine does not know it"))
