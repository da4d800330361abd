"""The search for gangs of several groups, of shares of GPUs, and of tasks without GPUs.

`host_options`, `knapsack` and `mixed_kernels` are the kernels; this turns a question into their
arrays, and their answer into seats.
"""

from __future__ import annotations

import math
from operator import mul

import numpy as np
from msgspec import Struct

from topmast.fast.region.inventory.columns import (
    CPU_DECIMALS,
    Columns,
    Floats,
    Ints,
    cpus_of,
)
from topmast.fast.region.inventory.overlay import Overlay
from topmast.fast.region.inventory.room import level_of
from topmast.fast.region.search import host_options, loads, mixed_kernels, scoring, share_packing
from topmast.fast.region.search.host_options import Bools, Gang, Hosts, Kinds, Places
from topmast.fast.region.search.kernels import INFINITE, NOWHERE
from topmast.fast.region.search.packing import Seated, gpus_of_task
from topmast.fast.region.search.stranded import mixture_of
from topmast.model.absent import given
from topmast.model.job import MILLI, Level
from topmast.model.plan import GroupRequest, PlacementRequest, Seat
from topmast.policies.options import Profile, ScoreWeights

EXACT_STATES = 1 << 15
"""Gangs that can be seated in part in more ways (the product of the groups' tasks, each plus
one) are not searched exactly, nor those"""
EXACT_WORK = 1 << 21
"""of which that number times the ways to fill the widest host is more than this."""
MICRO: int = 10**CPU_DECIMALS
UNLIMITED = 1 << 60


class Question(Struct, frozen=True):
    """A question as arrays."""

    choices: tuple[int, ...]
    order: tuple[int | None, ...]
    """The groups as the kernels number them; the last may be none."""
    gang: Gang
    places: Places


def applies(columns: Columns, ask: PlacementRequest, weights: ScoreWeights) -> bool:
    """Whether the gang is small enough to be searched exactly. O(hosts)."""
    states = math.prod(group.count + 1 for group in ask.groups)
    if states > EXACT_STATES:
        return False
    groups = [ask.groups[number] for number in _order(ask, weights)[:-1] if number is not None]
    return all(
        states * math.prod(_most_on(columns, group, choice) + 1 for group in groups) <= EXACT_WORK
        for choice in scoring.choices_of(ask)
    )


def _most_on(columns: Columns, group: GroupRequest, choice: int) -> int:
    """How many tasks of a group any host could take, empty. O(hosts)."""
    needs = group.resources
    milli, cpus = gpus_of_task(needs, choice), cpus_of(needs)
    most = float(group.count)
    if milli:
        gpus = columns.width - 1
        each = gpus * MILLI // milli if milli >= MILLI else gpus * (MILLI // milli)
        most = min(most, each)
    if cpus:
        most = min(most, float(columns.cpus.max(initial=0.0)) / cpus)
    if needs.memory_bytes:
        most = min(most, float(columns.memory.max(initial=0.0)) / needs.memory_bytes)
    return int(most)


def best_seats(
    columns: Columns, ask: PlacementRequest, weights: ScoreWeights, q: Question
) -> Seated | None:
    """The seats of least score on free GPUs."""
    kinds = host_options.kinds_of_hosts(hosts_of(columns, ask), q.gang, q.places)
    if loads.counts(ask, weights):
        kinds = loads.with_loads(columns, q.gang, kinds, ask, weights)
    at_cluster, at_choice, hosts, picked = mixed_kernels.best_plan(q.gang, kinds, q.places)
    if at_cluster == NOWHERE:
        return None
    tasks = tasks_on(q.gang, kinds, picked)
    return placed(Overlay(columns), ask, q, at_choice, hosts, tasks)


def question_of(
    columns: Columns, ask: PlacementRequest, profile: Profile, cluster: str | None
) -> Question:
    """What the kernels need to know (in one ``cluster``)."""
    weights = profile.score
    order, places = _order(ask, weights), places_of(columns, ask, profile, cluster)
    return Question(scoring.choices_of(ask), order, _gang(columns, ask, weights, order), places)


def places_of(
    columns: Columns, ask: PlacementRequest, profile: Profile, cluster: str | None
) -> Places:
    """The clusters of the region, at what each costs; only ``cluster`` is finite, if given."""
    clusters = [p for p in columns.parts if len(columns.clusters[p[0]])]
    fixed = scoring.fixed_cost(ask.terms, profile.score)
    costs = [
        (fixed if cluster in (None, name) else INFINITE) + profile.slices.price * time_slice
        for name, time_slice in clusters
    ]
    return Places(
        domain=columns.domain,
        first=np.array([columns.rows_in(*part)[0] for part in clusters], np.int64),
        last=np.array([columns.rows_in(*part)[-1] + 1 for part in clusters], np.int64),
        hosts=np.arange(len(columns.hosts)),
        cost=np.array(costs, np.float64),
    )


