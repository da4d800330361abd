"""The part that elastic sizes take in the queue."""

from __future__ import annotations

from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.elastic.scale_up import enlarge, look_at_sizes
from topmast.fast.queue.elastic.sizes import Elastic
from topmast.fast.queue.hooks import QueueHooks
from topmast.model.job import TaskGroup
from topmast.policies.options import ElasticOptions


class SlicesHooks(QueueHooks):
    """Gangs share GPUs: a larger one that has no booking would lie over other gangs."""

    def most_anywhere(self, elastic: TaskGroup) -> int:
        """As many as it asked for."""
        return elastic.count


class ElasticHooks(Elastic):
    """Looks at the sizes of running elastic jobs now and then."""

    def __init__(self, queue: QueueViews, options: ElasticOptions) -> None:
        super().__init__(options)
        self._queue = queue

    def on_wake(self) -> None:
        """Sizes are looked at when it is time."""
        look_s = self.next_s()
        if look_s is not None and look_s <= self._queue.now:
            look_at_sizes(self._queue, self)

    def on_all_decided(self) -> None:
        """Idle GPUs are given away when no job is left that may need them."""
        if self.may_grow:
            enlarge(self._queue, self)
