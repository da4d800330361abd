"""The compiled search: gangs of one group of tasks with whole GPUs, over all regions in one call.

Everything else (shares of GPUs, several groups, no GPUs) is searched by `search.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct

from topmast.fast.region.inventory.columns import Amounts, Floats, Ints, cpus_of
from topmast.fast.region.inventory.index import Index
from topmast.fast.region.inventory.room import level_of
from topmast.fast.region.search import (
    kept_kernels,
    kernels,
    limited_kernels,
    loads,
    scoring,
    stranded,
)
from topmast.fast.region.search.kernels import NOWHERE, Question
from topmast.fast.region.search.limited_kernels import STEPS, Loads
from topmast.fast.region.search.packing import Seated
from topmast.fast.region.search.stranded import Mixture
from topmast.model.absent import given
from topmast.model.job import MILLI, Level
from topmast.model.plan import PlacementRequest, RegionTerms, Seat
from topmast.policies.options import ScoreWeights

KINDS_KEPT = 4_096
"""Of so many kinds of gangs the questions are kept."""
COSTS_KEPT = 16
"""Of so many kinds of tasks it is kept what they cost on each host."""


class Choice(Struct, frozen=True, gc=False):
    """One GPU model that the gang may use: which accelerator of its list that is, and how many."""

    index: int
    model: int
    gpus: int


class Spread(Struct, frozen=True, gc=False):
    """What kernels find: so many tasks on each host of a cluster, once the victims are gone."""

    cluster: int
    choice: Choice
    rows: list[int]
    tasks: list[int]
    victims: list[int] = []
    """The rows of the attempts that are stopped for it; none on free GPUs."""
    stranding: float | None = None
    """What it pays for the GPUs that it strands by shapes, where kernels worked that out."""


def applies(ask: PlacementRequest, weights: ScoreWeights) -> bool:
    """Whether the kernels answer a question: not where a host costs by its allocated GPUs.

    Nor where it costs by its load, and free GPUs are judged by the shapes of tasks as well.
    """
    if not is_plain(ask) or (scoring.by_shapes(ask, weights) and loads.counts(ask, weights)):
        return False
    return ask.preempt or not weights.allocated_gpus


def is_plain(ask: PlacementRequest) -> bool:
    """Whether a gang is of one group of tasks with whole GPUs."""
    if len(ask.groups) != 1:
        return False
    listed = ask.groups[0].resources.accelerators
    for accelerator in listed:  # a generator costs more
        if accelerator.gpus_milli < MILLI:
            return False
    return bool(listed)


class Kept(Struct, frozen=True):
    """What is kept of tasks of one kind, as `kept_kernels` keep it."""

    priced_by: Mixture | Floats
    """By what free GPUs are judged: shapes of recent tasks, or whole GPUs (`Question.stranded`)."""
    known: tuple[Any, ...]
    """The arguments of `best_limited_plan` that are the same for all of them."""
    found: Ints
    """(2 x tasks) room for hosts that take tasks, and how many."""


class Workspace:
    """What these searches keep with an index."""

    def __init__(self, index: Index) -> None:
        self.questions: dict[object, Question] = {}
        """By kind of gang, what kernels are asked."""
        nothing = np.zeros(index.sizes.shape[1])
        self.no_loads = Loads(False, nothing, nothing)
        self.kept: dict[object, Kept] = {}
        """By kind of task, as `COSTS_KEPT` says."""
        self.models = tuple(index.models)
        self.model_of: Ints = np.zeros(len(nothing), np.int64)
        """(H) the number of the host's model; any for a host without GPUs."""
        for number, of_model in enumerate(index.of_model):
            self.model_of[of_model] = number
        self.room: Ints = np.zeros(len(nothing), np.int64)
        """Room to note tasks by host, with what the last search left there.

        Made once: so large an array costs more to get than to fill.
        """
        self.costs: Floats = np.zeros((max(1, index.width - 1), len(nothing)))
        """Room to note what tasks cost (tasks on a host x H), as it was left."""


def costs_of(
    index: Index,
    terms: Mapping[str, RegionTerms],
    weights: ScoreWeights,
    slice_price: float = 0.0,
    only: str | None = None,
) -> Floats:
    """The cost of each cluster (C): infinite outside the regions asked, or ``only`` a cluster."""
    costs = index.nowhere.copy()
    for region, its in terms.items():
        first, last = index.spans.get(region, (0, 0))
        cost = scoring.fixed_cost(its, weights)
        if only is None:
            costs[first:last] = cost
        else:
            costs[index.numbers_of(region, only)] = cost
    if index.slices is not None:
        costs += slice_price * index.slices
    return costs