def _order(ask: PlacementRequest, weights: ScoreWeights) -> tuple[int | None, ...]:
    """The groups, the filler last: the largest without GPUs; none where all tasks cost."""
    loose = [i for i, group in enumerate(ask.groups) if not group.resources.accelerators]
    loose = [] if loads.counts(ask, weights) or scoring.by_shapes(ask, weights) else loose
    filler = max(loose, key=lambda i: (ask.groups[i].count, -i), default=None)
    return (*(i for i in range(len(ask.groups)) if i != filler), filler)


def _gang(
    columns: Columns, ask: PlacementRequest, weights: ScoreWeights, order: tuple[int | None, ...]
) -> Gang:
    allowed = scoring.choices_of(ask)
    no_group = GroupRequest("", 0, ask.groups[0].resources)
    groups = [no_group if i is None else ask.groups[i] for i in order]
    milli = np.array(
        [[gpus_of_task(g.resources, c) if g.count else 0 for g in groups] for c in allowed],
        np.int64,
    ).reshape(len(allowed), len(groups))
    counts = [group.count for group in groups]
    radix = [count + 1 for count in counts[:-1]]
    stride = [math.prod(radix[:i]) for i in range(len(radix))]
    states = np.arange(math.prod(radix))
    vectors: Ints = np.zeros((len(states), len(radix)), np.int64)
    for at, (step, base) in enumerate(zip(stride, radix, strict=True)):
        vectors[:, at] = states // step % base
    cpus = [micro(cpus_of(group.resources)) for group in groups]
    memory = [group.resources.memory_bytes for group in groups]
    judged = scoring.by_shapes(ask, weights)
    price = 0.0 if judged else weights.fragmentation
    return Gang(
        tasks=np.array(counts, np.int64),
        milli=milli,
        shares=_shares(milli),
        cpus=np.array(cpus, np.int64),
        memory=np.array(memory, np.int64),
        total=sum(counts),
        total_cpus=UNLIMITED if judged else sum(map(mul, counts, cpus)),
        total_memory=UNLIMITED if judged else sum(map(mul, counts, memory)),
        right=_right(columns, groups, allowed),
        stride=np.array(stride, np.int64),
        vectors=vectors,
        stranded=price * scoring.stranded_table(ask.mix, columns.width),
        share_price=price * scoring.SHARE_STRANDED / MILLI,
        mixture=mixture_of(
            given(ask.shapes, ()) if judged else (),
            columns.names_of_models,
            weights.fragmentation,
        ),
        choice_cost=np.array([scoring.choice_cost(ask, weights, c) for c in allowed], np.float64),
        level_cost=np.array([scoring.locality_cost(ask, weights, level) for level in Level]),
    )


def _shares(milli: Ints) -> Ints:
    """For each choice the groups of shares, largest first."""
    shares = np.full(milli.shape, NOWHERE, np.int64)
    for choice, sizes in enumerate(milli.tolist()):
        of_shares = [i for i, size in enumerate(sizes) if 0 < size < MILLI]
        of_shares.sort(key=lambda i: -sizes[i])
        shares[choice, : len(of_shares)] = of_shares
    return shares


def _right(columns: Columns, groups: list[GroupRequest], allowed: tuple[int, ...]) -> Bools:
    """Which hosts have GPUs of the model that a group asks for (choices x groups x hosts)."""
    right = np.ones((len(allowed), len(groups), len(columns.hosts)), np.bool_)
    of_model: dict[str, Bools] = {}
    for at, choice in enumerate(allowed):
        for number, group in enumerate(groups):
            listed = group.resources.accelerators
            model = listed[min(choice, len(listed) - 1)].model if listed else None
            if model is not None:
                if model not in of_model:
                    of_model[model] = np.asarray(columns.models == model, np.bool_)
                right[at, number] = of_model[model]
    return right


def hosts_of(columns: Columns, ask: PlacementRequest) -> Hosts:
    """What is free, in whole numbers; hosts that the gang may not use are out of service."""
    usable = columns.available
    excluded = columns.excluded(ask)
    if excluded:
        usable = usable.copy()
        usable[excluded] = False
    return Hosts(
        columns.free_milli,
        columns.offset,
        whole_numbers(columns.free_cpus * MICRO),
        whole_numbers(columns.free_memory),
        usable,
        columns.model_of,
    )


def micro(cpus: float) -> int:
    """CPUs in millionths."""
    return round(cpus * MICRO)


def whole_numbers(amounts: Floats) -> Ints:
    """Rounded; without a limit is very much."""
    return np.rint(np.minimum(amounts, UNLIMITED)).astype(np.int64)


# --- seats ----------------------------------------------------------------------------------------


def tasks_on(gang: Gang, kinds: Kinds, picked: Ints) -> Ints:
    """Each group's tasks on each host (hosts x groups) by options ``picked``; fillers first."""
    tasks: Ints = np.zeros((len(picked), len(gang.tasks)), np.int64)
    takes = picked != NOWHERE
    tasks[takes, :-1] = gang.vectors[kinds.options.state[picked[takes]]]
    left = int(gang.tasks[-1])
    for n in np.flatnonzero(takes).tolist():
        tasks[n, -1] = min(left, int(kinds.options.fill[picked[n]]))
        left -= int(tasks[n, -1])
    return tasks


