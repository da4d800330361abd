"""The search for one task of one group, where free GPUs are judged by the shapes of recent tasks.

Most tasks with a share of a GPU, or without any, come alone. Then a host has one option at most,
and nothing of `mixed` is needed, where kernels list and compare options. The plan is the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topmast.fast.region.inventory.arrays import F64, I64, MILLI
from topmast.fast.region.inventory.columns import Columns, Floats, cpus_of
from topmast.fast.region.inventory.index import Index, index_of
from topmast.fast.region.inventory.room import choose_slots
from topmast.fast.region.search import loads
from topmast.fast.region.search.host_options import Places
from topmast.fast.region.search.kernels import EPSILON, INFINITE, NOWHERE
from topmast.fast.region.search.packing import Seated, gpus_of_task
from topmast.fast.region.search.scoring import by_shapes, choice_cost, choices_of
from topmast.fast.region.search.stranded import (
    EASE,
    HAIR,
    Before,
    Mixture,
    ease,
    left_of,
    mixture_of,
    now_of,
    stranded_of,
)
from topmast.jit import inner, kernel
from topmast.model.absent import given
from topmast.model.job import Level
from topmast.model.plan import PlacementRequest, Seat
from topmast.policies.options import ScoreWeights

ANY, NO_MODEL = -1, -2


class Free(NamedTuple):
    """What is free on the hosts of a region (H)."""

    milli: I64
    """(slots)"""
    offset: I64
    cpus: F64
    memory: F64
    usable: NDArray[np.bool_]
    model: I64
    version: I64
    """Grows when what is free of a host has changed."""


class Task(NamedTuple):
    """What is asked for, by choices."""

    milli: I64
    model: I64
    """The number of the host's model, or `ANY`, or `NO_MODEL` that is here."""
    cost: F64
    cpus: float
    memory: float


class Workspace:
    """What these searches keep with an index."""

    def __init__(self, index: Index) -> None:
        self.before: dict[str, Before] = {}
        """By region."""


def applies(ask: PlacementRequest, weights: ScoreWeights) -> bool:
    """Whether the request is for one task, and free GPUs are judged by shapes."""
    return len(ask.groups) == 1 and ask.groups[0].count == 1 and by_shapes(ask, weights)


def best_seat(
    columns: Columns, ask: PlacementRequest, weights: ScoreWeights, places: Places
) -> Seated | None:
    """The seat of least score on free GPUs."""
    group, choices = ask.groups[0], choices_of(ask)
    if not choices:
        return None
    mixture = mixture_of(given(ask.shapes, ()), columns.names_of_models, weights.fragmentation)
    before = _before(columns, mixture)
    at_cluster, at_choice, row = best_host(
        _free(columns, ask), _task(columns, ask, weights), mixture, places.first, places.last,
        places.cost, _beside(columns, ask, weights), (before.now, before.seen),
    )  # fmt: skip
    if at_cluster == NOWHERE:
        return None
    choice = choices[at_choice]
    milli = gpus_of_task(group.resources, choice)
    slots = choose_slots(columns, row, milli)
    assert slots is not None, "a host was counted as having room that it has not"
    seat = Seat(group.name, 0, columns.hosts[row].name, slots, min(milli, MILLI) or MILLI)
    time_slice = row // columns.places
    return Seated(columns.cluster_of[row], choice, Level.HOST, (seat,), time_slice)


def _before(columns: Columns, mixture: Mixture) -> Before:
    """What is known by this mixture; nothing of columns that are tried in thought only."""
    if columns.counts is None and columns.pool is None:
        return Before.none(mixture, len(columns.hosts))
    kept = index_of(columns).workspace(Workspace).before
    found = kept.get(columns.region)
    if found is None or found.mixture is not mixture:
        kept[columns.region] = found = Before.none(mixture, len(columns.hosts))
    return found


def _free(columns: Columns, ask: PlacementRequest) -> Free:
    usable, excluded = columns.available, columns.excluded(ask)
    if excluded:
        usable = usable.copy()
        usable[excluded] = False
    return Free(
        columns.free_milli, columns.offset, columns.free_cpus, columns.free_memory, usable,
        columns.model_of, columns.version,
    )  # fmt: skip


