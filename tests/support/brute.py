"""Brute force: every way to seat a gang on a few hosts, one task after the other on every slot.

It prices what it gets by its own sums, so that the search and its score are compared with a third.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from topmast.fast.region.inventory.allocation import Allocation
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.search import stranded
from topmast.fast.region.search.scoring import accelerators_of, slowdown
from topmast.model.absent import given
from topmast.model.job import MILLI, Accelerator, Level, Resources
from topmast.model.plan import PlacementRequest
from topmast.policies.options import ScoreWeights


class Brute:
    """Every way to seat a gang with one accelerator choice on the hosts of one cluster, with its cost."""

    def __init__(self, columns: Columns, ask: PlacementRequest, choice: int, cluster: str) -> None:
        self.columns = columns
        self.ask = ask
        self.rows = [
            row
            for row in columns.clusters[cluster].tolist()
            if columns.available[row] and columns.hosts[row].name not in ask.avoid_hosts
        ]
        self.free = {row: columns.slots(row).tolist() for row in self.rows}
        self.cpus = {row: float(columns.free_cpus[row]) for row in self.rows}
        self.memory = {row: float(columns.free_memory[row]) for row in self.rows}
        self.waste = waste_of(ask.mix, columns.width)
        self.before = {row: self._stranded(row) for row in self.rows}
        self.placed = dict.fromkeys(self.rows, 0)
        self.vector: dict[tuple[int, int], int] = {}
        tasks = []
        for number, group in enumerate(ask.groups):
            listed = group.resources.accelerators
            wanted = listed[min(choice, len(listed) - 1)] if listed else Accelerator(None, 0)
            tasks += [(wanted.gpus_milli % MILLI == 0, number, wanted, group)] * group.count
        tasks.sort(key=lambda task: task[:2])  # shares first: whole GPUs take what is left
        self.tasks = [(number, wanted, group.resources) for _, number, wanted, group in tasks]

    def _stranded(self, row: int) -> float:
        free = self.free[row]
        if given(self.ask.shapes, ()):
            return self._stranded_by_shapes(row)
        waste: float = self.waste[free.count(MILLI)]
        shared: int = sum(milli for milli in free if 0 < milli < MILLI)
        return waste + 0.5 * shared / MILLI

    def _stranded_by_shapes(self, row: int) -> float:
        """The mean over the shapes of what a task could not use: all, or the useless rests of shared GPUs.

        Whether a share fits on a GPU now is not asked: what rests are good for says it.
        """
        free = [max(0, milli) for milli in self.free[row]]
        useless_of = stranded.useless_of(given(self.ask.shapes, ()))
        useless = sum(float(useless_of[milli]) for milli in free if milli < MILLI)
        waste: float = 0.0
        for shape in given(self.ask.shapes, ()):
            fits = shape.gpus_milli < MILLI or free.count(MILLI) * MILLI >= shape.gpus_milli
            fits &= self.cpus[row] + 1e-9 >= shape.cpus and self.memory[row] >= shape.memory_bytes
            fits &= not shape.models or self.columns.hosts[row].model in shape.models
            waste += float(shape.share) * (useless if fits else sum(free) / MILLI)
        return waste

    def _ease(self, row: int) -> float:
        """What a host's tasks pay for all that is left of it."""
        if not self.ask.shapes:
            return 0.0
        left: float = sum(max(0, milli) for milli in self.free[row]) / MILLI / 8
        if self.cpus[row] < float("inf"):
            left += self.cpus[row] / 128
        if self.memory[row] < float("inf"):
            left += self.memory[row] / 2**40
        return 0.05 * left * self.placed[row] / len(self.tasks)

    def every(
        self, at: int = 0, last: tuple[int, int] = (-1, -1)
    ) -> Iterator[tuple[float, frozenset[int], dict[tuple[int, int], int]]]:
        """The change in stranded GPUs, the hosts used, and the tasks by host and group."""
        if at == len(self.tasks):
            used = {row for row, count in self.placed.items() if count}
            change = sum(self._stranded(row) - self.before[row] + self._ease(row) for row in used)
            yield change, frozenset(used), dict(self.vector)
            return
        number, wanted, resources = self.tasks[at]
        again = at > 0 and self.tasks[at - 1][0] == number
        for row in self.rows:
            for slots in self._slots(row, wanted):
                chosen = len(slots) == 1 and wanted.gpus_milli < MILLI and not self.ask.shapes
                place = (row, slots[0] if chosen else -1)
                if (again and place < last) or not self._holds(row, wanted, resources):
                    continue
                self._move(row, number, slots, min(wanted.gpus_milli, MILLI), resources, -1)
                yield from self.every(at + 1, place)
                self._move(row, number, slots, min(wanted.gpus_milli, MILLI), resources, +1)

    def _slots(self, row: int, wanted: Accelerator) -> list[tuple[int, ...]]:
        """Where a task could sit: any slot with room for a share, the lowest whole GPUs, or no slot."""
        free = self.free[row]
        if wanted.gpus_milli == 0:
            return [()]
        if wanted.gpus_milli < MILLI:
            able = [slot for slot, milli in enumerate(free) if milli >= wanted.gpus_milli]
            if self.ask.shapes:  # on the fullest GPU with room, whatever that strands
                able = sorted(able, key=lambda slot: (free[slot], slot))[:1]
            return [(slot,) for slot in able]
        whole = [slot for slot, milli in enumerate(free) if milli == MILLI]
        needed = wanted.gpus_milli // MILLI
        return [tuple(whole[:needed])] if len(whole) >= needed else []

    def _holds(self, row: int, wanted: Accelerator, resources: Resources) -> bool:
        model = self.columns.hosts[row].model
        return (
            wanted.model in (None, model)
            and (resources.cpus == 0 or round(self.cpus[row] - resources.cpus, 6) >= 0)
            and (resources.memory_bytes == 0 or self.memory[row] >= resources.memory_bytes)
        )

    def _move(
        self, row: int, group: int, slots: tuple[int, ...], milli: int, needed: Resources, sign: int
    ) -> None:
        for slot in slots:
            self.free[row][slot] += sign * milli
        self.cpus[row] = round(self.cpus[row] + sign * needed.cpus, 6)
        self.memory[row] += sign * needed.memory_bytes
        self.placed[row] -= sign
        self.vector[row, group] = self.vector.get((row, group), 0) - sign


