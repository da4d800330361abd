"""One large model by prices on cells: a lower bound, and from it the fullest domains, and the
assignment.

With a price for the hosts of each cell every claimant chooses by itself, exactly, fullest domain
and all (`kernels.respond`). The sum is a lower bound for any prices. The best prices are found by
a small linear program that mixes the choices so far (Dantzig and Wolfe, 1960). Once every
claimant's fullest domain is decided, the rest is a flow, which a linear program solves in whole
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import highspy
import numpy as np
from msgspec import Struct

from topmast.slow.arrays import Floats, Ints
from topmast.slow.capacity.classes import Classes, ModelSolution, cost_of, costs_of
from topmast.slow.capacity.formulation import formulate, rooms, steps
from topmast.slow.capacity.kernels import respond
from topmast.slow.highs import Effort, solve

ROUNDS = 300
FLOW_EVERY = 10
"""Rounds between two assignments made from the choices."""
KEPT = 0.5
"""How much of the best prices so far stays in the next ones: new ones alone swing widely."""
ENOUGH = 1e-7


class Choice(Struct, frozen=True):
    """What all claimants choose at some prices: hosts [K, E], their fullest domain [K], the
    bound.
    """

    take: Ints
    worst: Ints
    bound: float


class Chooser:
    """Answers what every claimant would take at given prices of cells."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._room = _by_cell(rooms(classes))
        self._full, self._rest = steps(classes)
        held = np.stack([classes.far - price for price in (*classes.move, 0.0)])
        self._slope = _by_cell(held)
        self._kept = float(sum(p * classes.have[i].sum() for i, p in enumerate(classes.move)))

    def at(self, prices: Floats) -> Choice:
        """The choices at ``prices`` [E] per host, and the bound that they prove."""
        classes = self._classes
        take, worst = np.zeros(classes.far.shape, np.int64), np.zeros(len(classes.far), np.int64)
        value = respond(
            self._slope + np.repeat(prices, 3), self._room, classes.price, self._full, self._rest,
            float(classes.unit_gpus), classes.survive, classes.wanted, take, worst,
        )  # fmt: skip
        return Choice(take, worst, value + self._kept - float(prices @ classes.total))


def _by_cell(parts: Any) -> Any:
    """[3, K, E] as [K, 3 E], the parts of a cell side by side."""
    return np.ascontiguousarray(parts.transpose(1, 2, 0)).reshape(parts.shape[1], -1)


def solve_by_prices(classes: Classes, left_s: Callable[[], float]) -> ModelSolution:
    """The best assignment found, and the bound, of an even model; ends early when nothing
    improves.
    """
    chooser, best = Chooser(classes), _Best(classes, left_s)
    prices = best.try_worst(chooser.at(np.zeros(len(classes.total))).worst)
    master = _Master(classes)
    master.add(best.count)
    centre, bound = prices, -np.inf
    for turn in range(ROUNDS):
        choice = chooser.at(prices)
        if choice.bound > bound:
            bound, centre = choice.bound, prices
        master.add(choice.take)
        value, wished = master.solved()
        if turn % FLOW_EVERY == FLOW_EVERY - 1:
            best.try_worst(choice.worst)
        # Nothing is left to learn when the mix of choices costs no more than the bound.
        small = ENOUGH * max(1.0, abs(bound))
        if value - bound <= small or best.cost - bound <= small or left_s() <= 0.0:
            break
        prices = KEPT * centre + (1.0 - KEPT) * wished
    best.try_worst(master.heaviest_worst())
    for _ in range(3):
        best.try_worst(chooser.at(best.prices).worst)
    return ModelSolution(best.count, bound)


class _Best:
    """The best assignment so far; at first, every claimant keeps what it has."""

    def __init__(self, classes: Classes, left_s: Callable[[], float]) -> None:
        self._classes = classes
        self._left_s = left_s
        self._tried: set[bytes] = set()
        self.count: Ints = classes.have.sum(axis=0)
        self.cost = cost_of(classes, self.count)
        self.prices = np.zeros(len(classes.total))

    def try_worst(self, worst: Ints) -> Floats:
        """Assign with ``worst[k]`` hosts at most in a cell of k; the prices of cells [E] there."""
        if worst.tobytes() in self._tried:
            return self.prices
        self._tried.add(worst.tobytes())
        program = formulate(self._classes, worst, whole=False)
        solved = solve(program.model, Effort(time_s=max(1.0, self._left_s()), method="simplex"))
        if solved.values is None or solved.row_duals is None:
            return self.prices
        count = program.counts(solved.values)
        complete = bool((count.sum(axis=0) == self._classes.total).all())
        cost = cost_of(self._classes, count)
        prices: Floats = -solved.row_duals[: len(self._classes.total)]
        if complete and cost < self.cost:
            self.count, self.cost, self.prices = count, cost, prices
        return prices


class _Master:
    """The cheapest mix of choices that gives each host away once: K + E rows, a column for each
    choice.
    """

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._cells, self._claimants = len(classes.total), len(classes.far)
        self._worst: list[Ints] = []
        self._known: set[bytes] = set()
        self._owner: list[int] = []
        self._solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        self._solver.setOptionValue("output_flag", False)
        self._solver.setOptionValue("threads", 1)
        limit = np.concatenate([classes.total, np.ones(self._claimants)]).astype(float)
        none = np.zeros(0, np.int32)
        starts = np.zeros(len(limit), np.int32)
        self._solver.addRows(len(limit), limit, limit, 0, starts, none, np.zeros(0))

    def add(self, take: Ints) -> None:
        """A choice [E] of every claimant, unless it is known."""
        costs = costs_of(self._classes, take)
        for k in range(self._claimants):
            key = k.to_bytes(4, "big") + take[k].tobytes()
            if key in self._known:
                continue
            self._known.add(key)
            used = np.nonzero(take[k])[0]
            rows = np.append(used, self._cells + k).astype(np.int32)
            values = np.append(take[k][used], 1).astype(float)
            self._solver.addCol(costs[k], 0.0, highspy.kHighsInf, len(rows), rows, values)
            self._owner.append(k)
            self._worst.append(take[k].max(initial=0))

    def solved(self) -> tuple[float, Floats]:
        """What the cheapest mix costs, and the prices of cells [E] at it."""
        self._solver.run()
        duals = np.array(self._solver.getSolution().row_dual)
        value = float(self._solver.getInfo().objective_function_value)
        return value, -duals[: self._cells]

    def heaviest_worst(self) -> Ints:
        """The fullest domain [K] of the choice that weighs most in the mix."""
        weights = np.array(self._solver.getSolution().col_value)
        owner, worst = np.array(self._owner), np.array(self._worst)
        heaviest = np.zeros(self._claimants, np.int64)
        most = np.full(self._claimants, -1.0)
        for column in range(len(weights)):
            if weights[column] > most[owner[column]]:
                most[owner[column]] = weights[column]
                heaviest[owner[column]] = worst[column]
        return heaviest