def holds(free: Hosts, gang: Gang, choice: int, hosts: Ints, tasks: Ints) -> bool:
    """Whether so many tasks of each group fit on the hosts (hosts x groups). O(all hosts)."""
    usable = np.zeros_like(free.usable)
    usable[hosts] = free.usable[hosts]
    kinds = host_options.kinds_of_hosts(free._replace(usable=usable), gang, everywhere(len(usable)))
    states = (tasks[:, :-1] * gang.stride).sum(axis=1).tolist()
    for host, state, fill in zip(hosts.tolist(), states, tasks[:, -1].tolist(), strict=True):
        if state == 0 and fill == 0:
            continue
        kind = int(kinds.of_host[choice, host])
        listed = slice(kinds.start[kind], kinds.start[kind + 1])
        fitting = kinds.options.state[listed] == state
        if kind == NOWHERE or not (fitting & (kinds.options.fill[listed] >= fill)).any():
            return False
    return True


def everywhere(hosts: int) -> Places:
    """So many hosts in one cluster that costs nothing."""
    return Places(
        domain=np.zeros((len(Level), hosts), np.int64),
        first=np.zeros(1, np.int64),
        last=np.full(1, hosts, np.int64),
        hosts=np.arange(hosts),
        cost=np.zeros(1),
    )


def placed(
    free: Overlay, ask: PlacementRequest, q: Question, choice: int, hosts: Ints, tasks: Ints
) -> Seated:
    """Seats for so many tasks of each group on each host (hosts x groups, as in the kernels)."""
    columns = free.columns
    used = np.flatnonzero(tasks.sum(axis=1)).tolist()
    rows = [int(hosts[n]) for n in used]
    by_group: list[list[tuple[str, tuple[int, ...]]]] = [[] for _ in ask.groups]
    for n, row in zip(used, rows, strict=True):
        name = columns.hosts[row].name
        for group, slots in _slots_on(free.slots(row), q.gang, choice, tasks[n]):
            number = q.order[group]
            assert number is not None
            by_group[number].append((name, slots))
    seats: list[Seat] = []
    for asked, places in zip(ask.groups, by_group, strict=True):
        milli = min(gpus_of_task(asked.resources, q.choices[choice]), MILLI) or MILLI
        for name, slots in places:
            seats.append(Seat(asked.name, len(seats), name, slots, milli))
    cluster, time_slice = columns.cluster_of[rows[0]], rows[0] // columns.places
    level = level_of(columns, rows)
    return Seated(cluster, q.choices[choice], level, tuple(seats), time_slice)


def _slots_on(
    free: Ints, gang: Gang, choice: int, tasks: Ints
) -> list[tuple[int, tuple[int, ...]]]:
    """The group and the slots of each task on one host: whole GPUs lowest first, then shares."""
    whole = np.flatnonzero(free == MILLI).tolist()
    sizes = gang.milli[choice].tolist()
    found: list[tuple[int, tuple[int, ...]]] = []
    taken = 0
    for group, count in enumerate(tasks.tolist()):
        gpus = sizes[group] // MILLI
        if 0 < sizes[group] < MILLI:
            continue
        for _ in range(count):
            found.append((group, tuple(whole[taken : taken + gpus])))
            taken += gpus
    return found + _shares_on(free, gang, choice, tasks, whole, taken)


def _shares_on(
    free: Ints, gang: Gang, choice: int, tasks: Ints, whole: list[int], taken: int
) -> list[tuple[int, tuple[int, ...]]]:
    """Group and slot of each share: the fullest slot that holds it, where the price allows."""
    groups = [g for g in gang.shares[choice].tolist() if g != NOWHERE for _ in range(tasks[g])]
    if not groups:
        return []
    items = gang.milli[choice][groups]
    parts = [s for s in range(len(free)) if 0 < free[s] < MILLI]
    parts.sort(key=lambda s: (int(free[s]), s))
    bins = np.asarray(free[parts], np.int64)
    count, left = len(items), len(whole) - taken
    _, opened = host_options.best_opening(gang, items, count, bins, len(whole), taken)
    where = np.empty(count, np.int64)
    fits = share_packing.packs(
        items, count, bins, share_packing.fewest_opened(items, count, bins, left), where
    )
    assert fits
    spread = _spread(where.tolist(), len(parts), opened)
    slots = parts + whole[taken : taken + opened]
    return [(group, (slots[at],)) for group, at in zip(groups, spread, strict=True)]


def _spread(where: list[int], parts: int, opened: int) -> list[int]:
    """Move the smallest shares, one by one, until each of the ``opened`` GPUs has one."""
    for unused in range(parts, parts + opened):
        if unused in where:
            continue
        movable = [i for i, at in enumerate(where) if at < parts or where.count(at) > 1]
        where[movable[-1]] = unused
    return where
