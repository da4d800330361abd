"""Data planned again and again: what to ask the planner, whether its answer still holds, what to order.

No clock, no thread and no solver in here: those differ between a live system and a simulated one. Whoever
drives it calls `question` when a plan is due, has it solved, hands the answer to `answered` (or says
`failed`), and in between gives the orders of `orders`. A plan stays in force until the next is valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from topmast.model.fleet import DatasetSpec, Fleet
from topmast.slow.arrays import Floats
from topmast.slow.data.demand import Terms, problem_of
from topmast.slow.data.diary import Diary, Entry, Looked
from topmast.slow.data.gangs import Rooms
from topmast.slow.data.movement import Movement, Order, Stock, movement_of, served_by
from topmast.slow.data.problem import Problem
from topmast.slow.forecast.errors import Errors, tuned
from topmast.slow.forecast.scenarios import scenarios
from topmast.slow.forecast.smoothing import Smoothing, forecast

HELD_OUT_DAYS = 3


class Wish(Struct, frozen=True):
    """What to plan for: days of history, days drawn (0: the mean one), and what a plan weighs."""

    history_days: int = 28
    scenarios: int = 6
    terms: Terms = Terms(growth=0.7, replica_part=0.002, move_part=0.001)
    seed: int = 0


class Picture(Struct, frozen=True):
    """The system at a moment: its fleet, its datasets as they are now, where they are, and its unfinished jobs."""

    fleet: Fleet
    datasets: tuple[DatasetSpec, ...]
    stock: Stock
    unfinished: tuple[Entry, ...] = ()

    def holds_still(self, other: Picture) -> bool:
        """Whether a plan for ``other`` makes sense here: the same regions, links and tables."""
        mine = (self.fleet.regions, self.fleet.links)
        known = {d.name: (d.size_bytes, d.allowed, d.min_replicas) for d in self.datasets}
        theirs = {d.name: (d.size_bytes, d.allowed, d.min_replicas) for d in other.datasets}
        return mine == (other.fleet.regions, other.fleet.links) and known == theirs


class Question(Struct, frozen=True):
    """A problem for the planner, and what it was made of."""

    number: int
    asked_s: float
    picture: Picture
    problem: Problem
    errors: Errors | None


class InForce(Struct, frozen=True):
    """The plan that holds: when it was asked for and applied, its figures, why replicas are where they are."""

    number: int
    asked_s: float
    applied_s: float
    figures: dict[str, Any]
    errors: Errors | None
    placement: dict[str, tuple[str, ...]]
    served: dict[tuple[str, str], float]


FIGURES = (
    "status", "objective", "bound", "gap", "controllable_gap", "max_demand_supply",
    "replication_overhead", "non_collocated_share", "wall_s",
)  # fmt: skip


class DataPlanning:
    """What the slow path knows about data. Driven from outside, by one thread."""

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.diary = Diary()
        self.in_force: InForce | None = None
        self.movement: Movement | None = None
        self.trouble: tuple[float, str] | None = None
        """When and why the last plan came to nothing; None after one that was applied."""
        self._count = 0

    def question(self, picture: Picture, now_s: float) -> Question | None:
        """What to ask the planner; None where there is no data or no GPU to plan for."""
        if not picture.datasets or not picture.fleet.models():
            return None
        self._count += 1
        names = tuple(d.name for d in picture.datasets)
        looked = self.diary.look(
            names, now_s, self.wish.history_days, picture.unfinished,
            bars=Rooms(picture.fleet).barred,
        )  # fmt: skip
        days, errors = self._days(looked)
        fleet = replace(picture.fleet, datasets=picture.datasets)
        problem = problem_of(
            fleet,
            picture.stock.replicas,
            looked.readings,
            looked.kinds,
            days,
            looked.period_s,
            self.wish.terms,
        )
        return Question(self._count, now_s, picture, problem, errors)

    def _days(self, looked: Looked) -> tuple[Floats, Errors | None]:
        """The days planned for [s, i, k], and the error of the forecast where there were days to hold out."""
        history = looked.history
        errors = None
        if history.days > HELD_OUT_DAYS:
            smoothing, made, errors = tuned(history, HELD_OUT_DAYS)
        else:
            smoothing = Smoothing()
            made = forecast(history, smoothing)
        if not self.wish.scenarios:
            return made.gpu_s()[None], errors
        rng = np.random.default_rng((self.wish.seed, self._count))
        return scenarios(history, made, smoothing, self.wish.scenarios, rng), errors

    def answered(
        self, question: Question, answer: Mapping[str, Any], picture: Picture, now_s: float
    ) -> bool:
        """Put a plan in force, if it still makes sense; whether it was."""
        if answer["status"] == "infeasible":
            self.failed(f"there is no placement: {answer['conflict']['why']}", now_s)
            return False
        if not picture.holds_still(question.picture):
            self.failed("regions, links or datasets changed while it was made", now_s)
            return False
        placement = {name: tuple(regions) for name, regions in answer["placement"].items()}
        self.in_force = InForce(
            question.number,
            question.asked_s,
            now_s,
            {name: answer[name] for name in FIGURES},
            question.errors,
            placement,
            served_by(question.problem, answer),
        )
        self.movement = movement_of(question.problem, answer)
        self.trouble = None
        return True

    def failed(self, why: str, now_s: float) -> None:
        """Nothing came of a plan: the last one stays in force."""
        self.trouble = now_s, why

    def orders(self, stock: Stock) -> list[Order]:
        """Copies and drops to be ordered now."""
        return [] if self.movement is None else self.movement.orders(stock)

    def accepted(self, order: Order) -> None:
        """An order was taken."""
        if self.movement is not None:
            self.movement.accepted(order)

    def refused(self, order: Order, why: str) -> None:
        """An order was not taken."""
        if self.movement is not None:
            self.movement.refused(order, why)

    def why(self, table: str, region: str) -> str:
        """Why the plan in force has a table in a region, in words; empty without a plan for it."""
        plan = self.in_force
        if plan is None or table not in plan.placement:
            return ""
        if region not in plan.placement[table]:
            return "not in the plan: to be dropped when nothing needs it"
        gpus = plan.served.get((table, region), 0.0)
        if gpus > 0:
            return f"planned: serves demand of {gpus:.3g} GPUs"
        return "planned: the copies that there must be"
