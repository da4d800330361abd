"""Where data should be, planned on a cadence while the system runs; the fast path never waits for it.

One thread looks every few seconds which copies and drops are next; another waits for the planner. They
speak to the queue by messages only, which checks every order once more before it takes it. The queue is
looked at in small portions between its commits. The first thread alone changes what is known; others
read it by taking one reference, so that nobody waits for a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
import structlog
from msgspec import Struct

from topmast.model import ids
from topmast.model import views as v
from topmast.model.errors import TopmastError
from topmast.model.job import MILLI, Band
from topmast.policies.options import SlowOptions
from topmast.ports import Clock, HistoryRow, Journal
from topmast.runtime.datapicture import (
    gang_of,
    message_of,
    picture_of,
    stock_of,
    unfinished_of,
    wish_of,
)
from topmast.runtime.loop import Runtime
from topmast.service.hub import Hub
from topmast.slow.data.demand import Kind
from topmast.slow.data.diary import DAY_S, Entry
from topmast.slow.data.planning import DataPlanning, InForce, Picture, Question
from topmast.slow.data.problem import Problem

LOOK_S = 2.0
JOBS_A_LOOK = 2_000
"""So many jobs are looked at between two commits: some milliseconds."""
ANSWER_S = 30.0
"""How long the queue may take to answer an order before that counts as an error."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Solver(Protocol):
    """Solves one problem at a time, far from the queue."""

    def plan(self, problem: Problem) -> dict[str, Any]:
        """The answer; raises TopmastError."""
        ...

    def close(self) -> None:
        """Stop, also in the middle of a problem."""
        ...


class _Solving(Struct):
    """A plan in the making."""

    question: Question
    answer: Future[dict[str, Any]]


