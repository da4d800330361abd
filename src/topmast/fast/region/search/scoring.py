"""The score of a plan: its terms, each kept by name; the lower sum wins (fast-path: score)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from msgspec import UNSET

from topmast.fast.preemption_cost import points
from topmast.fast.region.inventory.columns import Columns, Floats, Ints, cpus_of
from topmast.fast.region.inventory.overlay import Overlay
from topmast.fast.region.search import loads, stranded
from topmast.fast.region.search.packing import gpus_of_task
from topmast.model.absent import given
from topmast.model.job import MILLI, Accelerator, Level
from topmast.model.plan import PlacementRequest, RegionTerms, Seat, needs_of
from topmast.policies.options import ScoreWeights

SHARE_STRANDED = 0.5
"""How much of a GPU that is given out in shares counts as stranded where it is free."""
BEST_FIT = 1e-3
"""So many GPUs count as stranded beside, times the root of a host's free ones: ties by best fit."""
LARGEST_TASK = 1024
"""Hosts with more free GPUs than that are all alike, whatever the largest task is."""
MANY_SLOTS = 64
"""Hosts with more GPUs than that are counted in numpy, which has its price for every call."""
PREFERENCE_STEP = 0.01
"""Cost of a model per place in the list of preference, when speeds do not tell them apart."""
SPARED = 0.5
"""So much of a GPU of the scarcest model counts as stranded, if it is given to a gang to which any
model will do."""


def score_terms(
    ask: PlacementRequest,
    weights: ScoreWeights,
    columns: Columns | Overlay,
    seats: tuple[Seat, ...],
    level: Level,
    choice: int,
    lost_gpu_s: float,
    time_slice: int = 0,
    stranding: float | None = None,
) -> dict[str, float]:
    """The weighted terms of one plan, for ``columns`` from which victims are gone already.

    ``stranding``: what it pays for the GPUs that it strands, where that is known. O(tasks + slots
    of the hosts used).
    """
    terms = terms_alike(ask, weights, level, choice)
    terms["preemption"] = points(lost_gpu_s, weights.preemption)
    if stranding is not None:
        terms["fragmentation"] = stranding
    elif by_shapes(ask, weights):
        terms["fragmentation"] = shapes_cost(ask, weights, columns, seats, time_slice)
    elif weights.fragmentation:
        table = stranded_table(ask.mix, columns.width)
        change = stranded_change(columns, table, seats, time_slice)
        terms["fragmentation"] = weights.fragmentation * change
    terms["data"] = weights.data * ask.terms.data_s / 3600.0
    terms["balance"] = weights.balance * ask.terms.balance
    if loads.counts(ask, weights):
        terms["allocation"] = loads.allocation_cost(columns, ask, weights, seats, time_slice)
    return terms


def terms_alike(
    ask: PlacementRequest, weights: ScoreWeights, level: Level, choice: int
) -> dict[str, float]:
    """The terms that all plans of a level and choice have alike; 0 for the others."""
    terms = {
        "preemption": 0.0,
        "speed": weights.speed * slowdown(ask, choice),
        "locality": locality_cost(ask, weights, level),
        "fragmentation": 0.0,
        "data": 0.0,
        "balance": 0.0,
    }
    if weights.models or ask.scarcity:
        terms["model"] = model_cost(ask, weights, choice)
    return terms


def by_shapes(ask: PlacementRequest, weights: ScoreWeights) -> bool:
    """Whether free GPUs are judged by the shapes of recent tasks; not where others have to stop.

    What victims give back is not known before they are chosen.
    """
    is_free = ask.shapes is not UNSET and not ask.preempt
    return is_free and weights.shapes and weights.fragmentation > 0.0


