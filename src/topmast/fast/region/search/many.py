"""Many gangs at once: one call of a kernel places each as if those before it ran already.

For the commonest gangs: equal tasks with whole GPUs, limited by free GPUs alone. Each gets the plan
that a question of its own would have brought.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from topmast.fast.region.inventory.arrays import I64
from topmast.fast.region.inventory.columns import cpus_of
from topmast.fast.region.inventory.index import Index
from topmast.fast.region.search import compiled, loads, scoring
from topmast.fast.region.search.compiled import Choice, Workspace, choices_in, costs_of, question_of
from topmast.fast.region.search.many_kernels import Balance, Kinds, Placed, Room, place_many
from topmast.model.columns import GangKind, PlanColumns, SeatColumns, Terms
from topmast.model.job import Level
from topmast.model.plan import Free, GroupRequest, PlacementRequest, RegionTerms
from topmast.policies.options import ScoreWeights


class Supply(Struct, frozen=True):
    """What regions have, and what is held of it, from which their balance follows."""

    held_milli: Mapping[str, int]
    gpus: Mapping[str, int]


def applies(ask: PlacementRequest, weights: ScoreWeights) -> bool:
    """Whether a gang is one of those that are placed many at a time."""
    return (
        type(ask.mode) is Free
        and ask.mode.more is None
        and ask.held is None
        and ask.cluster is None
        and compiled.applies(ask, weights)
        and not compiled.is_limited(ask)
        and not scoring.by_shapes(ask, weights)
        and not loads.counts(ask, weights)
        and cpus_of(ask.groups[0].resources) == 0.0
    )


def may_place(index: Index) -> bool:
    """Whether the hosts may be searched so: not where gangs share GPUs in turns."""
    shared = index.slices is not None or any(p.affinity is not None for p in index.parts)
    return not shared


def prices_of(index: Index, ask: PlacementRequest, weights: ScoreWeights) -> tuple[float, ...]:
    """What so many wholly free GPUs of a host cost in the score. O(width)."""
    table = scoring.stranded_table(ask.mix, index.width)
    return tuple((weights.fragmentation * table).tolist())


class _Kind(Struct, frozen=True):
    """A kind of gang."""

    ask: PlacementRequest
    choices: list[Choice]

    @property
    def group(self) -> GroupRequest:
        """Its one group of tasks."""
        return self.ask.groups[0]


def plans_of(
    index: Index,
    asks: Sequence[PlacementRequest],
    jobs: Sequence[str],
    of_ask: Sequence[int],
    terms: Mapping[str, RegionTerms],
    supply: Supply,
    weights: ScoreWeights,
    versions: Mapping[str, int],
) -> PlanColumns:
    """Plans for ``jobs``, each with the number of its request, up to the first without a place.

    ``terms``: of the regions asked, for the first job. ``versions``: of the regions' books.
    """
    kinds, kind_of = _kinds_of(index, asks)
    numbers: I64 = np.array(kind_of, np.int64)[np.array(of_ask, np.int64)]
    placed = _room_for(kinds, numbers)
    space = index.workspace(Workspace)
    count, slots = place_many(
        index.arrays,
        _arrays_of(index, kinds, asks[0], weights),
        numbers,
        _balance(index, terms, supply, weights),
        Room(space.room, space.costs, space.no_loads),
        placed,
    )
    placed = placed._replace(slots=placed.slots[:slots])
    return _columns(index, kinds, jobs[:count], numbers[:count], placed, weights, versions)


def _kinds_of(index: Index, asks: Sequence[PlacementRequest]) -> tuple[list[_Kind], list[int]]:
    """Kinds of gangs, and that of each request: those of several bands are of one kind."""
    numbers: dict[object, int] = {}
    kinds: list[_Kind] = []
    keys = [(ask.groups[0], ask.topology, ask.models, ask.scarcity) for ask in asks]
    for key, ask in zip(keys, asks, strict=True):
        if key not in numbers:
            numbers[key] = len(kinds)
            kinds.append(_Kind(ask, choices_in(index, ask)))
    return kinds, [numbers[key] for key in keys]


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
        table=scoring.stranded_table(ask.mix, index.width),
    )


def _balance(
    index: Index, terms: Mapping[str, RegionTerms], supply: Supply, weights: ScoreWeights
) -> Balance:
    names = [part.region for part in index.parts]
    spans = [index.spans[name] for name in names]
    return Balance(
        region_of=np.repeat(np.arange(len(names)), [last - first for first, last in spans]),
        held_milli=np.array([supply.held_milli.get(name, 0) for name in names], np.int64),
        gpus=np.array([supply.gpus.get(name, 0) for name in names], np.int64),
        price=weights.balance,
        fixed=scoring.fixed_cost(RegionTerms(), weights),
        cluster_cost=costs_of(index, terms, weights),
    )


def _room_for(kinds: Sequence[_Kind], numbers: I64) -> Placed:
    """Room for where gangs of these kinds sit."""
    tasks = np.array([kind.group.count for kind in kinds], np.int64)
    gpus = np.array([max((c.gpus for c in k.choices), default=0) for k in kinds], np.int64)
    hosts, slots = int(tasks[numbers].sum()), int((tasks * gpus)[numbers].sum())
    return Placed(
        np.zeros((len(numbers), 4), np.int64),
        np.zeros(len(numbers)),
        np.zeros(len(numbers)),
        np.zeros(hosts, np.int64),
        np.zeros(hosts, np.int64),
        np.zeros(slots, np.int64),
    )


def _columns(
    index: Index,
    kinds: Sequence[_Kind],
    jobs: Sequence[str],
    numbers: I64,
    placed: Placed,
    weights: ScoreWeights,
    versions: Mapping[str, int],
) -> PlanColumns:
    """What the kernel has written, with names in place of numbers. O(slots)."""
    cluster, choice, level, spans = placed.where[: len(jobs)].T
    clusters, at_cluster = np.unique(cluster, return_inverse=True)
    shape = (len(kinds), 1 + max(len(kind.choices) for kind in kinds), len(Level))
    rows = np.ravel_multi_index((numbers, choice, level), shape)  # one number for all three
    used, of_terms = np.unique(rows, return_inverse=True)
    shared = np.stack(np.unravel_index(used, shape))
    gangs, of_gang = np.unique(shared[:2], axis=1, return_inverse=True)
    hosts = int(spans.sum())
    names = [index.clusters[number][:2] for number in clusters.tolist()]
    seats = SeatColumns(
        jobs=tuple(jobs),
        kinds=tuple([_gang(kinds[kind], at) for kind, at in gangs.T.tolist()]),
        kind=tuple(of_gang.reshape(-1)[of_terms].tolist()),
        spans=tuple(spans.tolist()),
        hosts=tuple(map(index.host_names.__getitem__, placed.hosts[:hosts].tolist())),
        tasks=tuple(placed.tasks[:hosts].tolist()),
        slots=tuple(placed.slots.tolist()),
    )
    models = {number: name for name, number in index.models.items()}
    alike = []
    for kind, at, span in shared.T.tolist():
        ask, chosen = kinds[kind].ask, kinds[kind].choices[at]
        terms = scoring.terms_alike(ask, weights, Level(span), chosen.index)
        alike.append(Terms(models[chosen.model], span, terms))
    price, change = weights.fragmentation, placed.change[: len(jobs)]
    fragmentation = price * change if price else np.zeros(len(change))
    return PlanColumns(
        seats=seats,
        clusters=tuple(names),
        cluster=tuple(at_cluster.tolist()),
        terms=tuple(alike),
        of_terms=tuple(of_terms.tolist()),
        fragmentation=tuple(fragmentation.tolist()),
        balance=tuple((weights.balance * placed.load[: len(jobs)]).tolist()),
        versions={region: versions[region] for region, _ in names},
    )


def _gang(kind: _Kind, choice: int) -> GangKind:
    return GangKind(kind.group.name, kind.group.count, kind.choices[choice].gpus)
