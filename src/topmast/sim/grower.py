"""Trees for predictions, grown for real; how long that takes is a function of the jobs, not of
this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topmast.model import ids
from topmast.model import messages as m
from topmast.predict.growing import answer
from topmast.sim.clock import VirtualClock
from topmast.sim.heap import EventHeap, Priority

START_S = 1.0
PER_JOB_S = 50e-6
"""About what growing takes on a slow core: 2.5 s for 50,000 jobs, and the library to be loaded."""
BYTES_OF_NUMBER = 8


class SimulatedGrower:
    """Takes the orders of the queue and answers them later."""

    def __init__(
        self,
        clock: VirtualClock,
        heap: EventHeap,
        post: Callable[[str, Sequence[m.Message]], object],
    ) -> None:
        self._clock = clock
        self._heap = heap
        self._post = post

    def order(self, message: m.Message) -> None:
        """Grow the tree, and hand it over when it would be ready."""
        assert isinstance(message, m.GrowTree), message
        jobs = len(message.rows) // (BYTES_OF_NUMBER * message.width)
        ready_s = self._clock.now_s + START_S + PER_JOB_S * jobs
        self._heap.put(ready_s, Priority.NEWS, self._ready, m.TreeGrown(answer(message)))

    def _ready(self, news: m.TreeGrown) -> None:
        self._post(ids.QUEUE, (news,))
