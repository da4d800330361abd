"""Where data should be: the cadence of its plans, and their copies and drops.

It speaks to the queue by messages only, and the queue checks every order once more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from topmast.model import ids
from topmast.model.errors import TopmastError
from topmast.policies.options import SlowOptions
from topmast.runtime.planning.cadence import JOBS_A_LOOK, Cadence, Solver, System
from topmast.runtime.planning.data_snapshot import (
    message_of,
    options_of,
    snapshot_of,
    stock_of,
    unfinished_of,
)
from topmast.slow.data.access_log import AccessLog, Entry
from topmast.slow.data.planning import DataPlanning, DataPlanRequest, DataSnapshot
from topmast.slow.data.problem import Problem


class DataCadence(Cadence[Problem, DataPlanRequest, dict[str, Any]]):
    """Plans every ``options.plan_data_every_s``.

    ``read`` brings the access log up to a time before each plan.
    """

    kind = "data-plan"

    def __init__(
        self,
        system: System,
        options: SlowOptions,
        look_s: float,
        read: Callable[[AccessLog, float], None] = lambda log, now_s: None,
        seed: int = 0,
    ) -> None:
        self.planning = DataPlanning(options_of(options, seed))
        super().__init__(system, self.planning, options.plan_data_every_s, look_s)
        self._read = read

    def request(self, now_s: float) -> DataPlanRequest | None:
        """A problem from what jobs read lately, and what waits."""
        self._read(self.planning.access_log, now_s)
        return self.planning.request(self._snapshot(), now_s)

    def solve(self, solver: Solver[Problem], request: DataPlanRequest) -> dict[str, Any]:
        """One problem for all regions."""
        return solver.plan(request.problem)

    def apply(self, request: DataPlanRequest, answer: dict[str, Any], now_s: float) -> str | None:
        """Make it the active plan if regions, links and tables are those that it was made for."""
        snapshot = self.system.ask(lambda: snapshot_of(self.system.queue, ()))
        applied = self.planning.apply(request, answer, snapshot, now_s)
        movement = self.planning.movement
        if not applied or movement is None:
            return None
        return (
            f"data plan {request.number}: {len(movement.copies)} copies,"
            f" {len(movement.drops)} drops, gap {answer['gap']:.2%}"
        )

    def look(self, now_s: float) -> None:
        """Order the copies and drops that are next."""
        movement = self.planning.movement
        if movement is None or movement.is_over:
            return
        stock = self.system.ask(lambda: stock_of(self.system.queue))
        for order in movement.orders(stock):
            try:
                self.system.order(ids.QUEUE, message_of(order))
            except TopmastError as error:
                movement.refused(order, str(error))
            else:
                movement.accepted(order)

    @property
    def in_flight(self) -> bool:
        """Whether a copy that was ordered is not there yet."""
        movement = self.planning.movement
        return movement is not None and movement.in_flight > 0

    def _snapshot(self) -> DataSnapshot:
        """The system with all its jobs, put together from short looks. O(jobs)."""
        queue = self.system.queue
        snapshot = self.system.ask(lambda: snapshot_of(queue, ()))
        names = self.system.ask(lambda: list(queue.jobs.records))
        entries: list[Entry] = []
        for begin in range(0, len(names), JOBS_A_LOOK):
            some = names[begin : begin + JOBS_A_LOOK]
            entries += self.system.ask(partial(unfinished_of, queue, some))
        return msgspec.structs.replace(snapshot, unfinished=tuple(entries))
