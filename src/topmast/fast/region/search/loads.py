"""How loaded hosts are, and what it costs to sit on them: the term `allocation`.

A task costs more on a host of which more is allocated: GPUs, CPUs and memory, each over what is
there, at a price of its own (load balancing of Weng et al., *MLaaS in the Wild*, NSDI '22, as
deployed). Half of the gang's own load counts, so that a gang spreads as well. Loads are in
hundredths, so that hosts about equally loaded are alike. A gang without GPUs pays for hosts with
GPUs as well. Plans that stop others pay nothing of it: what the victims give back is not known
before they are chosen.

`compiled` computes the same for gangs of equal tasks on whole GPUs, over all regions.
"""

from __future__ import annotations

import numpy as np

from topmast.fast.region.inventory.columns import CPU_DECIMALS, Columns, Floats, Ints, cpus_of
from topmast.fast.region.inventory.overlay import Overlay
from topmast.fast.region.search import host_options
from topmast.fast.region.search.host_options import Gang, Kinds
from topmast.fast.region.search.kernels import NOWHERE
from topmast.fast.region.search.knapsack import Options
from topmast.fast.region.search.limited_kernels import STEPS
from topmast.model.job import MILLI
from topmast.model.plan import PlacementRequest, Seat, needs_of
from topmast.policies.options import ScoreWeights

MICRO = 10**CPU_DECIMALS


def counts(ask: PlacementRequest, weights: ScoreWeights) -> bool:
    """Whether plans for this question pay for how loaded their hosts are. O(groups)."""
    if ask.preempt:
        return False
    if weights.allocated_gpus or (weights.gpu_hosts and not has_gpus(ask)):
        return True
    needs = ask.groups[0].resources
    by_cpus = bool(weights.allocated_cpus and needs.cpus)
    by_memory = bool(weights.allocated_memory and needs.memory_bytes)
    return len(ask.groups) == 1 and (by_cpus or by_memory)


def has_gpus(ask: PlacementRequest) -> bool:
    """Whether any task of the gang has GPUs."""
    return any(group.resources.accelerators for group in ask.groups)


class Loads:
    """The hosts of a region, or some (H), at the prices of one question."""

    def __init__(
        self,
        columns: Columns,
        ask: PlacementRequest,
        weights: ScoreWeights,
        rows: slice | list[int] = slice(None),
    ) -> None:
        """O(hosts), and O(slots) where GPUs have a price."""
        prices = (weights.allocated_gpus, weights.allocated_cpus, weights.allocated_memory)
        spared = 0.0 if has_gpus(ask) else weights.gpu_hosts  # a host with GPUs of no use
        gpus = columns.gpus[rows]
        free_milli = columns.free_by_host()[rows] if weights.allocated_gpus else gpus
        there = (gpus * float(MILLI), columns.cpus[rows], columns.memory[rows])
        free = (free_milli, columns.free_cpus[rows], columns.free_memory[rows])
        self.most = sum(prices) + spared
        self.rise: list[Floats] = []
        """Points for a thousandth of a GPU, a CPU, a byte more (each H)."""
        load: Floats = np.where(gpus > 0, spared, 0.0)
        for price, size, left in zip(prices, there, free, strict=True):
            each: Floats = np.zeros(len(load))
            if price:
                limited = np.isfinite(size) & (size > 0)
                np.divide(price, size, out=each, where=limited)
                used = np.subtract(size, left, out=np.zeros(len(load)), where=limited)
                load += each * np.maximum(used, 0.0)
            self.rise.append(each)
        self.step: Ints = np.rint(load / self.most * STEPS).astype(np.int64)
        """(H) hundredths of the most that a host can cost."""

    def of(self, step: Ints) -> Floats:
        """Points of a host that stands at these steps."""
        return np.asarray(step * (self.most / STEPS))


def allocation_cost(
    columns: Columns | Overlay,
    ask: PlacementRequest,
    weights: ScoreWeights,
    seats: tuple[Seat, ...],
    time_slice: int = 0,
) -> float:
    """The mean of what the tasks' hosts cost. O(tasks), and O(slots) where GPUs have a price."""
    if isinstance(columns, Overlay):
        columns = columns.columns
    needs = needs_of(ask.groups)
    added: dict[int, list[float]] = {}
    for seat in seats:
        on = added.setdefault(columns.row(seat.host, time_slice), [0.0, 0.0, 0.0, 0.0])
        on[0] += 1
        on[1] += len(seat.slots) * seat.slot_milli
        on[2] += cpus_of(needs[seat.group])
        on[3] += needs[seat.group].memory_bytes
    loads = Loads(columns, ask, weights, list(added))
    tasks, *amounts = np.array(list(added.values())).T
    rise = sum(amount * each for amount, each in zip(amounts, loads.rise, strict=True))
    return float(sum((tasks * (loads.of(loads.step) + rise / 2)).tolist())) / len(seats)


def with_loads(
    columns: Columns, gang: Gang, kinds: Kinds, ask: PlacementRequest, weights: ScoreWeights
) -> Kinds:
    """The kinds of hosts with the term `allocation` in the cost of each option.

    Hosts of a kind become several by load and size. The gang has no filler: every task's effect on
    a host counts. O(hosts x options).
    """
    loads = Loads(columns, ask, weights)
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
    return host_options.summary(gang, options._replace(cost=cost), start, of_host)


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
