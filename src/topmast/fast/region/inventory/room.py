"""What room hosts have for tasks: how many, on which GPUs, and how near to one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topmast.fast.region.inventory.columns import UNLIMITED, Columns, Ints, cpus_of
from topmast.model.job import MILLI, Level, Resources


def level_of(columns: Columns, rows: list[int]) -> Level:
    """The tightest level with all the hosts in one domain."""
    if len(rows) == 1:
        return Level.HOST
    for level in Level:
        numbers = columns.domain[level][rows]
        if bool((numbers == numbers[0]).all()):
            return level
    return Level.CLUSTER


def tasks_per_host(columns: Columns, resources: Resources, choice: int) -> Ints:
    """How many tasks each host could take now, by resources alone (hosts). O(slots).

    ``choice`` is the accelerator tried; a group that lists fewer tries its last.
    """
    count = len(columns.hosts)
    fits: NDArray[Any] = np.full(count, UNLIMITED)
    if resources.accelerators:
        wanted = resources.accelerators[min(choice, len(resources.accelerators) - 1)]
        if wanted.gpus_milli >= MILLI:
            fits = columns.whole_free() // (wanted.gpus_milli // MILLI) * 1.0
        else:
            fits = columns.shares_free(wanted.gpus_milli) * 1.0
        if wanted.model is not None:
            fits = np.where(columns.models == wanted.model, fits, 0.0)
    if resources.cpus > 0:
        room = np.clip(columns.free_cpus, 0, None) + 1e-9  # or 0.3 holds 0.1 but twice
        by_cpus = np.floor(room / cpus_of(resources))
        fits = np.where(by_cpus < fits, by_cpus, fits)
    if resources.memory_bytes > 0:
        by_memory = np.floor(np.clip(columns.free_memory, 0, None) / resources.memory_bytes)
        fits = np.where(by_memory < fits, by_memory, fits)
    return np.asarray(np.minimum(fits, 1 << 40), dtype=np.int64)


def choose_slots(columns: Columns, row: int, gpus_milli: int) -> tuple[int, ...] | None:
    """Slots for one more task on a host: the lowest whole ones, or the fullest with the share."""
    free = columns.slots(row)
    if gpus_milli == 0:
        return ()
    if gpus_milli >= MILLI:
        whole: Sequence[int] = np.flatnonzero(free == MILLI).tolist()
        need = gpus_milli // MILLI
        return tuple(whole[:need]) if len(whole) >= need else None
    fitting = np.flatnonzero(free >= gpus_milli)
    if not len(fitting):
        return None
    return (int(fitting[np.argmin(free[fitting])]),)
