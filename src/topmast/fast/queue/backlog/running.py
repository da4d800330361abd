"""Running jobs in the order of the waiting ones, where a job may stop those that rank behind it.

Each job with a plan has a row of columns, written when something of it changes. The order is worked
out from the columns once for all candidates of an instant, for time passes for running jobs alone.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from topmast.fast.queue.backlog.ordered_index import Key
from topmast.fast.queue.backlog.ranking import Ranking
from topmast.fast.queue.backlog.waiting import Waiting
from topmast.fast.queue.hooks import QueueHooks
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.job import MILLI
from topmast.model.states import HOLDING, WAITING, JobState
from topmast.policies.base import Floats, Ints

FIRST_ROWS = 64
STOPPABLE = (JobState.STARTING, JobState.RUNNING, JobState.SUSPENDED)
ROW = np.dtype(
    [
        ("number", np.float64),
        ("band", np.float64),  # that of the attempt
        ("tenant", np.int64),
        ("submit_s", np.float64),
        ("gpus", np.float64),  # held, or to be held
        ("tasks", np.int64),
        ("duration_s", np.float64),
        ("remaining_s", np.float64),  # when the attempt began, as the next three
        ("attained_gpu_s", np.float64),
        ("executed_s", np.float64),
        ("turn", np.float64),
        ("pace", np.float64),  # work done in a second, of the work that is counted in seconds
        ("first_start_s", np.float64),  # infinite before the first start
        ("start_s", np.float64),  # NaN before this start
        ("runs", np.bool_),  # it may hold GPUs already
        ("gain_milli", np.int64),  # GPUs that come free if it stops, where it may be stopped
        ("region", np.int64),
    ],
    align=True,
)


class RunningOrder(Struct, frozen=True):
    """All jobs with GPUs, or about to start on them, the first in rank first (n)."""

    as_of: tuple[float, int, int]
    """The time, the changes of running jobs, and how often all jobs were ranked."""
    keys: Floats
    """(n x k)"""
    jobs: tuple[str, ...]
    runs: NDArray[np.bool_]
    """(n) which may hold GPUs already: the others have a plan alone."""
    old_enough_s: Floats
    """(n) when each has run long enough to be stopped; infinite: it may not be stopped."""
    gains_milli: Ints
    """(n + 1 x regions) GPUs of those at a place and behind it that may be stopped by now."""

    def behind(self, key: Key) -> tuple[str, ...]:
        """The jobs that run and rank behind a key, the last first. O(these)."""
        at = self.place_of(key)
        behind = zip(self.jobs[at:], self.runs[at:].tolist(), strict=True)
        return tuple([job for job, runs in behind if runs][::-1])

    def place_of(self, key: Key) -> int:
        """How many rank before a key, or with it. O(k log n)."""
        keys = self.keys
        return bisect_right(range(len(keys)), key, key=lambda at: tuple(keys[at].tolist()))

    def next_old_enough_s(self, at: int, now: float) -> float | None:
        """When the next of those from a place on may be stopped that may not be yet. O(n)."""
        times_s = self.old_enough_s[at:]
        later_s = times_s[times_s > now]
        first_s = float(later_s.min(initial=math.inf))
        return None if first_s == math.inf else first_s


class RunningJobs:
    """Columns of the jobs with a plan, in whatever order.

    ``ranked``: a job as it would be ranked if it waited. ``min_runtime_s``: how long an attempt
    runs before it may be stopped. ``in_turns``: the turns of jobs change while they run.
    """

    def __init__(
        self,
        ranking: Ranking,
        ranked: Callable[[JobRecord], Waiting],
        min_runtime_s: float,
        *,
        in_turns: bool,
    ) -> None:
        self._ranking, self._ranked = ranking, ranked
        self._min_runtime_s, self._in_turns = min_runtime_s, in_turns
        self._rows = np.zeros(FIRST_ROWS, ROW)
        self._jobs: list[str] = []
        self._row_of: dict[str, int] = {}
        self._changed: dict[str, None] = {}
        """Jobs of which something changed since the columns were written."""
        self._guessed: dict[str, None] = {}
        """Jobs of which the expected duration or the turn may change while they run."""
        self._changes = 0
        self._regions: dict[str, int] = {}
        self._known: RunningOrder | None = None

    def note(self, job: str) -> None:
        """A job has a plan, or one with a plan is in another state. O(1)."""
        self._changed[job] = None
        self._changes += 1

    def forget(self, job: str) -> None:
        """A job has no plan any more. O(1)."""
        self._changes += 1
        if job in self._row_of:
            self._changed[job] = None
        else:  # the order was not asked for while it had one
            self._changed.pop(job, None)

    def gain_milli(self, order: RunningOrder, at: int, region: str) -> int:
        """GPUs of a region that come free if those from a place on stop that may. O(1)."""
        number = self._regions.get(region)
        return 0 if number is None else order.gains_milli.item(at, number)

    def order(self, placed: Mapping[str, JobRecord], now: float) -> RunningOrder:
        """Those that are ``placed`` as they rank now. O(n log n) in numpy, or O(1) as before."""
        as_of = (now, self._changes, self._ranking.times_ranked)
        if self._known is None or self._known.as_of != as_of:
            for job in (*self._changed, *self._guessed):
                self._write(job, placed.get(job))
            self._changed.clear()
            self._known = self._sorted(as_of)
        return self._known

    # --- columns ----------------------------------------------------------------------------------

    def _write(self, job: str, record: JobRecord | None) -> None:
        if record is None or record.plan is None:
            self._drop(job)
            return
        row = self._row_of.get(job)
        if row is None:
            row = self._row_of[job] = len(self._jobs)
            self._jobs.append(job)
            if row == len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        if record.spec.duration_s is None or self._in_turns:
            self._guessed[job] = None
        self._rows[row] = self._fields(record)

    def _drop(self, job: str) -> None:
        """The last row takes the place of the row that goes."""
        self._guessed.pop(job, None)
        row = self._row_of.pop(job, None)
        if row is None:
            return
        last = self._jobs.pop()
        if last != job:
            self._rows[row] = self._rows[len(self._jobs)]
            self._jobs[row], self._row_of[last] = last, row

    def _fields(self, record: JobRecord) -> tuple[object, ...]:
        ranked, plan = self._ranked(record), record.plan
        assert plan is not None
        gpus, pace = ranked.gpus, 1.0
        if record.spec.elastic is not None and record.gpus_milli is not None and gpus:
            gpus = record.gpus_milli / MILLI
            pace = gpus / ranked.gpus  # as if it worked in proportion to its GPUs
        # One that waits until its victims have stopped cannot be stopped itself.
        starts = record.state in WAITING and not plan.victims
        may_stop = record.spec.preemptible and (starts or record.state in STOPPABLE)
        region = self._regions.setdefault(plan.region, len(self._regions))
        return (
            record.number, float(record.band), self._ranking.tenant_number(ranked.tenant),
            ranked.submit_s, gpus, ranked.tasks, ranked.duration_s, ranked.remaining_s,
            ranked.attained_gpu_s, ranked.executed_s, ranked.turn, pace, ranked.first_start_s,
            math.nan if record.start_s is None else record.start_s,
            record.state in HOLDING, plan.gpus_milli if may_stop else 0, region,
        )  # fmt: skip

    # --- the order --------------------------------------------------------------------------------

    def _sorted(self, as_of: tuple[float, int, int]) -> RunningOrder:
        now, count, ranking = as_of[0], len(self._jobs), self._ranking
        rows = self._rows[:count]
        since_s = np.where(np.isnan(rows["start_s"]), now, rows["start_s"])
        ran_s = np.maximum(0.0, now - since_s)
        first_start_s, runs = rows["first_start_s"], rows["runs"]
        view = ranking.seen(
            rows["tenant"],
            ranking.ranked_at_s,
            running=True,
            band=rows["band"].astype(np.int16),
            submit_s=rows["submit_s"],
            gpus=rows["gpus"],
            tasks=rows["tasks"],
            duration_s=rows["duration_s"],
            remaining_s=np.maximum(0.0, rows["remaining_s"] - ran_s * rows["pace"]),
            attained_gpu_s=rows["attained_gpu_s"] + ran_s * rows["gpus"],
            executed_s=rows["executed_s"] + ran_s,
            first_start_s=np.where(runs, first_start_s, np.minimum(first_start_s, now)),
            since_s=since_s,
            turn=rows["turn"],
        )
        first = [-rows["band"]] if ranking.order.by_band else []
        last = [rows["submit_s"], rows["number"]]
        columns = [*first, *ranking.order.keys(view).T, *last]
        order = np.lexsort(columns[::-1])
        old_enough_s = np.where(rows["gain_milli"] > 0, since_s + self._min_runtime_s, np.inf)
        gains_milli = np.where(old_enough_s <= now, rows["gain_milli"], 0)
        return RunningOrder(
            as_of,
            np.column_stack(columns)[order],
            tuple([self._jobs[row] for row in order.tolist()]),
            runs[order],
            old_enough_s[order],
            self._sums(gains_milli[order], rows["region"][order]),
        )

    def _sums(self, gains_milli: Ints, region: Ints) -> Ints:
        """What those at each place and behind it give, by region (n + 1 x regions)."""
        count = len(gains_milli)
        sums: Ints = np.zeros((count + 1, max(1, len(self._regions))), np.int64)
        sums[np.arange(count), region] = gains_milli
        return np.ascontiguousarray(np.cumsum(sums[::-1], axis=0)[::-1])


class RunningHooks(QueueHooks):
    """Tells `RunningJobs` what changes of jobs with a plan."""

    def __init__(self, running: Callable[[], RunningJobs]) -> None:
        self._running = running

    def on_booked(self, record: JobRecord) -> None:
        """It has a plan."""
        self._running().note(record.id)

    def on_moved(self, record: JobRecord) -> None:
        """Its state says whether it may be stopped, and its start where it ranks."""
        if record.plan is None or record.state in (JobState.RUNNING, JobState.SUSPENDED):
            return  # it has no row, or is no other than while it started
        self._running().note(record.id)

    def on_expected(self, record: JobRecord) -> None:
        """It ranks by what is left of it."""
        self._running().note(record.id)

    def on_unbooked(self, job: str) -> None:
        """It has no plan any more."""
        self._running().forget(job)
