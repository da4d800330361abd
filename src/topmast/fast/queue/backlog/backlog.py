"""The backlog: all waiting jobs, in what order they are tried, and which need not be tried now.

A waiting job belongs to a job class: to a quota gate and a placement class (`placement_class`). If
one job of a class finds no place, none behind it in the order does; the class is blocked until
something changes that may help it (`blocked`). The order of all jobs is that of the ranking.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from topmast.fast.queue.backlog.aside import Aside
from topmast.fast.queue.backlog.attained_service import AttainedService
from topmast.fast.queue.backlog.blocked import (
    BOTH,
    WITHIN,
    Anything,
    Blocked,
    Candidate,
    JobMayMore,
)
from topmast.fast.queue.backlog.durations import LONGEST_S, Durations, left_of
from topmast.fast.queue.backlog.ordered_index import PLACEMENT, Key
from topmast.fast.queue.backlog.placement_class import (
    JobClass,
    PlacementClass,
    job_key,
    placement_key,
)
from topmast.fast.queue.backlog.priority_timers import PriorityTimers
from topmast.fast.queue.backlog.ranking import Ranking
from topmast.fast.queue.backlog.running import RunningJobs
from topmast.fast.queue.backlog.task_mix import Mix
from topmast.fast.queue.backlog.topology_policy import TopologyPolicy
from topmast.fast.queue.backlog.waiting import Waiting
from topmast.fast.queue.hooks import Grant, Grants
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.tenancy.entitlements import Key as ClassKey
from topmast.fast.queue.tenancy.entitlements import QuotaGate, gate_key
from topmast.fast.timers import Timers
from topmast.model.job import MILLI, Band, JobSpec, Topology
from topmast.model.window import Stay
from topmast.policies.base import OrderPolicy, QueueView

GATES_KEPT = 1_024
"""With more gates than that, those without a job are forgotten: they often come again."""
CLASSES_KEPT = 256
"""So many job classes without a job are kept: most jobs that come are like one before."""


class Backlog:
    """All jobs that may be placed now, and those that must wait out a back-off."""

    def __init__(
        self,
        order: OrderPolicy,
        fairness: Callable[[str], float],
        durations: Durations,
        topology_policy: TopologyPolicy | None = None,
        grants: Grants | None = None,
        rerank_interval_s: float = 0.0,
        min_runtime_s: float = 0.0,
        stay_of: Callable[[JobRecord], Stay | None] = lambda record: None,
        has_quotas: Callable[[], bool] = lambda: True,
    ) -> None:
        self.ranking = Ranking(order, fairness)
        self.blocked = Blocked(self.ranking)
        self.unblock, self.block = self.blocked.unblock, self.blocked.block
        self.durations = durations
        self.topology_policy = topology_policy or TopologyPolicy(None)
        self.grants = grants or Grants()
        self._in_turns = turns = grants is not None
        self.running = RunningJobs(self.ranking, self.ranked, min_runtime_s, in_turns=turns)
        """Kept where a job may stop others by rank (`RunningHooks`)."""
        self._stay_of, self._has_quotas = stay_of, has_quotas
        self.mix = Mix()
        self.attained_service = AttainedService(order)
        self.priority_timers = PriorityTimers(order, rerank_interval_s)
        self.job_classes: dict[ClassKey, JobClass] = {}
        """Those with jobs."""
        self._resting: dict[ClassKey, JobClass] = {}
        """Those without, the longest unused first."""
        self._numbers = self._opportunistic = 0
        """Job classes that were made; and those with jobs that are always over quota."""
        self._class_of: dict[str, JobClass] = {}
        """By job."""
        self._gates: dict[ClassKey, QuotaGate] = {}
        self._free_numbers: list[int] = []
        self._movers: dict[str, None] = {}
        """Jobs for which a place may be kept."""
        self.delays: Timers[str] = Timers()
        """When the back-off of a job ends."""
        self._delayed: dict[str, JobRecord] = {}
        self.aside = Aside()

    # --- jobs come and go -------------------------------------------------------------------------

    def add(self, record: JobRecord, now: float) -> None:
        """Let a job be tried in its turn, or wait out its back-off, or stand aside.

        O(1), or O(log jobs).
        """
        if record.is_aside:
            self.aside.add(record)
            return
        if record.not_before_s > now:
            self.delays.set(record.id, record.not_before_s, record.number)
            self._delayed[record.id] = record
            return
        grant = self.grants.grant(record.id)
        topology = self.topology_policy.topology_of(record.spec)
        stay = self._stay_of(record)
        placement = placement_key(
            record.spec, topology, record.avoid_hosts, record.bound, grant, stay
        )
        key = job_key(record.spec, placement)
        found = self.job_classes.get(key)
        if found is None:
            found = self._resting.pop(key, None)
            if found is None:
                found = self._new_class(record, topology, grant, stay, placement)
            self.job_classes[key] = found
            self._opportunistic += found.spec.band is Band.OPPORTUNISTIC
            self.blocked.enter(found)
        found.size += 1
        self._class_of[record.id] = found
        if record.moves:
            self._movers[record.id] = None
        self.ranking.add(self.ranked(record, found.number))
        self.blocked.stirred = True

    @property
    def keeps_no_times(self) -> bool:
        """Whether jobs that ask for the same are ranked by their numbers and expected runs alone.

        Not so where ranks drift, jobs take turns, or runs are predicted from what came before.
        """
        drifts, predicts = self.priority_timers.drifts, self.durations.predicts
        return not (drifts or predicts or self._in_turns)

    def add_alike(self, found: JobClass, records: Sequence[JobRecord]) -> None:
        """Let jobs of a class be tried in their turns that were admitted just now. O(records).

        They have no back-off and do not stand aside, and `keeps_no_times`.
        """
        if not records:
            return
        expected_s = [self.durations.expected_s(record.spec) for record in records]
        jobs = [record.id for record in records]
        found.size += len(jobs)
        self._class_of.update(dict.fromkeys(jobs, found))
        first = self.ranked(records[0], found.number)
        self.ranking.add_alike(first, jobs, [r.number for r in records], expected_s)
        self.blocked.stirred = True

    def _new_class(
        self,
        record: JobRecord,
        topology: Topology,
        grant: Grant | None,
        stay: Stay | None,
        within: ClassKey,
    ) -> JobClass:
        """The class of a job that is the first of it. O(groups + datasets)."""
        if self._free_numbers:
            number = self._free_numbers.pop()
        else:
            number, self._numbers = self._numbers, self._numbers + 1
        spec, classes = record.spec, self.blocked.classes
        over = placement_key(
            spec, topology, record.avoid_hosts, record.bound, grant, stay,
            over_quota=True,
        )  # fmt: skip
        placement = {False: classes.of(within), True: classes.of(over)}
        for one in placement.values():
            if not one.users:
                self.ranking.add_class(one.number)
            one.users += 1
        self.ranking.add_job_class(number, placement[False].number, placement[True].number)
        key, gate = job_key(spec, within), self._gate_of(spec)
        gate.users += 1
        return JobClass(number, key, spec, gate, placement, grant, stay=stay)

    def _gate_of(self, spec: JobSpec) -> QuotaGate:
        key = gate_key(spec)
        gate = self._gates.get(key)
        if gate is None:
            gate = self._gates[key] = QuotaGate(key, spec)
        return gate

    def ranked(self, record: JobRecord, job_class: int = 0) -> Waiting:
        """A job as it is ranked while it waits. O(1)."""
        spec = record.spec
        gpus, expected_s = spec.gpus_milli() / MILLI, self.durations.expected_s(spec)
        executed_s = record.held_s - record.uncounted_s
        return Waiting(
            job=record.id,
            number=record.number,
            job_class=job_class,
            tenant=spec.tenant,
            band=spec.band,
            submit_s=record.submit_s,
            gpus=gpus,
            tasks=spec.tasks,
            duration_s=min(LONGEST_S, expected_s),
            remaining_s=min(LONGEST_S, left_of(expected_s, record)),
            attained_gpu_s=executed_s * gpus + record.extra_gpu_s,
            executed_s=executed_s,
            first_start_s=math.inf if record.first_start_s is None else record.first_start_s,
            since_s=record.submit_s if record.stopped_s is None else record.stopped_s,
            turn=self.grants.turn(record.id),
        )

    def remove(self, job: str) -> None:
        """Take a job out, wherever it stands. O(1)."""
        self.aside.remove(job)
        self.delays.drop(job)
        self._delayed.pop(job, None)
        if job in self._class_of:
            self.remove_each((job,))

    def remove_each(self, jobs: Sequence[str]) -> None:
        """Take out several jobs that may be placed now. O(jobs)."""
        left: dict[int, JobClass] = {}
        for job in jobs:
            found = self._class_of.pop(job)
            found.size -= 1
            left[found.number] = found
            if self._movers:
                self._movers.pop(job, None)
        self.ranking.remove(jobs)
        stopped = self.blocked.stopped
        if stopped is not None and stopped.job in jobs:
            self.unblock(Anything())  # those of its class come first now
        for found in left.values():
            if not found.size:
                self._rest(found)

    def _rest(self, one: JobClass) -> None:
        """A job class has no job any more: it is as new, if it is used again. O(datasets)."""
        del self.job_classes[one.key]
        self._opportunistic -= one.spec.band is Band.OPPORTUNISTIC
        self.blocked.leave(one)
        self._resting[one.key] = one
        if len(self._resting) > CLASSES_KEPT:
            self._drop(self._resting.pop(next(iter(self._resting))))

    def _drop(self, one: JobClass) -> None:
        """Forget a job class without a job."""
        for placement in one.placement.values():
            placement.users -= 1
            if not placement.users:
                self.blocked.classes.drop(placement)
        gate = one.gate
        gate.users -= 1
        if not gate.users and len(self._gates) > GATES_KEPT:
            del self._gates[gate.key]
        self._free_numbers.append(one.number)

    def note_priority(self, record: JobRecord, now: float) -> None:
        """A job begins to run or wait: its priority may change by time alone. O(log jobs)."""
        self.priority_timers.note(record, self.view_of, now)

    def let_try(self, job: str) -> None:
        """A job may do what others of its class may not: it is tried again, if it waits. O(1)."""
        job_class = self._class_of.get(job)
        if job_class is not None:
            self.unblock(JobMayMore(job_class))

    def class_of(self, job: str) -> JobClass | None:
        """The class of a job; None for one that may not be placed now."""
        return self._class_of.get(job)

    def job_class(self, job: str) -> JobClass:
        """The class of a job that may be placed now."""
        return self._class_of[job]

    def may_move(self, job: str) -> bool:
        """Whether a place may be kept for a job that waits."""
        return job in self._movers

    def block_class(self, placement: PlacementClass, from_s: float, exempt: str | None) -> None:
        """Block a placement class as a whole; not while some job may do what others may not. O(1).

        ``exempt``: the one job for which its verdict does not hold.
        """
        self.ranking.exempt = exempt
        if not self._movers:
            self.ranking.block(PLACEMENT, placement.number, placement.over_quota, from_s)

    # --- back-off ---------------------------------------------------------------------------------

    def delayed(self) -> Iterator[JobRecord]:
        """The jobs that wait out a back-off."""
        return iter(self._delayed.values())

    def is_delayed(self, job: str) -> bool:
        """Whether a job waits out a back-off."""
        return job in self._delayed

    def release(self, now: float) -> list[JobRecord]:
        """The jobs with a back-off that is over by ``now``; they must be added again."""
        return [self._delayed.pop(job) for job in self.delays.take_due(now)]

    # --- order ------------------------------------------------------------------------------------

    def rerank(self, now: float) -> None:
        """Bring the order up to ``now``. O(jobs log jobs), or O(1) if time does not change it."""
        if not self.ranking.order.by_time:
            self.ranking.ranked_at_s = now
            self.ranking.times_ranked += 1
            return
        self.ranking.rerank(now)
        if self.blocked.stopped is not None:
            self.unblock(Anything())  # another job may be the first now

    def take_turns(
        self, waiting: Sequence[JobRecord], turns: Mapping[str, float], now: float
    ) -> None:
        """A round began: rank anew, and try all jobs with their new grants. O(jobs log jobs)."""
        for record in waiting:
            if self._class_of[record.id].grant != self.grants.grant(record.id):
                self.remove(record.id)
                self.add(record, now)
        self.ranking.take_turns(turns)
        self.order_changed(now)

    def order_changed(self, now: float) -> None:
        """The order itself is another: rank all anew, and try all jobs. O(jobs log jobs)."""
        self.ranking.rerank(now)
        self.unblock(Anything())

    def modes(self) -> tuple[bool, ...]:
        """The modes in which some job may start: none is over a quota that is not there. O(1)."""
        return BOTH if self._opportunistic or self._has_quotas() else WITHIN

    def next(self) -> Candidate | None:
        """The first job in order that may be asked about; of one job, first within its quota."""
        best: Candidate | None = None
        for over_quota in self.modes():
            found = self.ranking.first_unblocked(over_quota)
            if found is not None and (best is None or found[0] < best.key):
                best = Candidate(found[1], found[0], over_quota)
            if self.ranking.all_within():
                break
        stopped = self.blocked.stopped
        if best is None or (stopped is not None and best.key > stopped.key):
            self.blocked.stirred = False
            return None
        return best

    def key(self, record: JobRecord, over_quota: bool) -> Key:
        """Where a waiting job ranks, lower first. One that waits out a back-off comes last."""
        key = self.ranking.key(record.id, over_quota)
        return (float("inf"), float(record.number)) if key is None else key

    def key_of_newcomer(self, record: JobRecord, over_quota: bool) -> Key:
        """Where a job would rank that was not submitted. O(1)."""
        band = Band.OPPORTUNISTIC if over_quota else record.spec.band
        return (*self.ranking.key_of(replace(self.ranked(record), band=band)), math.inf)

    def waits_behind(self, candidate: Candidate) -> str:
        """The job that has to start first, where none may overtake it; empty if there is none."""
        first = self.blocked.stopped
        if first is None or first.job == candidate.job or candidate.key <= first.key:
            return ""
        return first.job

    def _ranked_as_running(self, record: JobRecord, now: float) -> Waiting:
        ranked = self.ranked(record)
        since_s = now if record.start_s is None else record.start_s
        ran_s = max(0.0, now - since_s)
        gpus, worked_s = ranked.gpus, ran_s
        if record.spec.elastic is not None and record.gpus_milli is not None and gpus:
            gpus = record.gpus_milli / MILLI
            worked_s *= gpus / ranked.gpus  # as if it worked in proportion to its GPUs
        return replace(
            ranked,
            band=record.band,
            remaining_s=max(0.0, ranked.remaining_s - worked_s),
            attained_gpu_s=ranked.attained_gpu_s + ran_s * gpus,
            executed_s=ranked.executed_s + ran_s,
            since_s=since_s,
        )

    def view_of(self, record: JobRecord, now: float) -> QueueView:
        """One job, running or waiting, as the order sees it. O(1)."""
        if record.plan is None:
            return self.ranking.view_of([self.ranked(record)], now, running=False)
        return self.ranking.view_of([self._ranked_as_running(record, now)], now, running=True)

    def remaining_s(self, record: JobRecord) -> float:
        """How long a job is expected to need; settled when it began to wait."""
        known = self.ranking.remaining_s(record.id)
        return self.durations.remaining_s(record) if known is None else known

    def in_order(self) -> Iterator[str]:
        """Every job that may be placed, from the head on. O(jobs)."""
        return (job for _, job in self.ranking.in_order())


def effective_band(band: Band, over_quota: bool) -> Band:
    """Over quota everything runs opportunistically."""
    return Band.OPPORTUNISTIC if over_quota else band