def best_spread(
    index: Index, ask: PlacementRequest, weights: ScoreWeights, cluster_cost: Floats
) -> Spread | None:
    """The spread of least score on free GPUs, in clusters of finite cost (C)."""
    choices = choices_in(index, ask)
    if not choices:
        return None
    question = question_of(index, ask, weights, choices, cluster_cost)
    if is_limited(ask) or scoring.by_shapes(ask, weights):
        return _best_limited(index, ask, weights, choices, question)
    cluster, at_choice, level, place = kernels.best_place(*index.arrays, *question)
    if cluster == NOWHERE:
        return None
    choice = choices[at_choice]
    if level == kernels.HOST_LEVEL:
        row = _host_by_affinity(index, cluster, choice, int(place), question.tasks)
        return Spread(cluster, choice, [row], [question.tasks])
    space, arrays, hosts = index.workspace(Workspace), index.arrays, index.hosts_in(int(place))
    room, costs = space.room, space.costs
    room[hosts] = arrays.whole[hosts] // choice.gpus * arrays.available[hosts]
    limited_kernels.costs_by_counts(
        arrays, hosts, room, choice.gpus, question.tasks, question.stranded, space.no_loads, costs
    )
    taken: Ints = np.zeros(len(hosts), np.int64)
    limited_kernels.seat(arrays, hosts, room, question.tasks, costs, True, taken)
    used = np.flatnonzero(taken)
    return Spread(cluster, choice, hosts[used].tolist(), taken[used].tolist())


def _best_limited(
    index: Index,
    ask: PlacementRequest,
    weights: ScoreWeights,
    choices: list[Choice],
    question: Question,
) -> Spread | None:
    """`best_spread` where more than the number of free GPUs counts, from what is kept of a kind.

    One call for the models of which a task takes as many GPUs: for all of them, most often.
    """
    space, needs = index.workspace(Workspace), ask.groups[0].resources
    levels = int(np.count_nonzero(question.level_cost < np.inf))
    judged = scoring.by_shapes(ask, weights)
    shapes = given(ask.shapes, ()) if judged else ()
    mixture = stranded.mixture_of(shapes, space.models, weights.fragmentation)
    arrays, table, by_load = index.arrays, question.stranded, _loads(index, ask, weights)
    if excluded := index.excluded(ask):
        usable = arrays.available.copy()
        usable[excluded] = False
        arrays = arrays._replace(available=usable)
    best: tuple[tuple[float, int, int], Spread] | None = None
    for gpus in dict.fromkeys([choice.gpus for choice in choices]):
        task = (question.tasks, gpus, cpus_of(needs), float(needs.memory_bytes), levels)
        kind = (*task, weights, ask.avoid_hosts, ask.reserved, ask.needs)
        kept = _kept(index, kind, mixture, mixture if judged else table)
        asked: tuple[Any, ...] = (
            *arrays, *kept.known, *task, question.choice_model, question.choice_gpus,
            question.choice_cost, question.level_cost, question.cluster_cost, table, *by_load,
            kept.found,
        )  # fmt: skip
        score, cluster, choice, hosts, points = kept_kernels.best_limited_plan(*asked)
        place = (score, cluster, choice)
        if cluster != NOWHERE and (best is None or place < best[0]):
            rows, tasks = kept.found[:, :hosts].tolist()
            stranding = points if judged else None
            best = place, Spread(cluster, choices[choice], rows, tasks, stranding=stranding)
    return None if best is None else best[1]


def _kept(
    index: Index, kind: tuple[Any, ...], mixture: Mixture, priced_by: Mixture | Floats
) -> Kept:
    """What is kept of tasks of a kind while free GPUs are judged as now; of COSTS_KEPT kinds."""
    space = index.workspace(Workspace)
    found = space.kept.pop(kind, None)
    if found is None or found.priced_by is not priced_by:
        tasks = int(kind[0])
        rows, sections = min(tasks, max(1, index.width - 1)), len(index.arrays.hist_start) - 1
        nothing = kept_kernels.nothing_kept(rows, len(space.model_of), sections)
        known = (index.version, index.changes, *mixture, *nothing)
        found = Kept(priced_by, known, np.zeros((2, tasks), np.int64))
    space.kept[kind] = found
    if len(space.kept) > COSTS_KEPT:
        del space.kept[next(iter(space.kept))]
    return found


def _host_by_affinity(index: Index, cluster: int, choice: Choice, row: int, tasks: int) -> int:
    """Of the hosts that are as good for the gang, the one that it should have (`Affinity`)."""
    region, name, time_slice = index.clusters[cluster]
    columns, a = index.part_of[region], index.arrays
    if columns.affinity is None:
        return row
    alike = (a.whole >= tasks * choice.gpus) & a.available & index.of_model[choice.model]
    own = alike[columns.first_row : columns.first_row + len(columns.hosts)].copy()
    outside = np.ones(len(own), np.bool_)
    outside[columns.rows_in(name, time_slice)] = False
    own[outside] = False
    found = columns.affinity.host(columns, own, row - columns.first_row, tasks * choice.gpus)
    return columns.first_row + found