class DataPlans:
    """Plans every ``options.plan_data_every_s``; `open` begins, `close` ends it. Without that it only answers."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        clock: Clock,
        hub: Hub,
        options: SlowOptions,
        solver: Callable[[], Solver],
    ) -> None:
        self.options = options
        self.planning = DataPlanning(wish_of(options))
        self._runtime, self._journal, self._clock, self._hub = runtime, journal, clock, hub
        self._make_solver = solver
        self._solver: Solver | None = None
        self._solving: _Solving | None = None
        self._read_until_s: float | None = None
        self._next_s: float | None = None
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(2, "topmast-data-plans")

    # --- from outside -------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin; the first plan is due one period from now."""
        if self.options.plan_data_every_s is None:
            return
        self._solver = self._make_solver()
        self._next_s = self._clock.now() + self.options.plan_data_every_s
        self._threads.submit(self._run)

    def close(self) -> None:
        """End both threads, and the planner."""
        self._stop.set()
        if self._solver is not None:
            self._solver.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def view(self) -> v.DataPlanView:
        """What is planned, what is done of it, and what went wrong last."""
        planning, plan = self.planning, self.planning.in_force
        movement, trouble = planning.movement, planning.trouble
        return v.DataPlanView(
            every_s=self.options.plan_data_every_s,
            next_s=self._next_s,
            solving=self._solving is not None,
            number=plan.number if plan else None,
            applied_s=plan.applied_s if plan else None,
            figures=plan.figures if plan else {},
            forecast=_forecast(plan),
            copies_left=len(movement.copies) if movement else 0,
            copies_in_flight=movement.in_flight if movement else 0,
            drops_left=len(movement.drops) if movement else 0,
            done=movement.done if movement else 0,
            given_up=tuple(
                f"{order.op} of {order.table} in {order.region}: {why}"
                for order, why in (movement.given_up if movement else ())
            ),
            trouble=trouble[1] if trouble else None,
            trouble_s=trouble[0] if trouble else None,
        )

    def why(self, table: str, region: str) -> str:
        """Why a replica is where it is, as far as a plan says."""
        return self.planning.why(table, region)

    # --- the thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self._look()
            except Exception as error:  # whatever it is, the last plan stays, and people hear of it
                if self._stop.is_set():
                    return
                log.exception("planning where data lies went wrong")
                self._failed(f"{type(error).__name__}: {error}")

    def _look(self) -> None:
        solving = self._solving
        if solving is None and self._next_s is not None and self._clock.now() >= self._next_s:
            self._ask()
        elif solving is not None and solving.answer.done():
            self._solving = None
            self._take(solving)
        self._order()

    def _ask(self) -> None:
        assert self.options.plan_data_every_s is not None
        assert self._solver is not None
        now = self._clock.now()
        self._next_s = now + self.options.plan_data_every_s
        self._read_journal(now)
        # One day more than is looked at: the oldest day counts only if the diary has all of it.
        self.planning.diary.forget(now - (self.options.history_days + 1) * DAY_S)
        question = self.planning.question(self._picture(), now)
        if question is not None:
            self._solving = _Solving(
                question, self._threads.submit(self._solver.plan, question.problem)
            )

    def _picture(self) -> Picture:
        """The system with all its jobs, put together from short looks. O(jobs)."""
        queue = self._runtime.machines.queue
        picture = self._look_at(lambda: picture_of(queue, ()))
        names = self._look_at(lambda: list(queue.jobs))
        entries: list[Entry] = []
        for begin in range(0, len(names), JOBS_A_LOOK):
            some = names[begin : begin + JOBS_A_LOOK]
            entries += self._look_at(partial(unfinished_of, queue, some))
        return msgspec.structs.replace(picture, unfinished=tuple(entries))

    def _look_at(self, question: Callable[[], T]) -> T:
        """Ask between two commits of the runtime."""
        return self._runtime.ask(question).result(ANSWER_S)

    def _read_journal(self, now: float) -> None:
        """Write the jobs that ended since the last look into the diary. O(attempts that ended)."""
        since_s = self._read_until_s
        if since_s is None:
            since_s = now - (self.options.history_days + 1) * DAY_S
        ended = {
            r.job: None for r in self._journal.attempts(since_s, now) if since_s <= r.end_s < now
        }
        for job in ended:
            row = self._journal.finished_job(job)
            if row is None or row.finish_s >= now:
                continue  # it goes on, or is read the next time
            entry = entry_of(msgspec.json.decode(row.view, type=v.JobView))
            if entry is not None:
                self.planning.diary.note(entry)
        self._read_until_s = now

    def _take(self, solving: _Solving) -> None:
        now = self._clock.now()
        try:
            answer = solving.answer.result()
        except TopmastError as error:
            self._failed(str(error))
            return
        picture = self._look_at(lambda: picture_of(self._runtime.machines.queue, ()))
        applied = self.planning.answered(solving.question, answer, picture, now)
        trouble, movement = self.planning.trouble, self.planning.movement
        if not applied:
            self._tell("data-plan-failed", f"no new data plan: {trouble[1] if trouble else ''}")
        elif movement is not None:
            text = (
                f"data plan {solving.question.number}: {len(movement.copies)} copies,"
                f" {len(movement.drops)} drops, gap {answer['gap']:.2%}"
            )
            self._tell("data-plan", text)

    def _failed(self, why: str) -> None:
        self.planning.failed(why, self._clock.now())
        self._tell("data-plan-failed", f"no new data plan: {why}; the last one stays in force")

    def _order(self) -> None:
        movement = self.planning.movement
        if movement is None or movement.is_over:
            return
        stock = self._look_at(lambda: stock_of(self._runtime.machines.queue))
        orders = self.planning.orders(stock)
        for order in orders:
            try:
                self._runtime.call(ids.QUEUE, message_of(order)).result(ANSWER_S)
            except TopmastError as error:
                self.planning.refused(order, str(error))
            else:
                self.planning.accepted(order)

    def _tell(self, kind: str, text: str) -> None:
        log.info(text)
        self._hub.publish([HistoryRow(self._clock.now(), "", kind, text)])


def entry_of(job: v.JobView) -> Entry | None:
    """What a finished job read and took; None for one that read nothing or never ran."""
    if not job.datasets or job.finish_s is None or job.start_s is None:
        return None
    held_s = max(0.0, job.finish_s - job.submit_s - job.wait_s)
    kind = Kind(job.gpu_model or "", Band[job.band.upper()] >= Band.HIGH)
    gang = gang_of(round(job.gpus * MILLI), job.tasks)
    return Entry(job.submit_s, job.datasets, kind, held_s * job.gpus, gang)


def _forecast(plan: InForce | None) -> dict[str, Any]:
    """The errors of the forecast that a plan was made from, on days held out."""
    return {} if plan is None or plan.errors is None else plan.errors.document()
