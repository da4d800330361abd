"""Many equal jobs in one kernel call, each on the GPUs that those before it left.

For gangs that nothing but free GPUs limits (no CPUs, memory or hosts to avoid). The answers are those of one
question after another at the same prices; the slots are taken and the index is kept, but nobody is entered
as their holder.
"""

from __future__ import annotations

from numba import njit

from topmast.fast.placement.holdings import Holdings, refresh
from topmast.fast.placement.kernels import (
    HOST_LEVEL,
    I64,
    MILLI,
    NOWHERE,
    Arrays,
    Question,
    best_plan,
    first_with,
    seat,
)


@njit(cache=True, nogil=True)
def place_singles(a: Arrays, h: Holdings, q: Question, count: int, hosts: I64) -> int:
    """Place up to ``count`` equal one-task jobs, one after the other, each taking its lowest free GPUs.

    Writes the host of each to ``hosts`` (count) and returns how many found a place.
    O(count * one `best_plan`).
    """
    for n in range(count):
        _, cluster, choice, _, free = best_plan(a, q)
        if cluster == NOWHERE:
            return n
        host = first_with(a, a.by_cluster[cluster, q.choice_model[choice], 3, 0], free)
        _take(a, h, host, q.choice_gpus[choice])
        hosts[n] = host
    return count


@njit(cache=True, nogil=True)
def place_gangs(
    a: Arrays, h: Holdings, q: Question, count: int, hosts: I64, tasks: I64, room: I64
) -> int:
    """Place up to ``count`` equal gangs, one after the other; returns how many found a place.

    Gang n puts ``tasks[n, i]`` tasks on ``hosts[n, i]`` (count x tasks of a gang), in the order of hosts
    and NOWHERE after the last. ``room`` (H) is there to work in.
    O(count * (one `best_plan` + hosts of the section taken + one `seat`)).
    """
    for n in range(count):
        _, cluster, choice, level, place = best_plan(a, q)
        if cluster == NOWHERE:
            return n
        gpus = q.choice_gpus[choice]
        hosts[n, :] = NOWHERE
        tasks[n, :] = 0
        if level == HOST_LEVEL:
            hosts[n, 0] = first_with(a, a.by_cluster[cluster, q.choice_model[choice], 3, 0], place)
            tasks[n, 0] = q.tasks
            _take(a, h, hosts[n, 0], gpus * q.tasks)
        else:
            _spread(a, h, q, gpus, place, hosts[n], tasks[n], room)
    return count


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _take(a: Arrays, h: Holdings, host: int, gpus: int) -> None:
    """Hold a host's lowest wholly free GPUs. O(its slots and entries)."""
    slot = a.offset[host]
    while gpus > 0:
        if a.free_milli[slot] == MILLI:
            a.free_milli[slot] = 0
            gpus -= 1
        slot += 1
    refresh(a, h, host)
