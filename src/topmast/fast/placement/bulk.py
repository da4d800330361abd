"""Many equal jobs in one kernel call, each on the GPUs that those before it left.

For gangs that nothing but free GPUs limits (no CPUs, memory or hosts to avoid). The answers are those of one
question after another at the same prices; the slots are taken and the index is kept, but nobody is entered
as their holder.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topmast.fast.placement.holdings import Holdings, refresh
from topmast.fast.placement.jit import inner, kernel
from topmast.fast.placement.kernels import (
    F64,
    HOST_LEVEL,
    I64,
    INFINITE,
    MILLI,
    NOWHERE,
    Arrays,
    Question,
    best_in_cluster,
    first_with,
    seat,
)


class Table(NamedTuple):
    """The best place in each cluster (C): what a gang taken in one of them leaves as it was in all others."""

    score: F64
    choice: I64
    level: I64
    place: I64


@kernel
def place_singles(a: Arrays, h: Holdings, q: Question, count: int, hosts: I64) -> int:
    """Place up to ``count`` equal one-task jobs, one after the other, each taking its lowest free GPUs.

    Writes the host of each to ``hosts`` (count) and returns how many found a place.
    O(one `best_plan` + count * (C + choices * W + hosts of a cluster)).
    """
    table = _table(a, q)
    for n in range(count):
        cluster = _first_best(table.score)
        if cluster == NOWHERE:
            return n
        model = q.choice_model[table.choice[cluster]]
        host = first_with(a, a.by_cluster[cluster, model, 3, 0], table.place[cluster])
        _take(a, h, host, q.choice_gpus[table.choice[cluster]])
        _note(a, q, table, cluster)
        hosts[n] = host
    return count


@kernel
def place_gangs(
    a: Arrays, h: Holdings, q: Question, count: int, hosts: I64, tasks: I64, room: I64
) -> int:
    """Place up to ``count`` equal gangs, one after the other; returns how many found a place.

    Gang n puts ``tasks[n, i]`` tasks on ``hosts[n, i]`` (count x tasks of a gang), in the order of hosts
    and NOWHERE after the last. ``room`` (H) is there to work in.
    O(one `best_plan` + count * (C + sections of a cluster * W + hosts of a section + one `seat`)).
    """
    table = _table(a, q)
    hosts[:] = NOWHERE
    tasks[:] = 0
    for n in range(count):
        cluster = _first_best(table.score)
        if cluster == NOWHERE:
            return n
        choice, place = table.choice[cluster], table.place[cluster]
        gpus = q.choice_gpus[choice]
        if table.level[cluster] == HOST_LEVEL:
            hosts[n, 0] = first_with(a, a.by_cluster[cluster, q.choice_model[choice], 3, 0], place)
            tasks[n, 0] = q.tasks
            _take(a, h, hosts[n, 0], gpus * q.tasks)
        else:
            _spread(a, h, q, gpus, place, hosts[n], tasks[n], room)
        _note(a, q, table, cluster)
    return count


@inner
def _table(a: Arrays, q: Question) -> Table:
    clusters = a.by_cluster.shape[0]
    whole = np.zeros((3, clusters), np.int64)
    table = Table(np.empty(clusters), whole[0], whole[1], whole[2])
    for cluster in range(clusters):
        _note(a, q, table, cluster)
    return table


@inner
def _note(a: Arrays, q: Question, table: Table, cluster: int) -> None:
    """Find the best place in one cluster anew."""
    score, choice, level, place = best_in_cluster(a, q, cluster, INFINITE)
    table.score[cluster], table.choice[cluster] = score, choice
    table.level[cluster], table.place[cluster] = level, place


@inner
def _first_best(score: F64) -> int:
    """The first cluster of the lowest score; NOWHERE if all are infinite."""
    best, at = INFINITE, NOWHERE
    for cluster in range(score.shape[0]):
        if score[cluster] < best:
            best, at = score[cluster], cluster
    return at


@inner
def _spread(
    a: Arrays, h: Holdings, q: Question, gpus: int, section: int, hosts: I64, tasks: I64, room: I64
) -> None:
    """Seat a gang on the hosts of a section at the least change in stranded GPUs."""
    members = a.members[a.member_start[section] : a.member_start[section + 1]]
    taken = room[members]
    for host in members:
        room[host] = a.whole[host] // gpus if a.available[host] else 0
    seat(a, members, room, q.tasks, gpus, q.stranded, taken)
    used = 0
    for i in range(members.shape[0]):
        if taken[i] > 0:
            hosts[used], tasks[used] = members[i], taken[i]
            used += 1
            _take(a, h, members[i], gpus * taken[i])


@inner
def _take(a: Arrays, h: Holdings, host: int, gpus: int) -> None:
    """Hold a host's lowest wholly free GPUs. O(its slots and entries)."""
    slot = a.offset[host]
    while gpus > 0:
        if a.free_milli[slot] == MILLI:
            a.free_milli[slot] = 0
            gpus -= 1
        slot += 1
    refresh(a, h, host)
