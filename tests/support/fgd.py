"""Fragmentation gradient descent, written from the paper (Weng et al., ATC '23): the peer of `topmast bench fill`.

A host's fragment for a task shape is what is free of its GPUs and cannot be given to a task of that shape: all of it if
CPUs, memory, model or GPUs do not do, else the GPUs on which a share does not fit. The host's fragmentation is the
expectation over the shapes of the whole list. A task goes to the host, and a share to the GPU, where that grows least; of those alike, to the one with least left, as the paper leaves open.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from topmast.model.fleet import Fleet
from topmast.model.job import MILLI, JobSpec

EASE = 1e-3
"""What is left of a host counts for so little that it only decides between hosts alike."""


@njit
def _fragment(free, count, cpus, memory, model, needs, right, weight):  # type: ignore[no-untyped-def]
    total = free[:count].sum()
    whole = (free[:count] == 1000).sum()
    found = 0.0
    for s in range(weight.shape[0]):
        milli = needs[s, 2]
        fits = milli > 0 and cpus >= needs[s, 0] and memory >= needs[s, 1] and right[s, model]
        if fits and milli >= 1000:
            useless = total if whole * 1000 < milli else total - whole * 1000
        elif fits:
            small = 0
            for k in range(count):
                small += free[k] if free[k] < milli else 0
            useless = small
        else:
            useless = total
        found += weight[s] * useless
    return found


@njit
def _fill(order, needs, right, weight, gpus, cpus, memory, model):  # type: ignore[no-untyped-def]
    hosts = gpus.shape[0]
    free = np.zeros((hosts, gpus.max()), np.int64)
    for h in range(hosts):
        free[h, : gpus[h]] = 1000
    now = np.zeros(hosts)
    most = (cpus.max(), memory.max())
    for h in range(hosts):
        now[h] = _fragment(free[h], gpus[h], cpus[h], memory[h], model[h], needs, right, weight)
    for s in order:
        milli = int(needs[s, 2])
        best, at_host, at_slot = np.inf, -1, -1
        for h in range(hosts):
            if cpus[h] < needs[s, 0] or memory[h] < needs[s, 1] or not right[s, model[h]]:
                continue
            for slot in range(gpus[h] if 0 < milli < 1000 else 1):
                after = free[h].copy()
                if not _take(after, gpus[h], milli, slot):
                    continue
                left = _fragment(
                    after,
                    gpus[h],
                    cpus[h] - needs[s, 0],
                    memory[h] - needs[s, 1],
                    model[h],
                    needs,
                    right,
                    weight,
                )
                growth = left - now[h]
                growth += EASE * (after.sum() / 8000 + (cpus[h] - needs[s, 0]) / most[0])
                growth += EASE * (memory[h] - needs[s, 1]) / most[1]
                if growth < best - 1e-9:
                    best, at_host, at_slot = growth, h, slot
        if at_host >= 0:
            h = at_host
            _take(free[h], gpus[h], milli, at_slot)
            cpus[h] -= needs[s, 0]
            memory[h] -= needs[s, 1]
            now[h] = _fragment(free[h], gpus[h], cpus[h], memory[h], model[h], needs, right, weight)
    return free.sum()


@njit
def _take(free, count, milli, slot):  # type: ignore[no-untyped-def]
    if milli < 1000:
        if free[slot] < milli:
            return False
        free[slot] -= milli
        return True
    wanted = milli // 1000
    if (free[:count] == 1000).sum() < wanted:
        return False
    for k in range(count):
        if wanted > 0 and free[k] == 1000:
            free[k] = 0
            wanted -= 1
    return True


def idle_by_fgd(specs: list[JobSpec], fleet: Fleet) -> float:
    """The part of the GPUs that stays idle when single tasks are placed so, in turn."""
    hosts = [h for r in fleet.regions for c in r.clusters for h in c.hosts]
    models = sorted({h.model for h in hosts})
    numbers: dict[object, int] = {}
    order, needs, right = [], [], []
    for spec in specs:
        task = spec.groups[0].resources
        milli = task.accelerators[0].gpus_milli if task.accelerators else 0
        names = frozenset(a.model for a in task.accelerators)
        key = (task.cpus, task.memory_bytes, milli, names)
        if key not in numbers:
            numbers[key] = len(numbers)
            needs.append((task.cpus, float(task.memory_bytes), float(milli)))
            right.append([not milli or None in names or model in names for model in models])
        order.append(numbers[key])
    free_milli = _fill(
        np.array(order),
        np.array(needs),
        np.array(right),
        np.bincount(order) / len(order),
        np.array([h.gpus for h in hosts]),
        np.array([h.cpus or np.inf for h in hosts]),
        np.array([float(h.memory_bytes) or np.inf for h in hosts]),
        np.array([models.index(h.model) for h in hosts]),
    )
    return float(free_milli) / MILLI / sum(fleet.gpus().values())