def _task(columns: Columns, ask: PlacementRequest, weights: ScoreWeights) -> Task:
    needs, choices = ask.groups[0].resources, choices_of(ask)
    names = [needs.accelerators[c].model if needs.accelerators else None for c in choices]
    number = {name: at for at, name in enumerate(columns.names_of_models)}
    return Task(
        np.array([gpus_of_task(needs, c) for c in choices], np.int64),
        np.array([ANY if n is None else number.get(n, NO_MODEL) for n in names], np.int64),
        np.array([choice_cost(ask, weights, c) for c in choices]),
        cpus_of(needs),
        float(needs.memory_bytes),
    )


def _beside(columns: Columns, ask: PlacementRequest, weights: ScoreWeights) -> Floats:
    """What the task pays on each host for its load (choices x H), as `loads.with_loads` does."""
    choices = choices_of(ask)
    if not loads.counts(ask, weights):
        return np.zeros((len(choices), 0))
    found, needs = loads.Loads(columns, ask, weights), ask.groups[0].resources
    by_gpus, by_cpus, by_memory = found.rise
    same = found.of(found.step) + (cpus_of(needs) * by_cpus + needs.memory_bytes * by_memory) / 2
    return np.stack([same + gpus_of_task(needs, c) * by_gpus / 2 for c in choices])


# --- kernels --------------------------------------------------------------------------------------


@inner
def _take(free: I64, milli: int) -> bool:
    """Take a task's GPUs of a host's slots, a share from the fullest that does; whether it fits."""
    if milli <= 0:
        return True
    if milli < MILLI:
        at = NOWHERE
        for slot in range(free.shape[0]):
            if free[slot] >= milli and (at == NOWHERE or free[slot] < free[at]):
                at = slot
        if at == NOWHERE:
            return False
        free[at] -= milli
        return True
    left = milli // MILLI
    for slot in range(free.shape[0]):
        if left > 0 and free[slot] == MILLI:
            free[slot] = 0
            left -= 1
    return left == 0


@kernel
def best_host(
    a: Free, t: Task, m: Mixture, first: I64, last: I64, price: F64, beside: F64,
    before: tuple[F64, I64],
) -> tuple[int, int, int]:  # fmt: skip
    """The cluster, choice and host of least cost; ties go to the first. O(choices * H * M).

    Clusters (C) have the hosts first:last, at a price; ``beside`` (choices x H or 0) is paid too.
    ``before``: see `stranded.Before`.
    """
    best, at_cluster, at_choice, at_host = INFINITE, NOWHERE, NOWHERE, NOWHERE
    for cluster in range(first.shape[0]):
        if price[cluster] == INFINITE:
            continue
        for choice in range(t.milli.shape[0]):
            least, host = _least(a, t, m, first[cluster], last[cluster], choice, beside, before)
            score = price[cluster] + t.cost[choice] + least
            if score < best - EPSILON:
                best, at_cluster, at_choice, at_host = score, cluster, choice, host
    return at_cluster, at_choice, at_host


@inner
def _least(
    a: Free, t: Task, m: Mixture, first: int, last: int, choice: int, beside: F64,
    before: tuple[F64, I64],
) -> tuple[float, int]:  # fmt: skip
    least, at = INFINITE, NOWHERE
    for host in range(first, last):
        if not a.usable[host] or (t.model[choice] != ANY and t.model[choice] != a.model[host]):
            continue
        if t.cpus > 0.0 and t.cpus > a.cpus[host] + HAIR:
            continue
        if t.memory > 0.0 and t.memory > a.memory[host]:
            continue
        free = a.milli[a.offset[host] : a.offset[host + 1]]
        after = free.copy()
        if not _take(after, t.milli[choice]):
            continue
        model = a.model[host]
        old = left_of(m, free, a.cpus[host], a.memory[host])
        now = now_of(m, model, old, host, a.version, before)
        left = left_of(m, after, a.cpus[host] - t.cpus, a.memory[host] - t.memory)
        cost = m.price * (stranded_of(m, model, left) - now + EASE * ease(left))
        if beside.shape[1] > 0:
            cost += beside[choice, host]
        if cost < least - EPSILON:
            least, at = cost, host
    return least, at
