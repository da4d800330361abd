"""The lifecycle of gangs in one cluster: a gang starts whole or not at all, and ends whole (MAST).

It tells an engine what to start and stop, hears what became of each task, and reports to the
region's placer: running, checkpointed, stopping, ended. It never chooses hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from topmast.fast.cluster import facts as f
from topmast.fast.cluster.attempt import Attempt, AttemptPhase, Task, TaskPhase, outcome_of_end
from topmast.fast.cluster.hooks import GangHooks
from topmast.fast.machine import EventMachine, Fact
from topmast.fast.timers import Timers
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.absent import given
from topmast.model.engines import Deadlines
from topmast.model.fleet import ClusterSpec
from topmast.model.job import JobSpec
from topmast.model.plan import Seat
from topmast.model.states import Outcome, status_text

FENCES_KEPT = 100_000
Gang = tuple[str, int, JobSpec, tuple[Seat, ...], float | None]
"""Job, epoch, request, seats, and what is left of the time limit."""


class _State(Struct):
    region: str = ""
    cluster: ClusterSpec | None = None
    attempts: dict[str, Attempt] = {}
    fences: dict[str, int] = {}


class GangLifecycle(EventMachine):
    """The gangs of one cluster; code that lets them share GPUs takes part by ``hooks``.

    All handlers cost O(tasks of the attempt) or less, and what the hooks cost. Without
    ``reconcile`` the engine never loses news, and need not be asked what it runs.
    """

    def __init__(self, name: str, *, reconcile: bool = True) -> None:
        super().__init__()
        self.name = name
        self.reconcile = reconcile
        self.hooks: tuple[GangHooks, ...] = ()
        self.state = _State()
        self._truth_asked_s = 0.0
        # Orders are counted, to tell which a truth was asked after.
        self._orders = self._asked_after = 0
        self._ordered: dict[str, int] = {}
        self._waits: dict[str, str] = {}
        """What the tasks of a starting gang wait for, as its cluster says."""
        self.deadlines: Timers[str] = Timers()
        """By job, when its attempt's present phase, or all of it, will have lasted too long."""
        self.limits = Deadlines()
        """How long things may take in this cluster."""
        self.hosts: frozenset[str] = frozenset()
        """Those of the cluster, by name."""
        self.down: dict[str, bool] = {}
        """Hosts that may be down, until a truth does not name them."""
        self.closed: dict[str, str] | None = None
        """Why, by host; None before the first truth: the placer may know of others."""

    # --- configuration and recovery -----------------------------------------------------------

    def _configure(self, event: m.ConfigureCluster) -> None:
        before = self.state.cluster
        if (self.state.region, before) != (event.region, event.cluster):
            self.decide(f.ClusterSet())
            if before is not None and before.hosts != event.cluster.hosts:
                self.send(ids.engine(self.name), m.SetHosts(event.cluster.hosts))

    def _recovered(self, event: m.Recovered) -> None:
        """Repeat what the engine may have missed; if it may lose news, compare its tasks.

        It has its whole time again: no news was heard meanwhile, and the clock may be another.
        """
        for attempt in self.state.attempts.values():
            if attempt.phase is AttemptPhase.STARTING:
                self._repeat(attempt, self.limits.start_within_s)
                self._start(attempt)
            elif attempt.phase is AttemptPhase.STOPPING:
                self._repeat(attempt, attempt.spec.checkpoint.grace_s + self.limits.stop_within_s)
                self.stop_tasks(attempt)
        if self.reconcile:
            self.down = dict.fromkeys(sorted(self.hosts), True)
            self._ask_truth()
        for hook in self.hooks:
            hook.on_recovered()

    def _ask_truth(self) -> None:
        self._truth_asked_s, self._asked_after = self.now, self._orders
        self.send(ids.engine(self.name), m.ListTasks())

    # --- launching ----------------------------------------------------------------------------

    def _launch(self, event: m.LaunchGang) -> None:
        if event.epoch > self.state.fences.get(event.job, 0):
            self.decide(f.Opened(self.now + self.limits.start_within_s))
            self._start(self.state.attempts[event.job])
        # else it is a repetition, or an attempt that was stopped before it arrived here
        if (attempt := self.attempt(event.job, event.epoch)) is not None:
            for hook in self.hooks:
                hook.on_launched(attempt)

    def _start(self, attempt: Attempt) -> None:
        if not self.hooks or all(hook.may_start(attempt) for hook in self.hooks):
            self.start_tasks(attempt)

    def start_tasks(self, attempt: Attempt) -> None:
        """Tell the engine to start a gang."""
        seats = tuple([task.seat for task in attempt.tasks])
        order = m.StartGang(
            attempt.job, attempt.epoch, attempt.spec, attempt.region, self.name, seats
        )
        self.order(attempt, order)

    def order(self, attempt: Attempt, order: m.Message) -> None:
        """Tell the engine something about a gang."""
        self._orders += 1
        self._ordered[attempt.job] = self._orders
        self.send(ids.engine(self.name), order)

    def task_started(self, event: m.TaskStarted) -> None:
        task = self._task(event.job, event.epoch, event.rank)
        if task is None or task.phase is not TaskPhase.WAITING:
            return
        self.decide(f.TaskUp(event.job, event.epoch, event.rank))
        self._note_up(self.state.attempts[event.job])

    def task_preparing(self, event: m.TaskPreparing) -> None:
        """It is kept for the case that the gang does not start in time."""
        attempt = self.attempt(event.job, event.epoch)
        if attempt is not None and attempt.phase is AttemptPhase.STARTING:
            self._waits[event.job] = event.why

    def _note_up(self, attempt: Attempt) -> None:
        """The gang runs once every task was started, or has already done its work."""
        if attempt.phase is AttemptPhase.STARTING and attempt.up:
            self.decide(f.GangUp(attempt.job, attempt.epoch))
            self._waits.pop(attempt.job, None)
            self.tell(m.AttemptRunning(attempt.job, attempt.epoch))
        for hook in self.hooks:
            hook.on_up(attempt)

    # --- news of tasks ------------------------------------------------------------------------

    def task_exited(self, event: m.TaskExited) -> None:
        """After a stop that the journal does not know, as after a restore, the gang is preempted.

        Even if its status is 0: a job that runs once more is safe, one that counts as done is lost.
        """
        attempt = self.attempt(event.job, event.epoch)
        if attempt is None:
            return
        cause = event.error or f"task {event.rank} exited with {status_text(event.code)}"
        if event.stopped is True and attempt.phase is not AttemptPhase.STOPPING:
            self.stop(attempt, Outcome.PREEMPTED, f"{cause}, after a stop of unknown reason")
        key, report = (event.job, event.epoch, event.rank), event.report
        at_s = attempt.end_of_task_s(event.at_s, self.now)
        self._task_ended(f.TaskDown(*key, event.code, report.step, report.metrics, at_s), cause)

    def task_lost(self, event: m.TaskLost) -> None:
        self._task_ended(
            f.TaskDown(event.job, event.epoch, event.rank, None),
            cause=f"task {event.rank} was lost: {event.error}",
            blameless=event.blameless is True,
            unprepared=event.unprepared,
        )

    def task_evicted(self, event: m.TaskEvicted) -> None:
        """The gang is preempted: it waits again, and neither it nor the host is at fault."""
        self._task_ended(
            f.TaskDown(event.job, event.epoch, event.rank, None),
            cause=f"task {event.rank} was evicted: {event.why}",
            blameless=True,
            evicted=True,
        )

    def _task_ended(
        self, fact: f.TaskDown, cause: str, *, blameless: bool = False, evicted: bool = False,
        unprepared: bool = False,
    ) -> None:  # fmt: skip
        """One task is over: the gang goes on, stops for it, or is over as well."""
        task = self._task(fact.job, fact.epoch, fact.rank)
        if task is None or task.phase is TaskPhase.ENDED:
            return
        attempt = self.state.attempts[fact.job]
        was_waiting = unprepared or task.phase is TaskPhase.WAITING
        self.decide(fact)
        suspects = () if blameless or fact.code is not None else (task.seat.host,)
        if attempt.phase is not AttemptPhase.STOPPING and fact.code != 0:
            self._stop_for_failure(attempt, fact, suspects, cause, was_waiting, evicted)
        elif attempt.why is Outcome.FAILED and not was_waiting and (suspects or evicted):
            self._excuse(attempt, suspects, cause, evicted)
        self._note_up(attempt)
        if attempt.ended:
            self.close(attempt)

    def _stop_for_failure(
        self,
        attempt: Attempt,
        fact: f.TaskDown,
        suspects: tuple[str, ...],
        cause: str,
        was_waiting: bool,
        evicted: bool,
    ) -> None:
        why = outcome_of_end(fact.code, was_waiting=was_waiting, evicted=evicted)
        self.stop(
            attempt, why, cause, exit_code=fact.code, suspects=suspects, evicted=evicted or UNSET
        )

    def _excuse(
        self, attempt: Attempt, suspects: tuple[str, ...], cause: str, evicted: bool
    ) -> None:
        """What failed had lost a peer: the job's own restarts are not for that.

        Peers see a broken connection at once; that the host is lost is known a lease later.
        """
        why = Outcome.PREEMPTED if evicted else Outcome.HOST_LOST
        cause = f"{cause}; before that was known, {attempt.cause}"
        key, deadline_s = (attempt.job, attempt.epoch), attempt.deadline_s
        self.decide(f.GangStopping(*key, why, cause, deadline_s, None, suspects, evicted or UNSET))

    def _checkpointed(self, event: m.Checkpointed) -> None:
        attempt = self.attempt(event.job, event.epoch)
        if attempt and (attempt.kept_until_s is None or event.at_s > attempt.kept_until_s):
            self.decide(f.CheckpointRecorded(event.job, event.epoch, event.step, event.at_s))
            self.tell(m.AttemptCheckpointed(event.job, event.epoch, event.step, event.at_s))

    def _resumed(self, event: m.Resumed) -> None:
        if self.attempt(event.job, event.epoch):
            self.tell(m.AttemptResumed(event.job, event.epoch, event.step))

    # --- stopping -----------------------------------------------------------------------------

    def _stop_gang(self, event: m.StopGang) -> None:
        attempt = self.attempt(event.job, event.epoch)
        if attempt is None:
            if event.epoch > self.state.fences.get(event.job, 0):
                key, now = (event.job, event.epoch), self.now
                self.decide(f.Refused(*key))
                self.tell(m.AttemptEnded(*key, event.why, now, now, 0.0, event.cause))
            return
        if attempt.phase is not AttemptPhase.STOPPING:
            self.stop(attempt, event.why, event.cause, announce=False)

    def stop(
        self,
        attempt: Attempt,
        why: Outcome,
        cause: str,
        *,
        exit_code: int | None = None,
        suspects: tuple[str, ...] = (),
        announce: bool = True,
        evicted: bool | UnsetType = UNSET,
    ) -> None:
        """Stop a gang for a reason, and tell the placer, which may know already."""
        deadline_s = self.now + attempt.spec.checkpoint.grace_s + self.limits.stop_within_s
        key = (attempt.job, attempt.epoch)
        self.decide(f.GangStopping(*key, why, cause, deadline_s, exit_code, suspects, evicted))
        self.stop_tasks(attempt)
        if announce:
            self.tell(m.AttemptStopping(attempt.job, attempt.epoch, why, cause))

    def stop_tasks(self, attempt: Attempt, grace_s: float | None = None) -> None:
        """Tell the engine to stop a gang, if that may be now."""
        if all(hook.may_stop(attempt) for hook in self.hooks):
            grace_s = attempt.spec.checkpoint.grace_s if grace_s is None else grace_s
            self.order(attempt, m.StopTasks(attempt.job, attempt.epoch, grace_s))

    def _repeat(self, attempt: Attempt, within_s: float) -> None:
        """An order is given once more, and has so long from now on."""
        self.decide(f.OrderRepeated(attempt.job, attempt.epoch, self.now + within_s))

    def close(self, attempt: Attempt) -> None:
        """Report the end; what was never stopped has succeeded, for every status was 0."""
        outcome = attempt.why or Outcome.SUCCEEDED
        end_s, turns = attempt.ended_s, attempt.turns
        kept_until_s = attempt.kept_until_s or attempt.opened_s
        kept_until_s = end_s if outcome is Outcome.SUCCEEDED else kept_until_s
        self.decide(f.Closed(attempt.job, attempt.epoch))
        self._ordered.pop(attempt.job, None)
        self._waits.pop(attempt.job, None)
        self.tell(
            m.AttemptEnded(
                job=attempt.job,
                epoch=attempt.epoch,
                outcome=outcome,
                start_s=attempt.opened_s,
                end_s=end_s,
                kept_s=attempt.ran_s(min(kept_until_s, end_s)),
                cause=attempt.cause,
                exit_code=attempt.exit_code,
                step=attempt.step,
                metrics=attempt.metrics,
                suspects=attempt.suspects,
                suspended_s=UNSET if turns is None else turns.paused_until_s(end_s),
                evicted=attempt.evicted,
            )
        )
        for hook in self.hooks:
            hook.on_closed(attempt)

    # --- time ---------------------------------------------------------------------------------

    def next_wakeup_s(self) -> float | None:
        """The earliest deadline of an attempt, or the next reconciliation. Amortised O(log n)."""
        first_s = self.deadlines.next_s()
        if self.reconcile and (self.state.attempts or self.down or self.closed):
            truth_s = self._truth_asked_s + self.limits.truth_every_s
            first_s = truth_s if first_s is None or truth_s < first_s else first_s
        for hook in self.hooks:  # without a list: every cluster is asked at every turn
            at_s = hook.next_wakeup_s()
            if at_s is not None and (first_s is None or at_s < first_s):
                first_s = at_s
        return first_s

    def _wake(self, event: m.Wake) -> None:
        for hook in self.hooks:
            hook.before_wake()
        if self.reconcile and self._truth_asked_s + self.limits.truth_every_s <= self.now:
            self._ask_truth()
        due = dict.fromkeys(self.deadlines.take_due(self.now))
        for attempt in [a for a in self.state.attempts.values() if a.job in due] if due else ():
            if not attempt.still:  # while others have its GPUs, its time does not count
                self._last_too_long(attempt)
        for hook in self.hooks:
            hook.on_wake()

    def _last_too_long(self, attempt: Attempt) -> None:
        limit_s = attempt.limit_s()
        if attempt.phase is AttemptPhase.STOPPING:
            if attempt.deadline_s <= self.now:
                self._repeat(attempt, self.limits.stop_within_s)
                self.stop_tasks(attempt, grace_s=0.0)
        elif limit_s is not None and limit_s <= self.now:
            limit = attempt.spec.time_limit_s
            self.stop(attempt, Outcome.TIME_LIMIT, f"time limit of {limit:g} s reached")
        elif attempt.phase is AttemptPhase.STARTING and attempt.deadline_s <= self.now:
            late = tuple(t.seat.host for t in attempt.tasks if t.phase is TaskPhase.WAITING)
            cause = f"the gang did not start within {self.limits.start_within_s:g} s"
            if why := self._waits.get(attempt.job):  # then the hosts are not what it waits for
                cause, late = f"{cause}: {why}", ()
            self.stop(attempt, Outcome.LAUNCH_FAILED, cause, suspects=late)

    def asked_since_order(self, attempt: Attempt) -> bool:
        """Whether the engine was asked what it runs after the last order for an attempt."""
        return self._ordered.get(attempt.job, 0) <= self._asked_after

    # --- helpers ------------------------------------------------------------------------------

    def attempt(self, job: str, epoch: int) -> Attempt | None:
        attempt = self.state.attempts.get(job)
        return attempt if attempt is not None and attempt.epoch == epoch else None

    def _task(self, job: str, epoch: int, rank: int) -> Task | None:
        attempt = self.attempt(job, epoch)
        return attempt.tasks[rank] if attempt and 0 <= rank < len(attempt.tasks) else None

    def watch(self, attempt: Attempt) -> None:
        """The phase or the limits of an attempt changed. O(log attempts)."""
        self.deadlines.set(attempt.job, attempt.next_deadline_s())

    def tell(self, message: m.Message) -> None:
        """Tell the placer something."""
        self.send(ids.placer(self.state.region), message)

    # --- facts --------------------------------------------------------------------------------

    def _apply_cluster(self, fact: f.ClusterSet, event: m.ConfigureCluster) -> None:
        self.state.region = event.region
        self._know(event.cluster)

    def _know(self, cluster: ClusterSpec) -> None:
        self.state.cluster = cluster
        self.hosts = frozenset(host.name for host in cluster.hosts)
        self.down = {host: True for host in self.down if host in self.hosts}
        if self.closed is not None:  # for what went another cluster speaks
            self.closed = {host: why for host, why in self.closed.items() if host in self.hosts}
        self.limits = given(cluster.deadlines, Deadlines())

    def _apply_opened(self, fact: f.Opened, event: m.LaunchGang) -> None:
        one = (event.job, event.epoch, event.spec, event.seats, event.time_left_s)
        self.open_each(event.region, [one], fact.deadline_s)
        for hook in self.hooks:
            hook.apply_opened(self.state.attempts[event.job], event)

    def open_each(self, region: str, gangs: Iterable[Gang], deadline_s: float) -> None:
        """Gangs were accepted for launch. O(tasks)."""
        for job, epoch, spec, seats, time_left_s in gangs:
            tasks = [Task(seat) for seat in seats]
            attempt = Attempt(job, epoch, spec, region, tasks, self.now, deadline_s, time_left_s)
            self.state.attempts[job] = attempt
            self.watch(attempt)
            self.fence(job, epoch)

    def _apply_up(self, fact: f.TaskUp, event: m.Message) -> None:
        self.state.attempts[fact.job].tasks[fact.rank].phase = TaskPhase.RUNNING

    def _apply_down(self, fact: f.TaskDown, event: m.Message) -> None:
        attempt = self.state.attempts[fact.job]
        task = attempt.tasks[fact.rank]
        task.phase = TaskPhase.ENDED
        task.code = fact.code
        task.ended_s = given(fact.at_s, self.now)
        if fact.step is not None:
            attempt.step = fact.step
        if fact.metrics and (fact.rank == 0 or not attempt.metrics):
            attempt.metrics = fact.metrics

    def _apply_gang_up(self, fact: f.GangUp, event: m.Message) -> None:
        attempt = self.state.attempts[fact.job]
        attempt.phase = AttemptPhase.RUNNING
        self.watch(attempt)

    def _apply_stopping(self, fact: f.GangStopping, event: m.Message) -> None:
        attempt = self.state.attempts[fact.job]
        attempt.phase = AttemptPhase.STOPPING
        attempt.why, attempt.cause = fact.why, fact.cause
        attempt.deadline_s = fact.deadline_s
        attempt.exit_code, attempt.suspects = fact.exit_code, fact.suspects
        attempt.evicted = fact.evicted
        self.watch(attempt)

    def _apply_repeated(self, fact: f.OrderRepeated, event: m.Message) -> None:
        attempt = self.state.attempts[fact.job]
        attempt.deadline_s = fact.deadline_s
        self.watch(attempt)

    def _apply_marked(self, fact: f.CheckpointRecorded, event: m.Message) -> None:
        self.state.attempts[fact.job].keep(fact.at_s, fact.step)

    def _apply_closed(self, fact: f.Closed, event: m.Message) -> None:
        for hook in self.hooks:
            hook.apply_closed(self.state.attempts[fact.job])
        del self.state.attempts[fact.job]
        self.deadlines.drop(fact.job)

    def _apply_refused(self, fact: f.Refused, event: m.Message) -> None:
        self.fence(fact.job, fact.epoch)

    def fence(self, job: str, epoch: int) -> None:
        """Remember the newest epoch of a job; the longest-unseen job is safe to forget."""
        fences = self.state.fences
        fences.pop(job, None)
        fences[job] = epoch
        if len(fences) > FENCES_KEPT:
            del fences[next(iter(fences))]

    # --- snapshots ----------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The whole state as JSON. O(attempts)."""
        return msgspec.json.encode(self.state)

    def restore(self, blob: bytes) -> None:
        """Take up a state written by ``snapshot``."""
        self.state = msgspec.json.decode(blob, type=_State)
        if self.state.cluster is not None:
            self._know(self.state.cluster)
        self.deadlines = Timers()
        for attempt in self.state.attempts.values():
            self.watch(attempt)

    handlers: ClassVar[dict[type[m.Message], Callable[..., Any]]] = {
        m.ConfigureCluster: _configure,
        m.Recovered: _recovered,
        m.Wake: _wake,
        m.LaunchGang: _launch,
        m.StopGang: _stop_gang,
        m.TaskStarted: task_started,
        m.TaskExited: task_exited,
        m.TaskLost: task_lost,
        m.TaskEvicted: task_evicted,
        m.TaskPreparing: task_preparing,
        m.Checkpointed: _checkpointed,
        m.Resumed: _resumed,
    }
    appliers: ClassVar[dict[type[Fact], Callable[..., None]]] = {
        f.ClusterSet: _apply_cluster,
        f.Opened: _apply_opened,
        f.TaskUp: _apply_up,
        f.TaskDown: _apply_down,
        f.GangUp: _apply_gang_up,
        f.GangStopping: _apply_stopping,
        f.OrderRepeated: _apply_repeated,
        f.CheckpointRecorded: _apply_marked,
        f.Closed: _apply_closed,
        f.Refused: _apply_refused,
    }