def choices_in(index: Index, ask: PlacementRequest) -> list[Choice]:
    """The models that the gang may use, in its order of preference; 'any' stands for all."""
    found = []
    for at, wanted in enumerate(ask.groups[0].resources.accelerators):
        if ask.models is not None and at not in ask.models:
            continue
        names = [wanted.model] if wanted.model is not None else sorted(index.models)
        gpus = wanted.gpus_milli // MILLI
        found += [Choice(at, index.models[name], gpus) for name in names if name in index.models]
    return found


def question_of(
    index: Index,
    ask: PlacementRequest,
    weights: ScoreWeights,
    choices: list[Choice],
    cluster_cost: Floats,
) -> Question:
    """What the kernels need to know of a gang, in part shared by its kind. O(choices)."""
    stranded = _priced_table(ask.mix, index.width, weights.fragmentation)
    key = (ask.groups[0], ask.topology, weights, tuple([c.index for c in choices]), ask.scarcity)
    questions = index.workspace(Workspace).questions
    known = questions.get(key)
    if known is not None:
        return Question(*known[:5], cluster_cost, stranded)
    if len(questions) >= KINDS_KEPT:
        questions.clear()
    questions[key] = question = Question(
        tasks=ask.groups[0].count,
        choice_model=np.array([c.model for c in choices], np.int64),
        choice_gpus=np.array([c.gpus for c in choices], np.int64),
        choice_cost=np.array([scoring.choice_cost(ask, weights, c.index) for c in choices]),
        level_cost=np.array([scoring.locality_cost(ask, weights, level) for level in Level]),
        cluster_cost=cluster_cost,
        stranded=stranded,
    )
    return question


@lru_cache(maxsize=64)
def _priced_table(mix: tuple[tuple[int, float], ...], width: int, price: float) -> Floats:
    return price * scoring.stranded_table(mix, width)


def is_limited(ask: PlacementRequest) -> bool:
    """Whether more than free GPUs limits where the gang may sit."""
    needs = ask.groups[0].resources
    barred = ask.avoid_hosts or ask.reserved or ask.needs
    return bool(needs.cpus > 0 or needs.memory_bytes > 0 or barred)


def _loads(index: Index, ask: PlacementRequest, weights: ScoreWeights) -> Loads:
    """What hosts cost by how much of them is allocated (see `loads.Loads`). O(hosts)."""
    if not loads.counts(ask, weights):
        return index.workspace(Workspace).no_loads
    prices = np.array([[weights.allocated_cpus], [weights.allocated_memory]])
    a, sizes, most = index.arrays, index.sizes, float(prices.sum())
    each = np.divide(prices, sizes, out=np.zeros(sizes.shape), where=sizes > 0)
    held = each * np.maximum(sizes - np.stack([a.free_cpus, a.free_memory]), 0.0)
    steps = np.rint((held[0] + held[1]) / most * STEPS)
    tasks, needs = ask.groups[0].count, ask.groups[0].resources
    rise = (cpus_of(needs) * each[0] + float(needs.memory_bytes) * each[1]) / 2 / tasks
    return Loads(True, steps * (most / STEPS) / tasks, rise)


def seated(index: Index, free: Amounts, ask: PlacementRequest, spread: Spread) -> Seated:
    """Seats in the order of hosts, each task on the lowest GPUs that are free there."""
    region, cluster, time_slice = index.clusters[spread.cluster]
    columns = index.part_of[region]
    own = [row - columns.first_row for row in spread.rows]
    group, gpus = ask.groups[0].name, spread.choice.gpus
    seats: list[Seat] = []
    for row, count in zip(own, spread.tasks, strict=True):
        slots, host = free.slots(row), columns.hosts[row].name
        lowest = _lowest_whole(slots, count * gpus)
        if columns.affinity is not None:
            lowest = columns.affinity.slots(columns, row, slots, lowest)
        for first in range(0, count * gpus, gpus):
            taken = tuple(lowest[first : first + gpus])
            seats.append(Seat(group, len(seats), host, taken, MILLI))
    level = level_of(columns, own)
    return Seated(cluster, spread.choice.index, level, tuple(seats), time_slice)


def _lowest_whole(free_milli: Ints, count: int) -> list[int]:
    """The lowest slots that are wholly free, ``count`` of them if there are as many. O(slots)."""
    if len(free_milli) > scoring.MANY_SLOTS:
        many: list[int] = np.flatnonzero(free_milli == MILLI)[:count].tolist()
        return many
    whole = [slot for slot, milli in enumerate(free_milli.tolist()) if milli == MILLI]
    return whole[:count]
