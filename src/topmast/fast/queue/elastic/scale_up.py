"""Idle GPUs for elastic jobs: those that run get more tasks when no waiting job can use the GPUs.

The queue decides which jobs may grow, and up to how many tasks, by quota and by the needs of
waiting jobs. The region decides whether there is room, and whether that is worth a restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from topmast.fast.queue.backlog.backlog import effective_band
from topmast.fast.queue.backlog.blocked import RoomFreed
from topmast.fast.queue.backlog.placement_class import JobClass
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.elastic.sizes import Elastic, Promise
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.bisection import most_that
from topmast.model.job import MILLI, JobSpec, TaskGroup
from topmast.model.plan import Plan
from topmast.model.reason import PendingReason
from topmast.model.states import JobState

AT_ONCE = 16
"""So many jobs are told at one look that they may grow; the others have their turn at the next."""
COULD_USE_ROOM = (
    PendingReason.INSUFFICIENT_CAPACITY,
    PendingReason.PREEMPTION_IN_PROGRESS,
    PendingReason.PENDING_EVALUATION,
)


def look_at_sizes(queue: QueueViews, sizes: Elastic) -> None:
    """Elastic jobs may change their size: that may help waiting jobs, or use idle GPUs.

    Rejected classes are asked about again if they need no more GPUs than a region has idle and may
    free: necessary, not sufficient. O(elastic jobs + placement classes x regions).
    """
    if not sizes.look(queue.now):
        return
    spare = sizes.spare_milli(queue.now)
    helped = [
        placement.number
        for placement, spec in queue.backlog.blocked.for_room()
        if _may_be_helped(queue, spec, spare[effective_band(spec.band, placement.over_quota)])
    ]
    if helped:
        queue.backlog.unblock(RoomFreed(helped))


def _may_be_helped(queue: QueueViews, spec: JobSpec, spare: Mapping[str, int]) -> bool:
    """Whether some region has the GPUs that a job needs: idle, or held by jobs that may give."""
    if not spare:
        return False
    least = spec.at_least()
    choices = range(max(1, len(queue.tenancy.entitlements.accelerators(spec))))
    need_milli = min(least.gpus_milli(choice) for choice in choices)
    return any(milli + idle_milli(queue, region) >= need_milli for region, milli in spare.items())


def idle_milli(queue: QueueViews, region: str) -> int:
    """Thousandths of GPUs of a region that no attempt holds, in all layers together. O(1)."""
    tenancy, layers = queue.tenancy, queue.profile.slices.layers
    present_milli = tenancy.gpus_by_region.get(region, 0) * MILLI * layers
    return max(0, present_milli - tenancy.ledger.by_region.get(region, 0))


def enlarge(queue: QueueViews, elastic: Elastic) -> None:
    """No candidate is left: tell the jobs with the smallest part of their request how far to grow.

    O(job classes + elastic jobs x log tasks x depth of their tenants); with a queue that wants all
    models, O(elastic jobs).
    """
    elastic.may_grow = False
    growing = _in_turn(queue, elastic)
    wanted = _wanted_models(queue, {plan.model for _, _, plan in growing})
    if wanted is None:
        return
    for job in list(elastic.promises):
        if queue.jobs.records[job].state is JobState.RUNNING:
            del elastic.promises[job]  # it was told, and there was no room, or not enough of it
    told = 0
    for record, group, plan in growing:
        if told >= AT_ONCE:
            break
        if plan.model in wanted or plan.by_model:
            continue
        tasks = _most_tasks(queue, elastic, record, group, plan)
        if tasks > plan.tasks_of(group.name):
            told += 1
            elastic.asked_s[record.id] = queue.now
            order = m.ScaleUpAttempt(record.id, record.epoch, tasks)
            queue.send(ids.placer(plan.region), order)


def _in_turn(queue: QueueViews, elastic: Elastic) -> list[tuple[JobRecord, TaskGroup, Plan]]:
    """Jobs that may grow: the one told longest ago first, then the smallest part of its request."""
    found = []
    for record in elastic.placed.values():
        group, plan = record.spec.elastic, record.plan
        if group is None or plan is None or record.state is not JobState.RUNNING:
            continue
        if not elastic.is_settled(record, queue.now):
            continue
        if record.over_quota and queue.tenancy.choices(record.spec, over_quota=False):
            continue  # it would come back within its quota, and smaller
        told_s = elastic.asked_s.get(record.id, float("-inf"))
        tasks = plan.tasks_of(group.name)
        found.append(((told_s, tasks / group.count, record.number), (record, group, plan)))
    return [what for _, what in sorted(found, key=lambda pair: pair[0])]


def _most_tasks(
    queue: QueueViews, elastic: Elastic, record: JobRecord, group: TaskGroup, plan: Plan
) -> int:
    """The most tasks for a job, by quota and its region's idle GPUs; notes what that takes."""
    per_task_milli = plan.milli_per_task(group.name)
    now = plan.tasks_of(group.name)
    if not per_task_milli:
        return now
    high = min(group.most, now + idle_milli(queue, plan.region) // per_task_milli)
    promised = elastic.promises.values()
    before_milli = sum(p.milli for p in promised if p.model == plan.model)
    ledger, tenant = queue.tenancy.ledger, record.spec.tenant
    may = ledger.may_borrow if record.over_quota else ledger.has_room

    def fits(tasks: int) -> bool:
        return may(tenant, plan.model, before_milli + (tasks - now) * per_task_milli)

    most = high if high <= now or fits(high) else most_that(fits, now, high)
    if most > now:
        more_milli = (most - now) * per_task_milli
        elastic.promises[record.id] = Promise(plan.model, more_milli)
    return most


def _wanted_models(queue: QueueViews, among: Set[str]) -> frozenset[str] | None:
    """Of some GPU models those that waiting jobs could use if there were more room.

    None if a waiting job wants no GPUs, as any attempt may hold what it lacks, or if all models are
    wanted. O(job classes x accelerators), until that is so.
    """
    models: dict[str, None] = {}
    for one in queue.backlog.job_classes.values():
        if among <= models.keys():
            return None
        if not _waits_for_room(queue, one):
            continue
        listed = queue.tenancy.entitlements.accelerators(one.spec)
        if not listed:
            return None
        models.update((accelerator.model or "", None) for accelerator in listed)
    return frozenset(models)


def _waits_for_room(queue: QueueViews, one: JobClass) -> bool:
    return queue.verdict_of(one).reason in COULD_USE_ROOM
