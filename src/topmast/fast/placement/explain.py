"""Why a region has no place for a gang: every host's rejection counted, cluster by cluster."""

from __future__ import annotations

from collections import Counter

import numpy as np

from topmast.fast.placement.columns import Columns, Ints, cpus_of, tasks_per_host
from topmast.fast.placement.packing import capacity_by_group, gpus_of_task
from topmast.fast.placement.search import Search, choices_of, domains, levels_of
from topmast.model.job import MILLI, Band, Resources
from topmast.model.plan import Ask, GroupAsk, Plan
from topmast.model.reason import ClusterVerdict, Count, PendingReason, Rejection

REASONS_KEPT = 1_000


def verdict(search: Search, ask: Ask, cluster: str, found: Plan | None) -> ClusterVerdict:
    """What the search found in one cluster, ``found`` being its best plan. O(hosts x choices + domains)."""
    columns = search.columns
    rows = columns.clusters[cluster]
    counts = _count_hosts(columns, ask, rows)
    ever = fits_when_empty(columns, ask, cluster)
    if found is None and not counts:
        # Each host takes some task, but no domain takes them all.
        counts[Rejection.TOO_FEW_GPUS if ever else Rejection.TOPOLOGY] = len(rows)
    if found is None and ever and ask.band > Band.OPPORTUNISTIC:
        counts.update(_count_spared(search, ask, cluster))
    return ClusterVerdict(
        cluster=cluster,
        rejections=tuple(Count(reason, counts[reason]) for reason in sorted(counts)),
        ever=ever,
        free_gpus=columns.free_gpus_milli(rows) / MILLI,
        total_gpus=float(columns.gpus[rows].sum()),
        largest_gpus=largest_gpus(columns, ask, cluster),
        score=found.score if found else None,
        terms=found.terms if found else {},
        victims=tuple(v.job for v in found.victims) if found else (),
    )


def pending_reason(columns: Columns, ask: Ask) -> PendingReason:
    """Why no plan exists now: the hardware is not there, could never hold the gang, or is busy.

    What is free does not matter for that, so that it is found once for all gangs alike. O(1) then.
    """
    kind = (ask.groups, ask.topology.required, ask.models)
    reason = columns.reasons.get(kind)
    if reason is None:
        if len(columns.reasons) >= REASONS_KEPT:
            columns.reasons.clear()
        reason = columns.reasons[kind] = _reason(columns, ask)
    return reason


def _reason(columns: Columns, ask: Ask) -> PendingReason:
    empty = columns.empty()
    clusters = sorted(columns.clusters)
    if any(fits_when_empty(empty, ask, cluster) for cluster in clusters):
        return PendingReason.INSUFFICIENT_CAPACITY
    for choice in choices_of(ask):
        rooms = [tasks_per_host(empty, g.resources, choice) for g in ask.groups]
        if all(bool(room.any()) for room in rooms):
            return PendingReason.TOPOLOGY_DOES_NOT_FIT
    return PendingReason.NO_MATCHING_HARDWARE


def fits_when_empty(columns: Columns, ask: Ask, cluster: str) -> bool:
    """Whether some domain of the cluster could hold the gang with nothing else on it."""
    empty = columns.empty()
    capacities = {c: capacity_by_group(empty, ask.groups, c) for c in choices_of(ask)}
    return any(d.cluster == cluster for d in domains(empty, ask, capacities))


def largest_gpus(columns: Columns, ask: Ask, cluster: str) -> float:
    """The most GPUs that a gang of the first group's tasks could hold, within the topology asked."""
    empty = columns.empty()
    level = levels_of(ask)[-1]
    rows = columns.clusters[cluster]
    best = 0
    for choice in choices_of(ask):
        group = max(ask.groups, key=lambda g: gpus_of_task(g.resources, choice))
        room = tasks_per_host(empty, group.resources, choice)[rows]
        _, numbers = np.unique(columns.domain[level][rows], return_inverse=True)
        most = int(np.bincount(numbers, weights=room).max()) if len(rows) else 0
        best = max(best, most * gpus_of_task(group.resources, choice))
    return best / MILLI


def _count_hosts(columns: Columns, ask: Ask, rows: Ints) -> Counter[Rejection]:
    """One rejection for every host that takes no task of the hungriest group; the rest fit."""
    group = max(ask.groups, key=lambda g: gpus_of_task(g.resources, 0))
    counts: Counter[Rejection] = Counter()
    for row in rows.tolist():
        why = _rejection(columns, ask, group, row)
        if why is not None:
            counts[why] += 1
    return counts


def _count_spared(search: Search, ask: Ask, cluster: str) -> Counter[Rejection]:
    """Attempts that hold what the gang wants and may not be stopped for it (yet)."""
    running = [a for a in search.allocations.values() if a.plan.cluster == cluster]
    lower = [a for a in running if a.band < ask.band and a.spec.preemptible]
    min_runtime_s = search.profile.min_runtime_s
    young = [a for a in lower if a.start_s + min_runtime_s > search.now]
    if young:
        return Counter({Rejection.VICTIMS_TOO_YOUNG: len(young)})
    return Counter({Rejection.NO_VICTIMS: len(running)}) if running and not lower else Counter()


def _rejection(columns: Columns, ask: Ask, group: GroupAsk, row: int) -> Rejection | None:
    host = columns.hosts[row]
    usable = [c for c in choices_of(ask) if _model_fits(group.resources, c, host.model, host.gpus)]
    if not usable:
        return Rejection.NO_MATCHING_HARDWARE
    if not columns.available[row]:
        return Rejection.HOST_UNAVAILABLE
    if host.name in ask.avoid_hosts:
        return Rejection.HOST_AVOIDED
    if not any(_slots_fit(columns, group.resources, c, row) for c in usable):
        return Rejection.TOO_FEW_GPUS
    if columns.free_cpus[row] < cpus_of(group.resources):
        return Rejection.TOO_FEW_CPUS
    if columns.free_memory[row] < group.resources.memory_bytes:
        return Rejection.TOO_LITTLE_MEMORY
    return None


def _model_fits(resources: Resources, choice: int, model: str, gpus: int) -> bool:
    listed = resources.accelerators
    if not listed:
        return True
    wanted = listed[min(choice, len(listed) - 1)]
    enough = gpus * MILLI >= wanted.gpus_milli
    return enough and wanted.model in (None, model)


def _slots_fit(columns: Columns, resources: Resources, choice: int, row: int) -> bool:
    milli = gpus_of_task(resources, choice)
    free = columns.slots(row)
    if milli >= MILLI:
        return int((free == MILLI).sum()) * MILLI >= milli
    return milli == 0 or bool((free >= milli).any())
