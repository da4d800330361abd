"""The compiled search: gangs of one group of tasks with whole GPUs, over a region in one call.

Everything else (shares of GPUs, several groups, no GPUs, trials) is searched by `search.py`.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from topmast.fast.placement import kernels
from topmast.fast.placement.columns import Columns, Ints, cpus_of
from topmast.fast.placement.index import Index
from topmast.fast.placement.kernels import NOWHERE, Question
from topmast.fast.placement.scoring import fixed_cost, locality_cost, slowdown, stranded_table
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import MILLI, Accelerator, Band, Level, Resources, Topology
from topmast.model.plan import Ask, GroupAsk, Seat
from topmast.policies.base import ScoreWeights


def warm_up() -> None:
    """Compile the kernels, or load what an earlier run compiled: no decision waits for it later."""
    hosts = tuple(HostSpec(f"h{i}", "G", 2, cpus=2.0, rack="r") for i in range(2))
    columns = Columns(RegionSpec("r", (ClusterSpec("c", hosts),)))
    for cpus in (0.0, 1.0):
        needs = Resources((Accelerator("G", 2 * MILLI),), cpus)
        ask = Ask("", (GroupAsk("g", 2, needs),), Topology(), Band.NORMAL, preempt=False)
        found = best_seats(columns, ask, ScoreWeights(), (0,), None)
        assert found is not None
        columns.take(found.seats, {"g": needs})
        columns.give_back(found.seats, {"g": needs})


class Choice(Struct, frozen=True):
    """One GPU model that the gang may use: which accelerator of its list that is, and how many."""

    index: int
    model: int
    gpus: int


class Seated(Struct, frozen=True):
    """Where the kernels put the gang."""

    cluster: str
    choice: int
    level: Level
    seats: tuple[Seat, ...]


def applies(columns: Columns, ask: Ask) -> bool:
    """Whether the kernels answer this question."""
    if columns.lookup is None or len(ask.groups) != 1:
        return False
    listed = ask.groups[0].resources.accelerators
    return bool(listed) and all(a.gpus_milli >= MILLI for a in listed)


def best_seats(
    columns: Columns, ask: Ask, weights: ScoreWeights, allowed: tuple[int, ...], cluster: str | None
) -> Seated | None:
    """The seats of least score, by the accelerators ``allowed`` (and in one ``cluster``, if given)."""
    index = columns.lookup
    assert index is not None
    choices = _choices(index, ask, allowed)
    if not choices:
        return None
    question = _question(columns, index, ask, weights, choices, cluster)
    if _is_limited(columns, ask):
        room = _room(columns, index, ask, choices)
        found = kernels.best_limited_plan(index.arrays, question, room)
    else:
        room = None
        found = kernels.best_plan(index.arrays, question)
    _, at_cluster, at_choice, level, place = found
    if at_cluster == NOWHERE:
        return None
    choice = choices[at_choice]
    if level == kernels.HOST_LEVEL:
        row = place
        if room is None:
            section = index.arrays.by_cluster[at_cluster, choice.model, 3, 0]
            row = kernels.first_with(index.arrays, section, place)
        rows, tasks = [int(row)], [question.tasks]
    else:
        if room is None:
            room = _room(columns, index, ask, choices)
        rows, tasks = _spread(index, question, room[at_choice], choice, place)
    seats = _seats(columns, ask, rows, tasks, choice.gpus)
    return Seated(index.clusters[at_cluster], choice.index, _level_of(columns, rows), seats)


def _choices(index: Index, ask: Ask, allowed: tuple[int, ...]) -> list[Choice]:
    """The models that the gang may use, in its order of preference; 'any' stands for all."""
    found = []
    listed = ask.groups[0].resources.accelerators
    for at in allowed:
        if at >= len(listed):
            continue
        wanted = listed[at]
        names = [wanted.model] if wanted.model is not None else sorted(index.models)
        gpus = wanted.gpus_milli // MILLI
        found += [Choice(at, index.models[name], gpus) for name in names if name in index.models]
    return found


def _question(
    columns: Columns,
    index: Index,
    ask: Ask,
    weights: ScoreWeights,
    choices: list[Choice],
    cluster: str | None,
) -> Question:
    fixed = fixed_cost(ask, weights)
    costs = [fixed if cluster in (None, name) else kernels.INFINITE for name in index.clusters]
    width = index.arrays.hist.shape[1]
    return Question(
        tasks=ask.groups[0].count,
        choice_model=np.array([c.model for c in choices], np.int64),
        choice_gpus=np.array([c.gpus for c in choices], np.int64),
        choice_cost=np.array([weights.speed * slowdown(ask, c.index) for c in choices]),
        level_cost=np.array([locality_cost(ask, weights, level) for level in Level]),
        cluster_cost=np.array(costs),
        stranded=weights.fragmentation * stranded_table(ask.mix, width),
    )


def _is_limited(columns: Columns, ask: Ask) -> bool:
    """Whether more than free GPUs limits where the gang may sit."""
    needs = ask.groups[0].resources
    return bool(needs.cpus > 0 or needs.memory_bytes > 0 or ask.avoid_hosts)


def _room(columns: Columns, index: Index, ask: Ask, choices: list[Choice]) -> Ints:
    """Tasks that each host could take (choices x hosts)."""
    needs = ask.groups[0].resources
    room: Ints = np.zeros((len(choices), len(columns.hosts)), np.int64)
    for at, choice in enumerate(choices):
        kernels.room_on(
            index.arrays,
            index.of_model[choice.model],
            choice.gpus,
            cpus_of(needs),
            float(needs.memory_bytes),
            columns.free_cpus,
            columns.free_memory,
            room[at],
        )
    for host in ask.avoid_hosts:
        if host in columns.index:
            room[:, columns.index[host]] = 0
    return room


def _spread(
    index: Index, question: Question, room: Ints, choice: Choice, section: int
) -> tuple[list[int], list[int]]:
    """The hosts of the winning section that are used, and how many tasks each takes."""
    arrays = index.arrays
    hosts = arrays.members[arrays.member_start[section] : arrays.member_start[section + 1]]
    taken: Ints = np.zeros(len(hosts), np.int64)
    kernels.seat(arrays, hosts, room, question.tasks, choice.gpus, question.stranded, taken)
    used = np.flatnonzero(taken)
    return hosts[used].tolist(), taken[used].tolist()


def _seats(
    columns: Columns, ask: Ask, rows: list[int], tasks: list[int], gpus: int
) -> tuple[Seat, ...]:
    """Seats in the order of hosts, each task on the lowest GPUs that are free."""
    group = ask.groups[0].name
    seats: list[Seat] = []
    for row, count in zip(rows, tasks, strict=True):
        free = np.flatnonzero(columns.slots(row) == MILLI).tolist()
        for i in range(count):
            slots = tuple(free[i * gpus : (i + 1) * gpus])
            seats.append(Seat(group, len(seats), columns.hosts[row].name, slots, MILLI))
    return tuple(seats)


def _level_of(columns: Columns, rows: list[int]) -> Level:
    """The tightest level with all the hosts in one domain."""
    for level in Level:
        numbers = columns.domain[level][rows]
        if bool((numbers == numbers[0]).all()):
            return level
    return Level.CLUSTER
