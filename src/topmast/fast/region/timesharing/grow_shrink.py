"""Elastic gangs where gangs share GPUs: they grow onto idle GPUs, and shrink to GPUs of their own.

Gandiva (OSDI '18): grow-shrink. GPUs are idle only if they are free in every slice, so that a gang
grows over no other. A grown gang with others laid over it goes on with fewer tasks, on GPUs of its
own, and the others have theirs: two that take turns on the same GPUs do the work of one, and two on
halves of them that of both.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from topmast.fast.region.inventory.allocation import GOING, Allocation
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.preemption.shrinking import elastic_of, of_size, speed, tasks_of
from topmast.fast.region.search.search import Search
from topmast.fast.region.search.sizes import largest
from topmast.fast.region.timesharing.packing_candidates import SharingSnapshot, Slot, slots_of
from topmast.model.job import MILLI, speed_of_size
from topmast.model.plan import Plan
from topmast.policies.base import SizesView
from topmast.policies.options import Profile


class Resize(Struct, frozen=True):
    """A gang that could go on with another number of tasks."""

    allocation: Allocation
    to: Plan
    gained: float
    """GPUs at work more than now, in the mean."""
    age_s: float
    """The age of the youngest of the gang and ``others``."""
    others: tuple[str, ...] = ()
    """The other gangs that it takes turns with."""
    crowd: int = 1
    """How many gangs take turns on its GPUs now."""


def idle_only(columns: Columns, allocation: Allocation | None = None) -> Columns:
    """A copy with free GPUs only where none, or only this gang, holds them; all in the first slice.

    O(slots).
    """
    trial = columns.trial()
    if allocation is not None:
        trial.release((allocation,))
    free = trial.free_milli.reshape(columns.slices, -1)
    idle = (free == MILLI).all(axis=0)
    free[0] = np.where(idle, MILLI, 0)
    free[1:] = 0
    trial.available[columns.places :] = False
    free[0, np.repeat(~trial.available[: columns.places], columns.gpus[: columns.places])] = 0
    return trial


def place_of_size(
    search: Search, allocation: Allocation, sizes: tuple[int, int], avoid: tuple[str, ...] = ()
) -> Plan | None:
    """The place for the most tasks within bounds, in a search's columns. O(log tasks) searches."""
    ask = replace(of_size(search.columns, allocation, *sizes), avoid_hosts=avoid)
    return largest(ask, lambda one: search.best(one))


def larger(
    search: Search, allocation: Allocation, most: int, avoid: tuple[str, ...]
) -> Resize | None:
    """Where a gang with GPUs of its own could have more tasks, on idle GPUs. O(log tasks) searches.

    The gain is the time saved over the time left (1 - before / after), times the GPUs that it has.
    """
    tasks = tasks_of(allocation)
    if most <= tasks:
        return None
    to = place_of_size(search, allocation, (tasks + 1, most), avoid)
    if to is None:
        return None
    faster = speed(search.profile, allocation, to) / speed(search.profile, allocation)
    gained = gpus_of(allocation) * (1.0 - 1.0 / faster)
    return Resize(allocation, to, gained, search.now - allocation.start_s)


def smaller(
    scene: SharingSnapshot,
    search: Search,
    allocation: Allocation,
    held: Iterable[Allocation],
    avoid: tuple[str, ...],
) -> Resize | None:
    """Where a gang that shares GPUs could go on alone, with no more tasks; None while others move.

    It gives up tasks beyond its request to any gang; of the others as many as leave it no slower
    than turns do. O(gangs x slots), and log tasks searches.
    """
    others = _others_on_gpus_of(scene, allocation, held)
    if not others:
        return None
    tasks, crowd = tasks_of(allocation), scene.crowd(allocation)
    to = place_of_size(
        search, allocation, (_fewest(search.profile, allocation, crowd), tasks), avoid
    )
    if to is None:
        return None
    before = speed(search.profile, allocation)
    own = gpus_of(allocation) * (speed(search.profile, allocation, to) / before - 1.0 / crowd)
    gained = own + sum([gpus_of(a) * (1.0 / after - 1.0 / scene.crowd(a)) for a, after in others])
    concerned = [allocation.start_s, *(a.start_s for a, _ in others)]
    names = tuple(a.job for a, _ in others)
    return Resize(allocation, to, gained, search.now - max(concerned), names, crowd)


def view_of(found: list[Resize], profile: Profile) -> SizesView:
    """Columns over gangs that could change their size."""
    return SizesView(
        gpus=np.array([gpus_of(r.allocation) for r in found], np.float64),
        gained=np.array([r.gained for r in found], np.float64),
        grows=np.array([not r.others for r in found], np.bool_),
        age_s=np.array([r.age_s for r in found], np.float64),
        cost_s=np.full(len(found), profile.restart_cost_s),
    )


def why_resized(resize: Resize) -> str:
    """Why a gang goes on with another number of tasks, in words."""
    name = elastic_of(resize.allocation).name
    before, after = tasks_of(resize.allocation), resize.to.tasks_of(name)
    if after > before:
        return f"grows from {before} to {after} tasks"
    rest = ", ".join(resize.others[:3]) + (", ..." if len(resize.others) > 3 else "")
    if after == before:
        return f"moved, so that it and {rest} have GPUs of their own"
    return f"shrinks from {before} to {after} tasks, so that it and {rest} have GPUs of their own"


def keeps_size(resize: Resize) -> bool:
    """Whether a gang moves with all of its tasks."""
    elastic = elastic_of(resize.allocation)
    return resize.to.tasks_of(elastic.name) == tasks_of(resize.allocation)


def gpus_of(allocation: Allocation) -> float:
    """The GPUs of a gang."""
    return allocation.plan.gpus_milli / MILLI


def _fewest(profile: Profile, allocation: Allocation, crowd: int) -> int:
    """The fewest tasks with which a gang that took turns may go on alone. O(tasks)."""
    elastic, tasks = elastic_of(allocation), tasks_of(allocation)
    in_turns = speed(profile, allocation) / crowd
    sizes = range(elastic.least, min(elastic.count, tasks))
    enough = (n for n in sizes if speed_of_size(elastic, n, profile.elastic.efficiency) >= in_turns)
    return next(enough, min(elastic.count, tasks))


def _others_on_gpus_of(
    scene: SharingSnapshot, allocation: Allocation, held: Iterable[Allocation]
) -> list[tuple[Allocation, int]]:
    """The gangs on GPUs of one, each with its most crowded GPU's number of gangs without it.

    None while others come there or go. O(gangs x slots).
    """
    mine: dict[Slot, bool] = dict.fromkeys(slots_of(allocation), True)
    if any(slot in scene.awaited for slot in mine):
        return []
    found = []
    for other in held:
        if other.job == allocation.job:
            continue
        slots = slots_of(other)
        if not any(slot in mine for slot in slots):
            continue
        if other.hold not in GOING:
            return []
        found.append((other, max([scene.sharing[s] - (s in mine) for s in slots])))
    return found
