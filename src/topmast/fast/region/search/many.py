"""Many gangs at once: one call of a kernel places each as if those before it ran already.

For the commonest gangs: equal tasks with whole GPUs, limited by free GPUs alone. Each gets the plan
that a question of its own would have brought.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import UNSET, Struct

from topmast.fast.region.inventory.arrays import I64
from topmast.fast.region.inventory.columns import cpus_of
from topmast.fast.region.inventory.index import Index
from topmast.fast.region.inventory.room import level_of
from topmast.fast.region.search import compiled, loads
from topmast.fast.region.search.compiled import Choice, Workspace, choices_in, question_of
from topmast.fast.region.search.many_kernels import Balance, Kinds, Placed, Room, place_many
from topmast.fast.region.search.scoring import (
    by_shapes,
    fixed_cost,
    locality_cost,
    model_cost,
    slowdown,
    stranded_table,
)
from topmast.model.job import MILLI, Level
from topmast.model.plan import Free, PlacementRequest, Plan, RegionTerms, Seat
from topmast.policies.options import ScoreWeights


class Supply(Struct, frozen=True):
    """What regions have, and what is held of it, from which their balance follows."""

    held_milli: Mapping[str, int]
    gpus: Mapping[str, int]

    def load(self, region: str, more_milli: int) -> float:
        """GPUs held over GPUs present, once so many thousandths more are held."""
        gpus = self.gpus.get(region, 0)
        return (self.held_milli.get(region, 0) + more_milli) / MILLI / gpus if gpus else 0.0


def applies(ask: PlacementRequest, weights: ScoreWeights) -> bool:
    """Whether a gang is one of those that are placed many at a time."""
    return (
        type(ask.mode) is Free
        and ask.mode.more is None
        and ask.held is None
        and ask.cluster is None
        and compiled.applies(ask, weights)
        and not compiled.is_limited(ask)
        and not by_shapes(ask, weights)
        and not loads.counts(ask, weights)
        and cpus_of(ask.groups[0].resources) == 0.0
    )


def may_place(index: Index) -> bool:
    """Whether the hosts may be searched so: not where gangs share GPUs in turns."""
    shared = index.slices is not None or any(p.affinity is not None for p in index.parts)
    return not shared


class _Kind:
    """What the plans of one kind of gang have in common, as far as is known beforehand."""

    def __init__(self, index: Index, ask: PlacementRequest, weights: ScoreWeights) -> None:
        self.ask, self.weights = ask, weights
        self.group = ask.groups[0]
        self.choices: list[Choice] = choices_in(index, ask)
        self.terms = [self._terms(choice.index) for choice in self.choices]
        self._names = sorted(self.terms[0]) if self.terms else []
        self._locality = {level: locality_cost(ask, weights, level) for level in Level}

    def _terms(self, choice: int) -> dict[str, float]:
        """The terms of the score that its choice of a GPU model decides, and those that are 0."""
        weights = self.weights
        terms = {
            "preemption": 0.0,
            "speed": weights.speed * slowdown(self.ask, choice),
            "locality": 0.0,
            "fragmentation": 0.0,
            "data": 0.0,
            "balance": 0.0,
        }
        if weights.models:
            terms["model"] = model_cost(self.ask, weights, choice)
        return terms

    def score_of(self, terms: dict[str, float]) -> float:
        """`scoring.total`, with the order of the terms looked up once."""
        return sum([terms[name] for name in self._names])

    def terms_of(self, choice: int, level: Level, change: float, load: float) -> dict[str, float]:
        """The terms of one plan, as `scoring.score_terms` has them."""
        terms, weights = self.terms[choice].copy(), self.weights
        terms["locality"] = self._locality[level]
        terms["fragmentation"] = weights.fragmentation * change if weights.fragmentation else 0.0
        terms["balance"] = weights.balance * load
        return terms


def plans_of(
    index: Index,
    asks: Sequence[PlacementRequest],
    jobs: Sequence[tuple[str, int]],
    terms: Mapping[str, RegionTerms],
    supply: Supply,
    weights: ScoreWeights,
    versions: Mapping[str, int],
) -> list[Plan]:
    """Plans for ``jobs``, each with the number of its request, up to the first without a place.

    ``terms``: of the regions asked, for the first job. ``versions``: of the regions' books.
    """
    kinds, of_ask = _kinds_of(index, asks, weights)
    numbers: I64 = np.array([of_ask[ask] for _, ask in jobs], np.int64)
    placed = _room_for(kinds, numbers)
    count = place_many(
        index.arrays,
        _arrays_of(index, kinds, asks[0], weights),
        numbers,
        _balance(index, terms, supply, weights),
        _space(index),
        placed,
    )
    found = [(job, kinds[of_ask[ask]]) for job, ask in jobs[:count]]
    return _Plans(index, supply, versions, placed).of(found)


def _kinds_of(
    index: Index, asks: Sequence[PlacementRequest], weights: ScoreWeights
) -> tuple[list[_Kind], list[int]]:
    """Kinds of gangs, and that of each request: those of several bands are of one kind."""
    numbers: dict[object, int] = {}
    kinds: list[_Kind] = []
    for ask in asks:
        key = (ask.groups[0], ask.topology, ask.models)
        if key not in numbers:
            numbers[key] = len(kinds)
            kinds.append(_Kind(index, ask, weights))
    return kinds, [numbers[ask.groups[0], ask.topology, ask.models] for ask in asks]


def _arrays_of(
    index: Index, kinds: Sequence[_Kind], ask: PlacementRequest, weights: ScoreWeights
) -> Kinds:
    nowhere = index.nowhere
    asked = [question_of(index, k.ask, weights, k.choices, nowhere) for k in kinds]
    ends = np.cumsum([0, *(len(k.choices) for k in kinds)])
    return Kinds(
        tasks=np.array([q.tasks for q in asked], np.int64),
        first_choice=ends.astype(np.int64),
        choice_model=np.concatenate([q.choice_model for q in asked]),
        choice_gpus=np.concatenate([q.choice_gpus for q in asked]),
        choice_cost=np.concatenate([q.choice_cost for q in asked]),
        level_cost=np.stack([q.level_cost for q in asked]),
        stranded=asked[0].stranded,
        table=stranded_table(ask.mix, index.width),
    )


def _balance(
    index: Index, terms: Mapping[str, RegionTerms], supply: Supply, weights: ScoreWeights
) -> Balance:
    names = [part.region for part in index.parts]
    spans = [index.spans[name] for name in names]
    cost = index.nowhere.copy()
    for region, its in terms.items():
        first, last = index.spans.get(region, (0, 0))
        cost[first:last] = fixed_cost(its, weights)
    return Balance(
        region_of=np.repeat(np.arange(len(names)), [last - first for first, last in spans]),
        held_milli=np.array([supply.held_milli.get(name, 0) for name in names], np.int64),
        gpus=np.array([supply.gpus.get(name, 0) for name in names], np.int64),
        price=weights.balance,
        fixed=fixed_cost(RegionTerms(), weights),
        cluster_cost=cost,
    )


def _space(index: Index) -> Room:
    space = index.workspace(Workspace)
    return Room(space.room(1)[0], space.costs(1)[0], space.no_loads)


def _room_for(kinds: Sequence[_Kind], numbers: I64) -> Placed:
    """Room for where gangs of these kinds sit."""
    tasks = np.array([kind.group.count for kind in kinds], np.int64)
    gpus = np.array([max((c.gpus for c in k.choices), default=0) for k in kinds], np.int64)
    hosts, slots = int(tasks[numbers].sum()), int((tasks * gpus)[numbers].sum())
    return Placed(
        np.zeros((len(numbers), 4), np.int64),
        np.zeros(len(numbers)),
        np.zeros(hosts, np.int64),
        np.zeros(hosts, np.int64),
        np.zeros(slots, np.int64),
    )


class _Plans:
    """Makes plans of what the kernel has written."""

    def __init__(
        self, index: Index, supply: Supply, versions: Mapping[str, int], placed: Placed
    ) -> None:
        self._index, self._supply, self._versions = index, supply, dict(versions)
        self._models = {number: name for name, number in index.models.items()}
        self._more_milli: dict[str, int] = {}
        self._change: list[float] = placed.change.tolist()
        self._where: list[list[int]] = placed.where.tolist()
        self._hosts: list[int] = placed.hosts.tolist()
        self._tasks: list[int] = placed.tasks.tolist()
        self._slots: list[int] = placed.slots.tolist()
        self._host_at = self._slot_at = 0

    def of(self, jobs: Sequence[tuple[str, _Kind]]) -> list[Plan]:
        """The plans of jobs, with their kinds, in the order in which they were placed."""
        return [self._plan(n, job, kind) for n, (job, kind) in enumerate(jobs)]

    def _plan(self, number: int, job: str, kind: _Kind) -> Plan:
        cluster, at_choice, _, used = self._where[number]
        region, name, _ = self._index.clusters[cluster]
        choice = kind.choices[at_choice]
        rows, seats = self._seats(region, kind.group.name, choice.gpus, used)
        columns = self._index.part_of[region]
        level = Level.HOST if used == 1 else level_of(columns, rows)
        more_milli = self._more_milli.get(region, 0)
        load = self._supply.load(region, more_milli)
        terms = kind.terms_of(at_choice, level, self._change[number], load)
        gpus_milli = kind.group.count * choice.gpus * MILLI
        version = self._versions[region]
        self._more_milli[region] = more_milli + gpus_milli
        self._versions[region] = version + 1
        model = self._models[choice.model]
        score = kind.score_of(terms)
        return Plan(
            job, region, name, model, gpus_milli, seats, level, score, terms, (), version,
            0.0, 0, {}, UNSET,
        )  # fmt: skip

    def _seats(
        self, region: str, group: str, gpus: int, used: int
    ) -> tuple[list[int], tuple[Seat, ...]]:
        """The rows of a gang's hosts in its region, and its seats."""
        columns = self._index.part_of[region]
        first, rows, seats = columns.first_row, list[int](), list[Seat]()
        for at in range(self._host_at, self._host_at + used):
            row = self._hosts[at] - first
            rows.append(row)
            host = columns.hosts[row].name
            for _ in range(self._tasks[at]):
                end = self._slot_at + gpus
                slots = tuple(self._slots[self._slot_at : end])
                seats.append(Seat(group, len(seats), host, slots, MILLI))
                self._slot_at = end
        self._host_at += used
        return rows, tuple(seats)
