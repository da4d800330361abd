"""Where data should be, planned while the server runs: the plan's view and its history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from topmast.model.job import MILLI, Band
from topmast.model.plan_views import DataMoveView, DataPlanView
from topmast.model.views import JobView
from topmast.policies.options import SlowOptions
from topmast.ports import Clock, Journal
from topmast.runtime.loop import Runtime
from topmast.runtime.planning.data import DataCadence
from topmast.runtime.planning.data_snapshot import gang_of
from topmast.service.event_stream import EventStream
from topmast.service.planning import LiveSystem, OwnProcess, PlanningThread
from topmast.slow.data.access_log import DAY_S, AccessLog, Entry
from topmast.slow.data.demand import Kind
from topmast.slow.data.movement import Movement, ReplicaOrder
from topmast.slow.data.planning import ActiveDataPlan
from topmast.slow.data.problem import Problem

LOOK_S = 2.0
"""How often it is seen which copies and drops are next."""
MOVES_SHOWN = 50
"""Of a plan, in each state."""


class DataPlans(PlanningThread):
    """Plans every ``options.plan_data_every_s``."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        clock: Clock,
        event_stream: EventStream,
        options: SlowOptions,
        solver: Callable[[], OwnProcess[Problem]],
    ) -> None:
        history = JournalHistory(journal, options.history_days)
        self.cadence = DataCadence(LiveSystem(runtime), options, LOOK_S, history.read)
        super().__init__(self.cadence, runtime, clock, event_stream, solver)

    def view(self) -> DataPlanView:
        """What is planned, what is done of it, and what went wrong last."""
        planning, plan = self.cadence.planning, self.cadence.planning.active
        movement, failure = planning.movement, planning.failure
        return DataPlanView(
            every_s=self.cadence.every_s,
            next_s=self.cadence.next_s,
            solving=self.cadence.solving,
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
            trouble=failure.why if failure else None,
            trouble_s=failure.at_s if failure else None,
            moves=tuple(_moves(movement)) if movement else (),
        )

    def why(self, table: str, region: str) -> str:
        """Why a replica is where it is, as far as a plan says."""
        return self.cadence.planning.why(table, region)


def _moves(movement: Movement) -> Iterator[DataMoveView]:
    """What a plan moves and why: the newest of what is done, and the next of what is to come."""
    for order in movement.under_way[:MOVES_SHOWN]:
        yield _move(order, "under way", _reason(order))
    for order, why in movement.given_up[-MOVES_SHOWN:]:
        yield _move(order, "given up", why)
    for order in movement.carried_out[-MOVES_SHOWN:][::-1]:
        yield _move(order, "done", _reason(order))
    for order in movement.copies[:MOVES_SHOWN] + movement.drops[:MOVES_SHOWN]:
        yield _move(order, "to come", _reason(order))


def _move(order: ReplicaOrder, state: str, why: str) -> DataMoveView:
    return DataMoveView(order.op, order.table, order.region, order.source, order.bytes, state, why)


def _reason(order: ReplicaOrder) -> str:
    """Why a plan wants a move."""
    if order.op == "drop":
        return "the plan serves the jobs that read it from other regions"
    if order.value > 0:
        return f"jobs that read it there are expected to want {order.value:.3g} GPUs"
    return "so many replicas there must be"


class JournalHistory:
    """Writes the jobs that ended, as the journal has them, into the access log."""

    def __init__(self, journal: Journal, history_days: int) -> None:
        self._journal = journal
        # One day more than a plan looks at: the oldest day counts only if the log has all of it.
        self._kept_s = (history_days + 1) * DAY_S
        self._read_until_s: float | None = None

    def read(self, log: AccessLog, now_s: float) -> None:
        """Add the jobs that ended since the last time. O(attempts that ended)."""
        since_s = self._read_until_s
        if since_s is None:
            since_s = now_s - self._kept_s
        ended = {
            row.job: None
            for row in self._journal.attempts(since_s, now_s)
            if since_s <= row.end_s < now_s
        }
        for job in ended:
            found = self._journal.finished_job(job)
            if found is None or found.finish_s >= now_s:
                continue  # it goes on, or is read the next time
            entry = entry_of(msgspec.json.decode(found.view, type=JobView))
            if entry is not None:
                log.note(entry)
        self._read_until_s = now_s
        log.forget(now_s - self._kept_s)


def entry_of(job: JobView) -> Entry | None:
    """What a finished job read and took; None for one that read nothing or never ran."""
    if not job.datasets or job.finish_s is None or job.start_s is None:
        return None
    held_s = max(0.0, job.finish_s - job.submit_s - job.wait_s)
    kind = Kind(job.gpu_model or "", Band[job.band.upper()] >= Band.HIGH)
    gang = gang_of(round(job.gpus * MILLI), job.tasks)
    return Entry(job.submit_s, job.datasets, kind, held_s * job.gpus, gang)


def _forecast(plan: ActiveDataPlan | None) -> dict[str, Any]:
    """The errors of the forecast that a plan was made from, on days held out."""
    return {} if plan is None or plan.errors is None else plan.errors.document()