def waste_of(mix: Sequence[tuple[int, float]], width: int) -> list[float]:
    """By wholly free GPUs: the mean waste by tasks of a mix, made concave, and a little for best fit.

    By definition of the least concave function above some points: the most that any two of them, joined, reach.
    It is level beyond its top, and then falls by so much a GPU that the largest task's size counts nothing.
    """
    largest = max(size for size, _ in mix)
    points = [
        sum(part * (f % size if f >= size else f) for size, part in mix) for f in range(largest)
    ]
    found: list[float] = []
    for f in range(max(width, largest + 1)):
        joined = [
            (points[a] * (b - f) + points[b] * (f - a)) / (b - a)
            for a in range(min(f, largest))
            for b in range(f + 1, largest)
        ]
        top = max(joined + points[f : f + 1] + found[-1:])
        found.append(top)
    for f, top in enumerate(found):
        found[f] = top + 1e-3 * math.sqrt(f)
    return [value - found[largest] / largest * f for f, value in enumerate(found)][:width]


def choices(ask: PlacementRequest) -> list[int]:
    """The accelerator choices that the question allows."""
    listed = range(max(1, len(accelerators_of(ask))))
    return [choice for choice in listed if ask.models is None or choice in ask.models]


def level_of(columns: Columns, rows: frozenset[int]) -> Level:
    """The tightest level that holds all of some hosts."""
    return next(
        level for level in Level if len({int(columns.domain[level][row]) for row in rows}) == 1
    )


def place_cost(
    columns: Columns,
    ask: PlacementRequest,
    weights: ScoreWeights,
    choice: int,
    rows: frozenset[int],
) -> float | None:
    """The terms besides fragmentation and preemption; None where the topology forbids."""
    level = level_of(columns, rows)
    required, preferred = ask.topology.required, ask.topology.preferred
    if required is not None and level > required:
        return None
    above = 0 if preferred is None else max(0, level - preferred)
    data = weights.data * ask.terms.data_s / 3600.0 + weights.balance * ask.terms.balance
    listed = accelerators_of(ask)
    model = sum(
        points for name, points in weights.models if listed and name == listed[choice].model
    )
    for name, part in given(ask.scarcity, ()):
        for group in ask.groups if listed and name == listed[choice].model else ():
            wanted = group.resources.accelerators
            gpus = wanted[min(choice, len(wanted) - 1)].gpus_milli / MILLI if wanted else 0.0
            model += 0.5 * weights.fragmentation * part * gpus * group.count
    return weights.speed * slowdown(ask, choice) + weights.locality * above + data + model