def shapes_cost(
    ask: PlacementRequest,
    weights: ScoreWeights,
    columns: Columns | Overlay,
    seats: tuple[Seat, ...],
    time_slice: int,
) -> float:
    """What the tasks pay for the GPUs that they strand, by shapes. O(tasks + slots x shapes)."""
    if isinstance(columns, Overlay):
        columns = columns.columns
    names = columns.names_of_models
    mixture = stranded.mixture_of(given(ask.shapes, ()), names, weights.fragmentation)
    needs, by_row = needs_of(ask.groups), dict[int, list[Seat]]()
    for seat in seats:
        by_row.setdefault(columns.row(seat.host, time_slice), []).append(seat)
    cost = 0.0
    for row, here in by_row.items():
        before = columns.slots(row)
        after = before.copy()
        for seat in here:
            after[list(seat.slots)] -= seat.slot_milli
        cost += stranded.change_on(
            mixture, int(columns.model_of[row]), before, after,
            float(columns.free_cpus[row]), float(columns.free_memory[row]),
            sum([cpus_of(needs[seat.group]) for seat in here]),
            float(sum([needs[seat.group].memory_bytes for seat in here])),
            len(here) / len(seats),
        )  # fmt: skip
    return cost


def total(terms: dict[str, float]) -> float:
    """The score: the sum of the terms, in a fixed order so that equal terms give equal bits."""
    return sum([terms[name] for name in sorted(terms)])


def accelerators_of(ask: PlacementRequest) -> tuple[Accelerator, ...]:
    """The longest list of accelerators in the gang: its choices."""
    if len(ask.groups) == 1:
        return ask.groups[0].resources.accelerators
    return max((g.resources.accelerators for g in ask.groups), key=len, default=())


def choices_of(ask: PlacementRequest) -> tuple[int, ...]:
    """The accelerator choices that the question allows, by index; one dummy without GPUs."""
    listed = range(max(1, len(accelerators_of(ask))))
    return tuple(c for c in listed if ask.models is None or c in ask.models)


def slowdown(ask: PlacementRequest, choice: int) -> float:
    """How much slower the job runs than on its best model: 0 on the best, 1 at half speed.

    Where any model will do, none is preferred (`model_cost`).
    """
    listed = accelerators_of(ask)
    if not listed or ask.scarcity is not UNSET:
        return 0.0
    if len(listed) == 1:
        return PREFERENCE_STEP * choice
    best = max(a.speed for a in listed)
    return best / listed[choice].speed - 1.0 + PREFERENCE_STEP * choice


def locality_cost(ask: PlacementRequest, weights: ScoreWeights, level: Level) -> float:
    """The locality term of a plan that spans ``level``: infinite above what the job requires."""
    required, preferred = ask.topology.required, ask.topology.preferred
    if required is not None and level > required:
        return float("inf")
    return weights.locality * (0 if preferred is None else max(0, level - preferred))


def model_cost(ask: PlacementRequest, weights: ScoreWeights, choice: int) -> float:
    """What a plan pays for its choice of a GPU model; 0 for a model without a name or a price.

    A gang to which any model will do spares those that others need more. O(models + groups).
    """
    listed = accelerators_of(ask)
    if not (weights.models or ask.scarcity) or not listed:
        return 0.0
    model = listed[choice].model or ""
    cost = dict(weights.models).get(model, 0.0)
    scarcity = dict(given(ask.scarcity, ())).get(model, 0.0)
    if scarcity:
        gpus = sum([g.count * gpus_of_task(g.resources, choice) for g in ask.groups]) / MILLI
        cost += weights.fragmentation * SPARED * scarcity * gpus
    return cost


def choice_cost(ask: PlacementRequest, weights: ScoreWeights, choice: int) -> float:
    """The terms that are the same for all plans of a choice: speed and model."""
    return weights.speed * slowdown(ask, choice) + model_cost(ask, weights, choice)


def fixed_cost(terms: RegionTerms, weights: ScoreWeights) -> float:
    """The terms that are the same for all plans of a region: data and balance."""
    return weights.data * terms.data_s / 3600.0 + weights.balance * terms.balance


