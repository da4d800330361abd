"""A problem as arrays, by number of table d, region r, workload w and GPU model g.

What can never be chosen is found here once and for all: `can` and `may_serve` are exact, so that
leaving the rest out changes no answer and no bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from topmast.slow.arrays import Bools, Floats, Ints
from topmast.slow.data.problem import Problem, Table


class Lists(Struct, frozen=True):
    """Lists of numbers, one after the other: list i is ``items[start[i]:start[i + 1]]``."""

    start: Ints
    items: Ints

    def of(self, index: int) -> Ints:
        """One list."""
        return self.items[self.start[index] : self.start[index + 1]]

    def owners(self) -> Ints:
        """For each item, the list it is of."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))


class Columns(Struct, frozen=True):
    """A problem in arrays. D tables, R regions, W workloads, G models, S segments of overload.

    Amounts are in bytes, GPUs and CPUs, costs in the currency of the prices.

    - ``storage_bytes`` [R], ``cpus`` [R], ``supply`` [R, G]
    - ``size_bytes`` [D], ``held`` [D, R] at the start, ``least`` [D] replicas, ``can`` [D, R]: a
      replica there at the end is possible by itself; ``keep_cost`` [D], ``copy_cost`` [D]: of a
      replica that was there, and of a new one
    - ``reads``: tables of each workload; ``readers``: workloads of each table
    - ``demand`` [W, G], ``needs_cpus`` [W], ``loss`` [W]: the cost of not serving it at all;
      ``may_serve`` [W, R]
    - ``room`` [R, G, S] GPUs in each segment of overload (the last has no end), ``price`` [S]
    - ``link_bytes`` [R, R] from and to, ``budget_bytes``: infinity where there is none
    """

    storage_bytes: Floats
    cpus: Floats
    supply: Floats
    size_bytes: Floats
    held: Bools
    least: Ints
    can: Bools
    keep_cost: Floats
    copy_cost: Floats
    reads: Lists
    readers: Lists
    demand: Floats
    needs_cpus: Floats
    loss: Floats
    may_serve: Bools
    room: Floats
    price: Floats
    link_bytes: Floats
    budget_bytes: float
    models: tuple[str, ...]

    def shape(self) -> tuple[int, int, int, int]:
        """How many tables, regions, workloads and models."""
        tables, regions = self.can.shape
        workloads, models = self.demand.shape
        return tables, regions, workloads, models

    def replica_cost(self) -> Floats:
        """What a replica costs at the end, [D, R]."""
        return np.where(self.held, self.keep_cost[:, None], self.copy_cost[:, None])


def columns_of(problem: Problem) -> Columns:
    """The arrays of a problem that `reading.check` has passed. O(its size + D R + W R)."""
    prices = problem.prices
    region = {each.name: r for r, each in enumerate(problem.regions)}
    table = {each.name: d for d, each in enumerate(problem.tables)}
    models = _models(problem)
    supply = _amounts((each.gpus for each in problem.regions), models)
    demand = _amounts((each.gpus for each in problem.workloads), models)
    needs_cpus = np.array([each.cpus for each in problem.workloads], float)
    size = np.array([each.bytes for each in problem.tables], float)
    held = _marks([each.replicas for each in problem.tables], region)
    link = np.zeros((len(region), len(region)))
    for each in problem.links:
        link[region[each.source], region[each.target]] += each.bytes_per_period
    budget = problem.move_budget_bytes
    storage = np.array([each.storage_bytes for each in problem.regions], float)
    cpus = np.array([each.cpus for each in problem.regions], float)
    budget_bytes = np.inf if budget is None else float(budget)
    can = _possible(problem.tables, region, held, size, storage, link, budget_bytes)
    reads = _lists([[table[name] for name in each.tables] for each in problem.workloads])
    widths = np.diff([0.0, *(fraction for fraction, _ in prices.overload_gpu)])
    return Columns(
        storage_bytes=storage,
        cpus=cpus,
        supply=supply,
        size_bytes=size,
        held=held,
        least=np.array([each.min_replicas for each in problem.tables], np.int64),
        can=can,
        keep_cost=prices.replica_byte * size,
        copy_cost=(prices.replica_byte + prices.moved_byte) * size,
        reads=reads,
        readers=turned(reads, len(table)),
        demand=demand,
        needs_cpus=needs_cpus,
        loss=prices.non_collocated_gpu * demand.sum(axis=1)
        + prices.non_collocated_cpu * needs_cpus,
        may_serve=_servable(reads, can, demand, supply, needs_cpus, cpus),
        room=supply[:, :, None] * widths,
        price=np.array([price for _, price in prices.overload_gpu]),
        link_bytes=link,
        budget_bytes=budget_bytes,
        models=tuple(models),
    )


