"""The part that elastic sizes take in the queue."""

from __future__ import annotations

from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.elastic.scale_up import enlarge, look_at_sizes
from topmast.fast.queue.elastic.sizes import Elastic
from topmast.fast.queue.hooks import QueueHooks
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.job import Band, TaskGroup
from topmast.policies.options import ElasticOptions


class SlicesHooks(QueueHooks):
    """Gangs share GPUs: a larger one that has no booking would lie over other gangs."""

    def most_anywhere(self, elastic: TaskGroup) -> int:
        """As many as it asked for."""
        return elastic.count


class ElasticHooks(QueueHooks):
    """Looks at the sizes of running elastic jobs now and then."""

    def __init__(self, queue: QueueViews, options: ElasticOptions) -> None:
        self._queue = queue
        self._options = options
        self._sizes = Elastic(options)

    def on_restored(self) -> None:
        """What was done lately is forgotten."""
        self._sizes = Elastic(self._options)

    def on_booked(self, record: JobRecord) -> None:
        """An elastic job may change its size from some time on."""
        self._sizes.book(record)

    def on_unbooked(self, job: str) -> None:
        """It has no size."""
        self._sizes.unbook(job)

    def on_over(self, job: str) -> None:
        """Nothing is promised to it any more."""
        self._sizes.forget(job)

    def on_room(self, region: str) -> None:
        """Jobs that could not give GPUs before may be able to."""
        self._sizes.room_came = True

    def on_wake(self) -> None:
        """Sizes are looked at when it is time."""
        look_s = self._sizes.next_s()
        if look_s is not None and look_s <= self._queue.now:
            look_at_sizes(self._queue, self._sizes)

    def on_all_decided(self) -> None:
        """Idle GPUs are given away when no job is left that may need them."""
        if self._sizes.may_grow:
            enlarge(self._queue, self._sizes)

    def may_shrink(self, band: Band, now: float) -> bool:
        """Whether some running job can spare tasks."""
        return self._sizes.may_shrink(band, now)

    def next_s(self) -> float | None:
        """When sizes are looked at next."""
        return self._sizes.next_s()
