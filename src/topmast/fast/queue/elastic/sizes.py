"""Elastic jobs that run: when to look at them again, and which may become larger or smaller.

Working memory, never journalled: plans hold the sizes, and a job's record the time of its size.
"""

from __future__ import annotations

import math

from msgspec import Struct

from topmast.fast.queue.hooks import QueueHooks
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.job import Band
from topmast.model.states import JobState
from topmast.policies.options import ElasticOptions

STARTED = (JobState.STARTING, JobState.RUNNING)


class Promise(Struct, frozen=True):
    """GPUs of a model, in thousandths, that a job may be about to take beyond those that it has."""

    model: str
    milli: int


class Elastic(QueueHooks):
    """Elastic jobs with a plan, and what was done about them lately."""

    def __init__(self, options: ElasticOptions) -> None:
        self.options = options
        self.on_restored()

    def on_restored(self) -> None:
        """What was done lately is forgotten."""
        self.placed: dict[str, JobRecord] = {}
        self.may_grow = False
        """Whether idle GPUs are to be given away when no candidate is left."""
        self.asked_s: dict[str, float] = {}
        """When a job was last told that it may grow."""
        self.promises: dict[str, Promise] = {}
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
        """When sizes are looked at again; None while no elastic job runs, or all keep theirs."""
        if not self.placed or not (self.options.grow or self.options.shrink):
            return None
        return max(0.0, self._looked_s + self.options.every_s)

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


def _spare(record: JobRecord, band: Band) -> int:
    """Tasks that a job may give to a band; to a lower one those beyond its count. O(seats)."""
    elastic, plan = record.spec.elastic, record.plan
    if elastic is None or plan is None:
        return 0
    stays = elastic.least if band >= record.band else elastic.count
    return plan.tasks_of(elastic.name) - stays