def _models(problem: Problem) -> dict[str, int]:
    """GPU models by name, in the order in which they are first named."""
    names = dict.fromkeys(name for each in problem.regions for name in each.gpus)
    names |= dict.fromkeys(name for each in problem.workloads for name in each.gpus)
    return {name: index for index, name in enumerate(names)}


def _amounts(gpus: Iterable[dict[str, float]], models: dict[str, int]) -> Floats:
    rows = list(gpus)
    found = np.zeros((len(rows), len(models)))
    for index, row in enumerate(rows):
        for model, amount in row.items():
            found[index, models[model]] = amount
    return found


def _marks(names: Sequence[tuple[str, ...]], region: dict[str, int]) -> Bools:
    found = np.zeros((len(names), len(region)), bool)
    for index, row in enumerate(names):
        for name in row:
            found[index, region[name]] = True
    return found


def _lists(rows: list[list[int]]) -> Lists:
    start = np.zeros(len(rows) + 1, np.int64)
    start[1:] = np.cumsum([len(row) for row in rows])
    return Lists(start, np.array([item for row in rows for item in row], np.int64))


def turned(lists: Lists, count: int) -> Lists:
    """For each of ``count`` numbers, the lists that it is in, in order."""
    start = np.zeros(count + 1, np.int64)
    start[1:] = np.cumsum(np.bincount(lists.items, minlength=count))
    order = np.argsort(lists.items, kind="stable")
    return Lists(start, lists.owners()[order])


def _possible(
    tables: Sequence[Table],
    region: dict[str, int],
    held: Bools,
    size: Floats,
    storage: Floats,
    link: Floats,
    budget_bytes: float,
) -> Bools:
    """Where a replica at the end is possible by itself: residency, storage, a link, the budget."""
    can = np.ones(held.shape, bool)
    for index, table in enumerate(tables):
        if table.allowed is not None:
            can[index] = False
            can[index, [region[name] for name in table.allowed]] = True
    widest = np.where(held[:, :, None], link[None], -1.0).max(axis=1)
    homeless = np.logical_not(held.sum(axis=1, keepdims=True))
    reachable = (widest >= size[:, None]) | homeless
    can &= size[:, None] <= storage
    affordable: Bools = np.less_equal(size, budget_bytes)
    copied: Bools = reachable & affordable[:, None]
    result: Bools = can & (held | copied)
    return result


def _servable(
    reads: Lists, can: Bools, demand: Floats, supply: Floats, needs_cpus: Floats, cpus: Floats
) -> Bools:
    """Where a workload could be served: all its tables may lie there, and its resources exist."""
    missing = np.zeros((len(demand), len(supply)))
    np.add.at(missing, reads.owners(), ~can[reads.items])
    lacking = ((demand > 0)[:, None, :] & (supply <= 0)[None]).any(axis=2)
    idle = (needs_cpus > 0)[:, None] & (cpus <= 0)[None]
    result: Bools = (missing == 0) & ~lacking & ~idle
    return result


def rows_of(lists: Lists, values: Any) -> Any:
    """The sum of ``values`` [items, ...] over each list."""
    summed = np.zeros((len(lists.start) - 1, *values.shape[1:]))
    np.add.at(summed, lists.owners(), values)
    return summed
