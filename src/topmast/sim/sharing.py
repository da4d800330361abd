"""How fast a gang goes beside another one on the same GPUs, and how many mini-batches its work is.

From a table of throughputs with pairs, as Gavel's is, where it has both; else from how busy a job
alone keeps its GPU (`gpu_busy`): two that together want no more than the GPU has lose nothing,
others share it evenly.
"""

from __future__ import annotations

from collections.abc import Callable

from topmast.policies.base import PairSpeeds
from topmast.sim.settings import Settings
from topmast.traces.throughputs import Throughputs, Work

CRAWL = 0.01
"""The speed, over that alone, of a gang of which the table says that it gets nowhere beside the
other.
"""
EARLY_STEPS = 100
"""So many mini-batches are what people wait for to see whether a job is any good (Gandiva: early
feedback).
"""


class Beside:
    """Of a fork of a live system: what its table of pairs says; mini-batches are not counted there.

    ``work_of``: what the table calls a job, and the GPUs of its gang.
    """

    def __init__(self, table: PairSpeeds, work_of: Callable[[str], tuple[str, int]]) -> None:
        self._table = table
        self._work_of = work_of

    def factor(self, job: str, other: str, model: str) -> float:
        """As `Sharing.factor`; where nothing is known of the two, they take turns."""
        found = self._table.beside(self._work_of(job), self._work_of(other), model)
        return 0.5 if found is None else max(CRAWL, found[0])

    def steps_per_s(self, job: str) -> float:
        """None is counted."""
        return 0.0


class Sharing:
    """Of one run. ``work_of`` tells what a job is timed as; None: the table does not know it."""

    def __init__(
        self,
        settings: Settings,
        throughputs: Throughputs | None,
        work_of: Callable[[str], Work | None],
    ) -> None:
        self._settings = settings
        self._table = throughputs
        self._work_of = work_of

    def factor(self, job: str, other: str, model: str) -> float:
        """The speed of a job beside another on GPUs of a model, over its speed alone. O(1)."""
        mine, its = self._timed(job), self._timed(other)
        alone = None if self._table is None or mine is None else self._table.speeds(mine).get(model)
        if self._table is None or mine is None or its is None or not alone:
            wanted = 2 * self._settings.gpu_busy
            return min(1.0, 1.0 / wanted) * (1.0 - self._settings.packing_loss)
        pair = self._table.together.get((mine, its), {}).get(model)
        return CRAWL if pair is None else max(CRAWL, min(1.0, pair[0] / alone))

    def _timed(self, job: str) -> Work | None:
        """The entry of the table for a job: on its GPUs, else on one."""
        work = self._work_of(job)
        return (
            None
            if work is None or self._table is None
            else self._table.timed(work.model, work.gpus)
        )

    def steps_per_s(self, job: str) -> float:
        """Mini-batches in a second of work on the GPU model that the job lists first."""
        work = self._timed(job)
        speeds = {} if work is None or self._table is None else self._table.speeds(work)
        return max(speeds.values(), default=1.0 / (self._settings.minibatch_s or 1.0))
