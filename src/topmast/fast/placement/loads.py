"""How loaded hosts are, and what it costs to sit on them: the term `allocation`.

A task costs more on a host of which more is allocated: GPUs, CPUs and memory, each over what is there, at a
price of its own (load balancing of Weng et al., *MLaaS in the Wild*, NSDI '22, on scheduling as deployed). Half of what the gang
itself adds to a host counts, so that a gang spreads as well. Loads are those before anybody is stopped, in
hundredths, so that hosts about equally loaded are alike.
"""

from __future__ import annotations

import numpy as np

from topmast.fast.placement import gangs
from topmast.fast.placement.columns import CPU_DECIMALS, Columns, Floats, Ints, cpus_of
from topmast.fast.placement.gangs import NOWHERE, Gang, Kinds, Options
from topmast.fast.placement.overlay import Overlay
from topmast.model.job import MILLI
from topmast.model.plan import Ask, Seat
from topmast.policies.options import ScoreWeights

STEPS = 100
MICRO = 10**CPU_DECIMALS


class Loads:
    """The hosts of a region (H) at the prices of one question."""

    def __init__(self, columns: Columns, weights: ScoreWeights) -> None:
        """O(slots)."""
        prices = (weights.allocated_gpus, weights.allocated_cpus, weights.allocated_memory)
        there = (columns.gpus * float(MILLI), columns.cpus, columns.memory)
        free = (columns.free_by_host(), columns.free_cpus, columns.free_memory)
        self.most = sum(prices)
        self.rise: list[Floats] = []
        """Points for a thousandth of a GPU, a CPU, a byte more (each H)."""
        load: Floats = np.zeros(len(columns.gpus))
        for price, size, left in zip(prices, there, free, strict=True):
            limited = np.isfinite(size) & (size > 0)
            each = np.divide(price, size, out=np.zeros(len(load)), where=limited)
            used = np.subtract(size, left, out=np.zeros(len(load)), where=limited)
            load += each * np.maximum(used, 0.0)
            self.rise.append(each)
        self.step: Ints = np.rint(load / self.most * STEPS).astype(np.int64)
        """(H) hundredths of the most that a host can cost."""

    def of(self, step: Ints) -> Floats:
        """Points of a host that stands at these steps."""
        return np.asarray(step * (self.most / STEPS))


def allocation_cost(
    columns: Columns | Overlay, ask: Ask, weights: ScoreWeights, seats: tuple[Seat, ...]
) -> float:
    """The mean over the tasks of what their hosts cost. O(slots of the region + tasks)."""
    if isinstance(columns, Overlay):
        columns = columns.columns
    loads = Loads(columns, weights)
    needs = {group.name: group.resources for group in ask.groups}
    added: dict[int, list[float]] = {}
    for seat in seats:
        on = added.setdefault(columns.index[seat.host], [0.0, 0.0, 0.0, 0.0])
        on[0] += 1
        on[1] += len(seat.slots) * seat.slot_milli
        on[2] += cpus_of(needs[seat.group])
        on[3] += needs[seat.group].memory_bytes
    cost = 0.0
    for row, (tasks, *more) in added.items():
        rise = sum(amount * each[row] for amount, each in zip(more, loads.rise, strict=True))
        cost += tasks * (float(loads.of(loads.step[row])) + rise / 2)
    return cost / len(seats)


def with_loads(columns: Columns, gang: Gang, kinds: Kinds, weights: ScoreWeights) -> Kinds:
    """The kinds of hosts with the term `allocation` in the cost of each option.

    Hosts of one kind that are differently loaded, or of different sizes, become several. The gang has no
    filler: what every task does to a host has to be seen. O(hosts x options).
    """
    loads = Loads(columns, weights)
    choice, host = np.nonzero(kinds.of_host != NOWHERE)
    keys = kinds.of_host[choice, host] * (int(columns.size_of.max(initial=0)) + 1)
    keys = (keys + columns.size_of[host]) * (STEPS + 1) + loads.step[host]
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    old = kinds.of_host[choice[first], host[first]]
    many = kinds.start[old + 1] - kinds.start[old]
    start = np.concatenate([[0], np.cumsum(many)]).astype(np.int64)
    source = np.arange(start[-1]) + np.repeat(kinds.start[old] - start[:-1], many)
    options = Options(*(column[source] for column in kinds.options))
    cost = options.cost + _costs(loads, gang, options.state, np.repeat(choice[first], many),
                                 np.repeat(host[first], many))  # fmt: skip
    of_host = np.full_like(kinds.of_host, NOWHERE)
    of_host[choice, host] = number
    return gangs.summary(gang, options._replace(cost=cost), start, of_host)


def _costs(loads: Loads, gang: Gang, state: Ints, choice: Ints, host: Ints) -> Floats:
    """What each option (n) costs: so many tasks on that host, over all of the gang."""
    vectors = gang.vectors[state]
    milli = (vectors * gang.milli[choice, :-1]).sum(axis=1)
    cpus = vectors @ gang.cpus[:-1] / MICRO
    memory = vectors @ gang.memory[:-1]
    by_gpus, by_cpus, by_memory = (each[host] for each in loads.rise)
    rise = milli * by_gpus + cpus * by_cpus + memory * by_memory
    tasks = vectors.sum(axis=1)
    return np.asarray(tasks * (loads.of(loads.step[host]) + rise / 2) / gang.total)
