"""The part that elastic sizes take in the queue: idle GPUs go to elastic jobs that run.

They get more tasks when no waiting job can use the GPUs. The queue decides which jobs may grow, and
up to how many tasks, by quota and by the needs of waiting jobs. The region decides whether there is
room, and whether that is worth a restart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set

from topmast.fast.queue.backlog.backlog import effective_band
from topmast.fast.queue.backlog.blocked import RoomFreed
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.hooks import QueueHooks
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.bisection import most_that
from topmast.model.job import MILLI, Band, JobSpec, TaskGroup
from topmast.model.plan import Plan
from topmast.model.reason import PendingReason
from topmast.model.states import JobState
from topmast.policies.options import ElasticOptions

AT_ONCE = 16
"""So many jobs are told at one look that they may grow; the others have their turn at the next."""
COULD_USE_ROOM = (
    PendingReason.INSUFFICIENT_CAPACITY,
    PendingReason.PREEMPTION_IN_PROGRESS,
    PendingReason.PENDING_EVALUATION,
)
STARTED = (JobState.STARTING, JobState.RUNNING)


class SlicesHooks(QueueHooks):
    """Gangs share GPUs: a larger one that has no booking would lie over other gangs."""

    def most_anywhere(self, elastic: TaskGroup) -> int:
        """As many as it asked for."""
        return elastic.count


class ElasticHooks(QueueHooks):
    """Looks at the sizes of running elastic jobs now and then.

    Working memory, never journalled: plans hold the sizes, and a job's record the time of its size.
    """

    def __init__(self, queue: QueueViews, options: ElasticOptions) -> None:
        self._queue = queue
        self.options = options
        self.on_restored()

    def on_restored(self) -> None:
        """What was done lately is forgotten."""
        self.placed: dict[str, JobRecord] = {}
        self.may_grow = False
        """Whether idle GPUs are to be given away when no candidate is left."""
        self.asked_s: dict[str, float] = {}
        """When a job was last told that it may grow."""
        self.promises: dict[str, tuple[str, int]] = {}
        """GPUs of a model, in thousandths, that a job may be about to take beyond its own."""
        self.room_came = False
        """Whether some region has more room than at the last look."""
        self._looked_s = -math.inf

    def on_booked(self, record: JobRecord) -> None:
        """A job with a plan may change its size from some time on. O(groups)."""
        if record.spec.elastic is not None:
            self.placed[record.id] = record
            self.promises.pop(record.id, None)

    def on_unbooked(self, job: str) -> None:
        """A job without a plan has no size. O(1)."""
        self.placed.pop(job, None)

    def on_room(self, region: str) -> None:
        """Jobs that could not give GPUs before may be able to."""
        self.room_came = True

    def on_over(self, job: str) -> None:
        """Nothing is promised to a job that is over. O(1)."""
        self.promises.pop(job, None)
        self.asked_s.pop(job, None)

    def next_s(self) -> float | None:
        """When sizes are looked at again; None while no elastic job runs."""
        return max(0.0, self._looked_s + self.options.every_s) if self.placed else None

    def look(self, now: float) -> bool:
        """Note a look at sizes; whether a job may give room that could not before. O(elastic)."""
        since_s, self._looked_s = self._looked_s, now
        self.may_grow = self.options.grow
        came, self.room_came = self.room_came, False
        if not self.options.shrink:
            return False
        settled = (self._settles_s(record) for record in self.placed.values())
        return came or any(since_s < at_s <= now for at_s in settled)

    def may_shrink(self, band: Band, now: float) -> bool:
        """Whether some job might give tasks to one of this band. O(elastic)."""
        if not self.options.shrink:
            return False
        return any(
            self.is_settled(record, now) and _spare(record, band) > 0
            for record in self.placed.values()
        )

    def spare_milli(self, now: float) -> dict[Band, dict[str, int]]:
        """By the waiting band, by region: thousandths that jobs may give. O(elastic x bands)."""
        found: dict[Band, dict[str, int]] = {band: {} for band in Band}
        for record in self.placed.values():
            plan, group = record.plan, record.spec.elastic
            if plan is None or group is None or not self.is_settled(record, now):
                continue
            per_task_milli = plan.milli_per_task(group.name)
            for band, regions in found.items():
                tasks = _spare(record, band)
                if tasks > 0:
                    before = regions.get(plan.region, 0)
                    regions[plan.region] = before + tasks * per_task_milli
        return found

    def is_settled(self, record: JobRecord, now: float) -> bool:
        """Whether a job may change its size: it runs, may be stopped, and has settled."""
        steady = record.state in STARTED and record.spec.preemptible and not record.cancelling
        return steady and self._settles_s(record) <= now

    def _settles_s(self, record: JobRecord) -> float:
        started_s = math.inf if record.start_s is None else record.start_s
        return started_s + self.options.settle_s

    # --- looks at sizes ---------------------------------------------------------------------------

    def on_wake(self) -> None:
        """Elastic jobs may change their size: that may help waiting jobs, or use idle GPUs.

        Rejected classes are asked about again if they need no more GPUs than a region has idle and
        may free: necessary, not sufficient. O(elastic jobs + placement classes x regions).
        """
        now, backlog, look_s = self._queue.now, self._queue.backlog, self.next_s()
        if look_s is None or look_s > now or not self.look(now):
            return
        spare = self.spare_milli(now)
        helped = [
            placement.number
            for placement, spec in backlog.blocked.for_room()
            if self._may_be_helped(spec, spare[effective_band(spec.band, placement.over_quota)])
        ]
        if helped:
            backlog.unblock(RoomFreed(helped))

    def _may_be_helped(self, spec: JobSpec, spare: Mapping[str, int]) -> bool:
        """Whether some region has the GPUs of a job: idle, or held by jobs that may give."""
        if not spare:
            return False
        least = spec.at_least()
        choices = range(max(1, len(self._queue.tenancy.entitlements.accelerators(spec))))
        need_milli = min(least.gpus_milli(choice) for choice in choices)
        return any(milli + self._idle_milli(r) >= need_milli for r, milli in spare.items())

    def _idle_milli(self, region: str) -> int:
        """Thousandths of GPUs of a region that no attempt holds, in all layers together. O(1)."""
        tenancy, layers = self._queue.tenancy, self._queue.profile.slices.layers
        present_milli = tenancy.gpus_by_region.get(region, 0) * MILLI * layers
        return max(0, present_milli - tenancy.ledger.by_region.get(region, 0))

    def on_all_decided(self) -> None:
        """No candidate is left: tell jobs how far to grow, the smallest part of its request first.

        O(job classes + elastic jobs x log tasks x depth of their tenants); with a queue that wants
        all models, O(elastic jobs).
        """
        if not self.may_grow:
            return
        queue, self.may_grow = self._queue, False
        growing = self._in_turn()
        wanted = self._wanted_models({plan.model for _, _, plan in growing})
        if wanted is None:
            return
        for job in list(self.promises):
            if queue.jobs.records[job].state is JobState.RUNNING:
                del self.promises[job]  # it was told, and there was no room, or not enough of it
        told = 0
        for record, group, plan in growing:
            if told >= AT_ONCE:
                break
            if plan.model in wanted or plan.by_model:
                continue
            tasks = self._most_tasks(record, group, plan)
            if tasks > plan.tasks_of(group.name):
                told += 1
                self.asked_s[record.id] = queue.now
                order = m.ScaleUpAttempt(record.id, record.epoch, tasks)
                queue.send(ids.placer(plan.region), order)

    def _in_turn(self) -> list[tuple[JobRecord, TaskGroup, Plan]]:
        """Jobs that may grow: those told longest ago first, then by the part of their request."""
        found, queue = [], self._queue
        for record in self.placed.values():
            group, plan = record.spec.elastic, record.plan
            if group is None or plan is None or record.state is not JobState.RUNNING:
                continue
            if not self.is_settled(record, queue.now):
                continue
            if record.over_quota and queue.tenancy.choices(record.spec, over_quota=False):
                continue  # it would come back within its quota, and smaller
            told_s = self.asked_s.get(record.id, float("-inf"))
            tasks = plan.tasks_of(group.name)
            found.append(((told_s, tasks / group.count, record.number), (record, group, plan)))
        return [what for _, what in sorted(found, key=lambda pair: pair[0])]

    def _most_tasks(self, record: JobRecord, group: TaskGroup, plan: Plan) -> int:
        """The most tasks for a job, by quota and its region's idle GPUs; notes what that takes."""
        per_task_milli = plan.milli_per_task(group.name)
        now = plan.tasks_of(group.name)
        if not per_task_milli:
            return now
        high = min(group.most, now + self._idle_milli(plan.region) // per_task_milli)
        promised = self.promises.values()
        before_milli = sum(milli for model, milli in promised if model == plan.model)
        ledger, tenant = self._queue.tenancy.ledger, record.spec.tenant
        may = ledger.may_borrow if record.over_quota else ledger.has_room

        def fits(tasks: int) -> bool:
            return may(tenant, plan.model, before_milli + (tasks - now) * per_task_milli)

        most = high if high <= now or fits(high) else most_that(fits, now, high)
        if most > now:
            self.promises[record.id] = plan.model, (most - now) * per_task_milli
        return most

    def _wanted_models(self, among: Set[str]) -> frozenset[str] | None:
        """Of some GPU models those that waiting jobs could use if there were more room.

        None if a waiting job wants no GPUs, as any attempt may hold what it lacks, or if all models
        are wanted. O(job classes x accelerators), until that is so.
        """
        models: dict[str, None] = {}
        queue = self._queue
        for one in queue.backlog.job_classes.values():
            if among <= models.keys():
                return None
            if queue.verdict_of(one).reason not in COULD_USE_ROOM:
                continue
            listed = queue.tenancy.entitlements.accelerators(one.spec)
            if not listed:
                return None
            models.update((accelerator.model or "", None) for accelerator in listed)
        return frozenset(models)


def _spare(record: JobRecord, band: Band) -> int:
    """Tasks that a job may give to a band; to a lower one those beyond its count. O(seats)."""
    elastic, plan = record.spec.elastic, record.plan
    if elastic is None or plan is None:
        return 0
    stays = elastic.least if band >= record.band else elastic.count
    return plan.tasks_of(elastic.name) - stays
