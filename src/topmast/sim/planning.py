"""Data planned on a cadence in a simulated system: the production code, with the time that solving takes modelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from topmast.fast.queue.machine import GlobalQueue
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import TopmastError
from topmast.model.job import MILLI, Band
from topmast.policies.options import SlowOptions
from topmast.runtime.datapicture import gang_of, message_of, picture_of, stock_of, wish_of
from topmast.sim.books import ALLOCATIONS, Tables
from topmast.sim.clock import VirtualClock
from topmast.sim.heap import EventHeap, Priority
from topmast.slow.data.demand import Kind
from topmast.slow.data.diary import Entry
from topmast.slow.data.planner import Options, Planner
from topmast.slow.data.planning import DataPlanning, Question
from topmast.traces.trace import Trace

LOOK_S = 60.0
"""How often it is seen which copies and drops are next."""
JOB, END_S = ALLOCATIONS.index("job_id"), ALLOCATIONS.index("end_s")
MODEL, GPUS = ALLOCATIONS.index("gpu_model"), ALLOCATIONS.index("gpus")
START_S = ALLOCATIONS.index("start_s")


class SimulatedPlanning:
    """Plans as `options` say. A plan is solved at once, and is there ``plan_s`` later by the virtual clock.

    How long the solver really takes does not change a run: it is limited by work alone.
    """

    def __init__(
        self,
        options: SlowOptions,
        plan_s: float,
        seed: int,
        trace: Trace,
        queue: GlobalQueue,
        clock: VirtualClock,
        heap: EventHeap,
        post: Callable[[str, Sequence[m.Message]], Any],
    ) -> None:
        assert options.plan_data_every_s is not None
        self.planning = DataPlanning(wish_of(options, seed))
        self.planner = Planner(Options(time_limit_s=float("inf")), lambda: 0.0)
        self.plans = self.discarded = 0
        self._every_s = options.plan_data_every_s
        self._plan_s = plan_s
        self._until_s = float(trace.submit_s.max())
        self._queue, self._clock, self._heap, self._post = queue, clock, heap, post
        self._rows = {job: row for row, job in enumerate(trace.job_id)}
        self._trace = trace

    def watched(self, tables: Tables) -> Tables:
        """Tables through which attempts are heard of as they end."""

        def allocation(row: Sequence[Any]) -> object:
            self._note(row)
            return tables.allocations(row)

        return Tables(tables.jobs, allocation, tables.timeline, tables.copies)

    def begin(self) -> None:
        """Plan from now on; while jobs are submitted, for a plan after the last would serve nobody."""
        self._heap.put(self._clock.now_s + self._every_s, Priority.WAKE, self._plan, None)
        self._heap.put(self._clock.now_s + LOOK_S, Priority.WAKE, self._look, None)

    def _note(self, row: Sequence[Any]) -> None:
        trace, number = self._trace, self._rows[row[JOB]]
        names = trace.datasets.names[int(trace.datasets.codes[number])]
        if names:
            kind = Kind(row[MODEL], bool(trace.band[number] >= Band.HIGH))
            gpu_s = row[GPUS] * (row[END_S] - row[START_S])
            submit_s = float(trace.submit_s[number])
            tasks = int(trace.tasks[number])
            gang = gang_of(round(float(trace.gpus[number]) * MILLI) * tasks, tasks)
            self.planning.diary.note(Entry(submit_s, tuple(names.split("|")), kind, gpu_s, gang))

    def _plan(self, _: object) -> None:
        now = self._clock.now_s
        question = self.planning.question(picture_of(self._queue), now)
        if question is not None:
            self._heap.put(now + self._plan_s, Priority.NEWS, self._answer, question)
        if now + self._every_s <= self._until_s:
            self._heap.put(now + self._every_s, Priority.WAKE, self._plan, None)

    def _answer(self, question: Question) -> None:
        now = self._clock.now_s
        try:
            answer = self.planner.plan(question.problem)
        except TopmastError as error:
            self.planning.failed(str(error), now)
            self.discarded += 1
            return
        applied = self.planning.answered(question, answer, picture_of(self._queue), now)
        self.plans += applied
        self.discarded += not applied

    def _look(self, _: object) -> None:
        for order in self.planning.orders(stock_of(self._queue)):
            reply = self._post(ids.QUEUE, (message_of(order),))
            if isinstance(reply, Exception):
                self.planning.refused(order, str(reply))
            else:
                self.planning.accepted(order)
        movement = self.planning.movement
        if self._clock.now_s + LOOK_S <= self._until_s or (movement and movement.in_flight):
            self._heap.put(self._clock.now_s + LOOK_S, Priority.WAKE, self._look, None)
