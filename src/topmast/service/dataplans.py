"""Where data should be, planned on a cadence while the system runs.

Between plans it looks which copies and drops are next. It speaks to the queue by messages only, which checks
every order once more before it takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from topmast.model import ids
from topmast.model import views as v
from topmast.model.errors import TopmastError
from topmast.model.job import MILLI, Band
from topmast.policies.options import SlowOptions
from topmast.ports import Clock, Journal
from topmast.runtime.datapicture import (
    gang_of,
    message_of,
    picture_of,
    stock_of,
    unfinished_of,
    wish_of,
)
from topmast.runtime.loop import Runtime
from topmast.service.cadence import ANSWER_S, JOBS_A_LOOK, Cadence, Solver
from topmast.service.hub import Hub
from topmast.slow.data.demand import Kind
from topmast.slow.data.diary import DAY_S, Entry
from topmast.slow.data.planning import DataPlanning, InForce, Picture, Question
from topmast.slow.data.problem import Problem


class DataPlans(Cadence[Problem, Question, dict[str, Any]]):
    """Plans every ``options.plan_data_every_s``."""

    kind = "data-plan"
    wait_s = 2.0

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        clock: Clock,
        hub: Hub,
        options: SlowOptions,
        solver: Callable[[], Solver[Problem]],
    ) -> None:
        super().__init__(runtime, clock, hub, options.plan_data_every_s, solver)
        self.options = options
        self.planning = DataPlanning(wish_of(options))
        self._journal = journal
        self._read_until_s: float | None = None

    # --- from outside -------------------------------------------------------------------------------

    def view(self) -> v.DataPlanView:
        """What is planned, what is done of it, and what went wrong last."""
        planning, plan = self.planning, self.planning.in_force
        movement, trouble = planning.movement, planning.trouble
        return v.DataPlanView(
            every_s=self._every_s,
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

    # --- the cadence --------------------------------------------------------------------------------

    def question(self, now_s: float) -> Question | None:
        """A problem from what jobs read lately, and what waits."""
        self._read_journal(now_s)
        # One day more than is looked at: the oldest day counts only if the diary has all of it.
        self.planning.diary.forget(now_s - (self.options.history_days + 1) * DAY_S)
        return self.planning.question(self._picture(), now_s)

    def solve(self, solver: Solver[Problem], question: Question) -> dict[str, Any]:
        """One problem for all regions."""
        return solver.plan(question.problem)

    def take(self, question: Question, answer: dict[str, Any], now_s: float) -> str | None:
        """Let it be in force, if regions, links and tables are those that it was made for."""
        picture = self.ask_machines(lambda: picture_of(self._runtime.machines.queue, ()))
        applied = self.planning.answered(question, answer, picture, now_s)
        movement = self.planning.movement
        if not applied or movement is None:
            return None
        return (
            f"data plan {question.number}: {len(movement.copies)} copies,"
            f" {len(movement.drops)} drops, gap {answer['gap']:.2%}"
        )

    def note_failure(self, why: str, now_s: float) -> None:
        """The last plan stays."""
        self.planning.failed(why, now_s)

    def trouble(self) -> str:
        """What was wrong with the last plan."""
        trouble = self.planning.trouble
        return trouble[1] if trouble else ""

    def look(self, now_s: float) -> None:
        """Give the orders that are next."""
        movement = self.planning.movement
        if movement is None or movement.is_over:
            return
        stock = self.ask_machines(lambda: stock_of(self._runtime.machines.queue))
        orders = self.planning.orders(stock)
        for order in orders:
            try:
                self._runtime.call(ids.QUEUE, message_of(order)).result(ANSWER_S)
            except TopmastError as error:
                self.planning.refused(order, str(error))
            else:
                self.planning.accepted(order)

    def _picture(self) -> Picture:
        """The system with all its jobs, put together from short looks. O(jobs)."""
        queue = self._runtime.machines.queue
        picture = self.ask_machines(lambda: picture_of(queue, ()))
        names = self.ask_machines(lambda: list(queue.jobs))
        entries: list[Entry] = []
        for begin in range(0, len(names), JOBS_A_LOOK):
            some = names[begin : begin + JOBS_A_LOOK]
            entries += self.ask_machines(partial(unfinished_of, queue, some))
        return msgspec.structs.replace(picture, unfinished=tuple(entries))

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
