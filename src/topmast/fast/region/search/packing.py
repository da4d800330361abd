"""Seating a gang on the hosts of one topology domain."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from topmast.fast.region.inventory.columns import (
    CPU_DECIMALS,
    Columns,
    Ints,
    cpus_of,
)
from topmast.fast.region.inventory.room import choose_slots, tasks_per_host
from topmast.model.job import MILLI, Level, Resources
from topmast.model.plan import GroupRequest, Seat


class Seated(Struct, frozen=True, gc=False):
    """Where a gang would sit."""

    cluster: str
    choice: int
    level: Level
    seats: tuple[Seat, ...]
    time_slice: int


def gpus_of_task(resources: Resources, choice: int) -> int:
    """Thousandths of GPUs of one task under the ``choice``-th accelerator."""
    listed = resources.accelerators
    return listed[min(choice, len(listed) - 1)].gpus_milli if listed else 0


def seat_gang(
    columns: Columns, rows: Ints, groups: tuple[GroupRequest, ...], choice: int
) -> tuple[Seat, ...] | None:
    """Seat every task of the gang on ``rows`` (host numbers), or none.

    The hungriest group sits first. A group fills the hosts that take most of its tasks; the rest
    go to the host that they fit best. Ranks follow the order of the groups. A gang of one group
    is seated whenever it fits. O(slots of the region + tasks).
    """
    trial = columns.trial()
    hungriest_first = sorted(
        range(len(groups)), key=lambda i: (-gpus_of_task(groups[i].resources, choice), i)
    )
    places: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for i in hungriest_first:
        spread = _spread(trial, rows, groups[i], choice)
        if spread is None:
            return None
        places[i] = [(row, _occupy(trial, row, groups[i].resources, choice)) for row in spread]
    seats: list[Seat] = []
    for i, group in enumerate(groups):
        milli = min(gpus_of_task(group.resources, choice), MILLI) or MILLI
        for row, slots in places[i]:
            seats.append(Seat(group.name, len(seats), columns.hosts[row].name, slots, milli))
    return tuple(seats)


def _spread(columns: Columns, rows: Ints, group: GroupRequest, choice: int) -> list[int] | None:
    """The host of every task of one group: fullest first, the remainder by best fit."""
    room = tasks_per_host(columns, group.resources, choice)[rows]
    room = np.where(columns.available[rows], room, 0)
    if int(room.sum()) < group.count:
        return None
    left = group.count
    spread: list[int] = []
    by_room = np.argsort(-room, kind="stable")
    for place, at in enumerate(by_room.tolist()):
        here = int(room[at])
        if here < left:
            spread.extend([int(rows[at])] * here)
            left -= here
            continue
        # Of the hosts not yet used that hold the remainder, the one with least room to spare.
        fitting = [other for other in by_room[place:].tolist() if room[other] >= left]
        best = min(fitting, key=lambda other: (int(room[other]), other))
        return spread + [int(rows[best])] * left
    return None


def _occupy(trial: Columns, row: int, resources: Resources, choice: int) -> tuple[int, ...]:
    """Take the resources of one task from ``trial``; returns its slots."""
    milli = gpus_of_task(resources, choice)
    slots = choose_slots(trial, row, milli)
    if slots is None:
        raise AssertionError("a host was counted as having room that it has not")
    view = trial.slots(row)
    for slot in slots:
        view[slot] -= min(milli, MILLI)
    trial.free_cpus[row] = round(trial.free_cpus[row] - cpus_of(resources), CPU_DECIMALS)
    trial.free_memory[row] -= resources.memory_bytes
    return slots