@lru_cache(maxsize=64)
def stranded_table(mix: tuple[tuple[int, float], ...], width: int) -> Floats:
    """What f wholly free GPUs of a host count as stranded, by f (width).

    A host that gets tasks of s GPUs only is left with f mod s; the expectation is over the ``mix``
    of sizes (fragmentation as expected waste: Weng et al., ATC '23). Counted is the least concave
    function above it: then a task always strands least on the host with fewest free GPUs that
    holds it, and no load of whole GPUs waits longer than with best fit. It falls by as much for
    each free GPU as makes a host that the largest task fills count nothing, so that plans with
    more GPUs on another model gain nothing by that. O(sizes * largest task + width).
    """
    largest = min(max((size for size, _ in mix), default=1), LARGEST_TASK)
    free = np.arange(largest)
    table: Floats = np.zeros(largest)
    for size, share in mix:
        table += share * np.where(free >= size, free % size, free)
    beyond = np.arange(max(width, largest + 1))
    counted = np.interp(beyond, free, _concave(table.tolist())) + BEST_FIT * np.sqrt(beyond)
    level: Floats = counted - counted[largest] / largest * beyond
    return level[:width]


def _concave(values: list[float]) -> list[float]:
    """The least concave sequence that is nowhere below ``values``, which begin with the least."""
    corners = [0]
    for at in range(1, len(values)):
        while len(corners) > 1 and _rise(values, corners[-1], at) >= _rise(values, *corners[-2:]):
            corners.pop()
        corners.append(at)
    found = np.interp(range(len(values)), corners, [values[at] for at in corners])
    return [float(value) for value in np.maximum.accumulate(found)]


def _rise(values: list[float], first: int, last: int) -> float:
    return (values[last] - values[first]) / (last - first)


def stranded_change(
    columns: Columns | Overlay, table: Floats, seats: tuple[Seat, ...], time_slice: int = 0
) -> float:
    """How many more GPUs are expected to be stranded once ``seats`` are taken from ``columns``.

    A GPU in shares is half stranded by what is free of it. O(slots of the hosts used).
    """
    if len(seats) == 1 and seats[0].slot_milli == MILLI:
        row = columns.row(seats[0].host, time_slice)
        return _whole_change(columns.slots(row), table, seats[0].slots)
    taken: dict[int, dict[int, int]] = {}
    for seat in seats:
        slots = taken.setdefault(columns.row(seat.host, time_slice), {})
        for slot in seat.slots:
            slots[slot] = slots.get(slot, 0) + seat.slot_milli
    change = 0.0
    for row, slots in taken.items():
        free = columns.slots(row)
        whole, shares = _free_of(free)
        before = float(table[whole]) + SHARE_STRANDED * shares / MILLI
        for slot, milli in slots.items():
            had = free.item(slot)
            left = had - milli
            whole += (left == MILLI) - (had == MILLI)
            shares += _as_share(left) - _as_share(had)
        change += float(table[whole]) + SHARE_STRANDED * shares / MILLI - before
    return change


def _whole_change(free_milli: Ints, table: Floats, slots: tuple[int, ...]) -> float:
    """`stranded_change` of one task with whole GPUs on a host. O(its slots)."""
    whole, shares = _free_of(free_milli)
    before = table.item(whole) + SHARE_STRANDED * shares / MILLI
    for slot in slots:
        had = free_milli.item(slot)
        if had == MILLI:  # as nearly always
            whole -= 1
        else:
            shares -= _as_share(had)
    return table.item(whole) + SHARE_STRANDED * shares / MILLI - before


def _free_of(free_milli: Ints) -> tuple[int, int]:
    """A host's wholly free GPUs, and the free thousandths of shared ones. O(its slots)."""
    if len(free_milli) > MANY_SLOTS:
        shared = free_milli[(free_milli > 0) & (free_milli < MILLI)]
        return int(np.count_nonzero(free_milli == MILLI)), int(shared.sum())
    values = free_milli.tolist()
    whole = values.count(MILLI)
    if whole + values.count(0) == len(values):
        return whole, 0
    return whole, sum([_as_share(value) for value in values if value != MILLI])


def _as_share(free_milli: int) -> int:
    """What is free of a GPU that is given out in shares."""
    return free_milli if 0 < free_milli < MILLI else 0