def load_cost(
    columns: Columns,
    ask: PlacementRequest,
    weights: ScoreWeights,
    choice: int,
    vector: dict[tuple[int, int], int],
) -> float:
    """The mean over the tasks of what is allocated of their hosts, host by host and resource by resource.

    Beside that, for a gang without GPUs, of the hosts with GPUs. Only a job that asks for CPUs or memory, in one
    group, pays for those, unless GPUs are paid for; one that may stop others pays nothing.
    """
    asked = [group.resources for group in ask.groups]
    spares = weights.gpu_hosts if not any(needed.accelerators for needed in asked) else 0.0
    wants_cpus = weights.allocated_cpus > 0 and asked[0].cpus > 0
    wants_memory = weights.allocated_memory > 0 and asked[0].memory_bytes > 0
    alone = len(asked) == 1 and (wants_cpus or wants_memory)
    if ask.preempt or not (weights.allocated_gpus or spares or alone):
        return 0.0
    prices = (weights.allocated_gpus, weights.allocated_cpus, weights.allocated_memory)
    cost = 0.0
    for row in {row for row, _ in vector}:
        host, tasks, added = columns.hosts[row], 0, [0.0, 0.0, 0.0]
        for (there, number), count in vector.items():
            needed = ask.groups[number].resources
            if there != row or not count:
                continue
            tasks += count
            listed = needed.accelerators
            milli = listed[min(choice, len(listed) - 1)].gpus_milli if listed else 0
            added[0] += count * milli / MILLI
            added[1] += count * needed.cpus
            added[2] += count * needed.memory_bytes
        sizes = (host.gpus, host.cpus, host.memory_bytes)
        free = (
            sum(max(0, milli) for milli in columns.slots(row).tolist()) / MILLI,
            float(columns.free_cpus[row]),
            float(columns.free_memory[row]),
        )
        before = sum(p * (s - f) / s for p, s, f in zip(prices, sizes, free, strict=True) if s)
        before += spares * (host.gpus > 0)
        after = sum(p * a / s for p, s, a in zip(prices, sizes, added, strict=True) if s)
        most = sum(prices) + spares
        cost += tasks * (round(before / most * 100) * most / 100 + after / 2) if most else 0.0
    return cost / sum(group.count for group in ask.groups)


def best_on_free(columns: Columns, ask: PlacementRequest, weights: ScoreWeights) -> float | None:
    """The least score on free capacity, if the gang fits at all."""
    best: float | None = None
    for cluster in columns.clusters:
        for choice in choices(ask):
            for change, rows, vector in Brute(columns, ask, choice, cluster).every():
                cost = place_cost(columns, ask, weights, choice, rows)
                if cost is not None:
                    score = cost + weights.fragmentation * change
                    score += load_cost(columns, ask, weights, choice, vector)
                    best = score if best is None else min(best, score)
    return best


def best_with_victims(
    columns: Columns,
    ask: PlacementRequest,
    weights: ScoreWeights,
    attempts: Sequence[tuple[Allocation, float]],
    *,
    needed: bool,
) -> float | None:
    """The least score if any of some attempts may go, each at its price.

    With ``needed``: only where each that goes makes room which the tasks of its hosts need.
    """
    best: float | None = None
    for size in range(len(attempts) + 1):
        for gone in itertools.combinations(attempts, size):
            trial = columns.trial()
            for attempt, _ in gone:
                trial.give_back(attempt.plan.seats, attempt.needs())
            paid = sum(price for _, price in gone)
            for cluster in columns.clusters:
                for choice in choices(ask):
                    rest = [_Fewer(columns, ask, choice, cluster, gone, i) for i in range(size)]
                    for change, rows, vector in Brute(trial, ask, choice, cluster).every():
                        cost = place_cost(columns, ask, weights, choice, rows)
                        if cost is None:
                            continue
                        score = cost + weights.fragmentation * change + paid
                        score += load_cost(columns, ask, weights, choice, vector)
                        if best is not None and score >= best:
                            continue
                        if not needed or not any(fewer.holds(vector) for fewer in rest):
                            best = score
    return best


class _Fewer:
    """The hosts of a cluster with one victim less gone: do they hold the same tasks?"""

    def __init__(
        self,
        columns: Columns,
        ask: PlacementRequest,
        choice: int,
        cluster: str,
        gone: Sequence[tuple[Allocation, float]],
        spared: int,
    ) -> None:
        trial = columns.trial()
        for number, (attempt, _) in enumerate(gone):
            if number != spared:
                trial.give_back(attempt.plan.seats, attempt.needs())
        self.brute = Brute(trial, ask, choice, cluster)
        self.known: set[tuple[tuple[tuple[int, int], int], ...]] | None = None

    def holds(self, vector: dict[tuple[int, int], int]) -> bool:
        """Whether so many tasks by host and group fit."""
        if self.known is None:
            self.known = {_sorted(found) for _, _, found in self.brute.every()}
        return _sorted(vector) in self.known


def _sorted(vector: dict[tuple[int, int], int]) -> tuple[tuple[tuple[int, int], int], ...]:
    return tuple(sorted((place, count) for place, count in vector.items() if count))
