"""Data planned again and again: what to ask the planner, whether its answer still holds, what to
order.

See `topmast.slow.planning`. The cadence calls `request` when a plan is due, has it solved, gives
the answer to `apply` (or calls `failed`), and between plans carries out the orders of `movement`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from topmast.model.fleet import DatasetSpec, Fleet
from topmast.slow.arrays import Floats
from topmast.slow.data.access_log import AccessLog, Entry, Looked
from topmast.slow.data.demand import Terms, problem_of
from topmast.slow.data.gangs import Rooms
from topmast.slow.data.movement import Movement, Stock, movement_of, served_by
from topmast.slow.data.problem import Problem
from topmast.slow.forecast.errors import Errors, tuned
from topmast.slow.forecast.scenarios import scenarios
from topmast.slow.forecast.smoothing import Smoothing, forecast
from topmast.slow.planning import ActivePlan, Planning, PlanRequest

HELD_OUT_DAYS = 3


class DataPlanOptions(Struct, frozen=True):
    """What to plan for."""

    history_days: int = 28
    """Days of the access log that the forecast is made from."""
    scenarios: int = 6
    """Days that are drawn at random around the forecast; 0: the mean day alone."""
    terms: Terms = Terms(growth=0.7, replica_part=0.002, move_part=0.001)
    """What a plan weighs."""
    seed: int = 0
    """Of the days that are drawn."""


class DataSnapshot(Struct, frozen=True):
    """The system at one time."""

    fleet: Fleet
    datasets: tuple[DatasetSpec, ...]
    """The datasets as they are now."""
    stock: Stock
    """Where they are."""
    unfinished: tuple[Entry, ...] = ()
    """What the jobs that wait or run will read."""

    def holds_still(self, other: DataSnapshot) -> bool:
        """Whether a plan for ``other`` makes sense here: the same regions, links and tables."""
        mine = (self.fleet.regions, self.fleet.links)
        known = {d.name: (d.size_bytes, d.allowed, d.min_replicas) for d in self.datasets}
        theirs = {d.name: (d.size_bytes, d.allowed, d.min_replicas) for d in other.datasets}
        return mine == (other.fleet.regions, other.fleet.links) and known == theirs


class DataPlanRequest(PlanRequest, frozen=True):
    """A problem for the planner."""

    snapshot: DataSnapshot
    problem: Problem
    errors: Errors | None
    """Of the forecast, on days that were held out; None where there are too few days."""


class ActiveDataPlan(ActivePlan, frozen=True):
    """Where data should be, and why."""

    errors: Errors | None
    """Those of its request."""
    placement: dict[str, tuple[str, ...]]
    """The regions of each table."""
    served: dict[tuple[str, str], float]
    """GPUs of demand that a table in a region serves."""


FIGURES = (
    "status", "objective", "bound", "gap", "controllable_gap", "max_demand_supply",
    "replication_overhead", "non_collocated_share", "wall_s",
)  # fmt: skip


class DataPlanning(Planning[ActiveDataPlan]):
    """What the slow path knows about data. For one thread."""

    def __init__(self, options: DataPlanOptions) -> None:
        super().__init__()
        self.options = options
        self.access_log = AccessLog()
        self.movement: Movement | None = None
        """What is left to do of the active plan."""

    def request(self, snapshot: DataSnapshot, now_s: float) -> DataPlanRequest | None:
        """What to ask the planner; None where there is no data or no GPU to plan for."""
        if not snapshot.datasets or not snapshot.fleet.models():
            return None
        number = self._next_number()
        names = tuple(d.name for d in snapshot.datasets)
        looked = self.access_log.look(
            names, now_s, self.options.history_days, snapshot.unfinished,
            bars=Rooms(snapshot.fleet).barred,
        )  # fmt: skip
        days, expected, errors = self._days(looked, number)
        fleet = replace(snapshot.fleet, datasets=snapshot.datasets)
        problem = problem_of(
            fleet,
            snapshot.stock.replicas,
            looked.readings,
            looked.kinds,
            days,
            looked.period_s,
            self.options.terms,
            expected,
        )
        return DataPlanRequest(number, now_s, snapshot, problem, errors)

    def _days(self, looked: Looked, number: int) -> tuple[Floats, Floats | None, Errors | None]:
        """The days planned for [s, i, k]; the day [i, k] that they are drawn around, if they are
        drawn; and the error of the forecast where there were days to hold out.
        """
        history = looked.history
        errors = None
        if history.days > HELD_OUT_DAYS:
            smoothing, made, errors = tuned(history, HELD_OUT_DAYS)
        else:
            smoothing = Smoothing()
            made = forecast(history, smoothing)
        if not self.options.scenarios:
            return made.gpu_s()[None], None, errors
        rng = np.random.default_rng((self.options.seed, number))
        drawn = scenarios(history, made, smoothing, self.options.scenarios, rng)
        return drawn, made.gpu_s(), errors

    def apply(
        self,
        request: DataPlanRequest,
        answer: Mapping[str, Any],
        snapshot: DataSnapshot,
        now_s: float,
    ) -> bool:
        """Make a plan the active one if it still makes sense; returns whether it does."""
        if answer["status"] == "infeasible":
            self.failed(f"there is no placement: {answer['conflict']['why']}", now_s)
            return False
        if not snapshot.holds_still(request.snapshot):
            self.failed("regions, links or datasets changed while it was made", now_s)
            return False
        placement = {name: tuple(regions) for name, regions in answer["placement"].items()}
        figures = {name: answer[name] for name in FIGURES}
        served = served_by(request.problem, answer)
        self._activate(
            ActiveDataPlan(
                request.number, request.asked_s, now_s, figures, request.errors, placement, served
            )
        )
        self.movement = movement_of(request.problem, answer)
        return True

    def why(self, table: str, region: str) -> str:
        """Why the active plan has a table in a region, in words; empty without a plan for it."""
        plan = self.active
        if plan is None or table not in plan.placement:
            return ""
        if region not in plan.placement[table]:
            return "not in the plan: to be dropped when nothing needs it"
        gpus = plan.served.get((table, region), 0.0)
        if gpus > 0:
            return f"planned: serves demand of {gpus:.3g} GPUs"
        return "planned: the copies that there must be"
