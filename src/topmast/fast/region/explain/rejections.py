"""Why a region has no place for a gang: every host counted under one reason, cluster by cluster."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import numpy as np

from topmast.fast.preemption_cost import gpu_seconds, points
from topmast.fast.region.inventory.allocation import GOING, Allocation
from topmast.fast.region.inventory.columns import Bools, Columns, Ints, cpus_of
from topmast.fast.region.preemption.price import old_enough_s
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.fast.region.search.domains import Space, levels_of
from topmast.fast.region.search.packing import gpus_of_task
from topmast.fast.region.search.scoring import accelerators_of, choices_of
from topmast.model.engines import Capability
from topmast.model.job import MILLI
from topmast.model.plan import GroupRequest, PlacementRequest, Plan
from topmast.model.reason import ClusterVerdict, Count, PendingReason, Rejection, VictimVerdict

ON_THE_WAY = (
    Rejection.NOT_SUPPORTED,
    Rejection.NO_MATCHING_HARDWARE,
    Rejection.QUOTA,
    Rejection.HOST_UNAVAILABLE,
    Rejection.HOST_AVOIDED,
    Rejection.HOST_RESERVED,
    Rejection.TOO_FEW_GPUS,
    Rejection.TOO_FEW_CPUS,
    Rejection.TOO_LITTLE_MEMORY,
)
"""What a host is asked, in this order; the first that it fails excludes it."""
REASONS = (*ON_THE_WAY, Rejection.TOGETHER, Rejection.TOPOLOGY)
"""And the reasons for which a host that takes a task is no place for the gang."""
REASONS_KEPT = 1_000
UNABLE = {
    Capability.SHARES: "its engine gives no part of a GPU",
    Capability.IMAGES: "its engine runs no container images",
    Capability.ENV: "its engine gives tasks no variables of their hosts (env:NAME)",
}
"""Why a gang that needs a capability may not be in a cluster."""


class Verdicts:
    """What one search found, cluster by cluster. What clusters share is computed once."""

    def __init__(self, search: PreemptiveSearch, ask: PlacementRequest, *, preempt: bool) -> None:
        self.search = search
        self.ask = ask
        self.columns = search.columns
        self.preempt = preempt

    def of(self, cluster: str, found: Plan | None) -> ClusterVerdict:
        """The verdict on a cluster; ``found``: its best plan. O(hosts x choices x groups)."""
        rows = self.columns.clusters[cluster]
        roomy = roomy_hosts(self._empty, self.ask, rows)
        counts, fitting = self._count_hosts(rows, roomy, found)
        return ClusterVerdict(
            cluster=cluster,
            rejections=tuple(
                Count(reason, counts[reason], self._detail(reason, rows))
                for reason in sorted(counts)
            ),
            ever=bool(roomy.any()),
            free_gpus=self.columns.free_gpus_milli(rows) / MILLI,
            total_gpus=float(self.columns.gpus[rows].sum()),
            largest_gpus=_largest_gpus(self._empty, self.ask, rows),
            score=found.score if found else None,
            terms=found.terms if found else {},
            victims=tuple(v.job for v in found.victims) if found else (),
            hosts=len(rows),
            fitting_hosts=fitting,
            spared=self._count_spared(cluster) if found is None and roomy.any() else (),
            stopped=victims_of(self.search, found) if found else (),
        )

    def _detail(self, reason: Rejection, rows: Ints) -> str:
        """What the engine of a cluster with these rows cannot do, in words."""
        needs = self.ask.capabilities if reason is Rejection.NOT_SUPPORTED else ()
        return ", ".join(UNABLE[need] for need in needs if rows[0] in self.columns.unable[need])

    def barred(self, cluster: str, why: Rejection, detail: str) -> ClusterVerdict:
        """The verdict on a cluster of a region that is ruled out as a whole. O(hosts)."""
        rows = self.columns.clusters[cluster]
        return ClusterVerdict(
            cluster=cluster,
            rejections=(Count(why, len(rows), detail),) if len(rows) else (),
            ever=False,
            free_gpus=self.columns.free_gpus_milli(rows) / MILLI,
            total_gpus=float(self.columns.gpus[rows].sum()),
            hosts=len(rows),
        )

    @cached_property
    def _empty(self) -> Space:
        return emptied(self.columns, self.ask)

    @cached_property
    def _stage(self) -> Ints:
        """How many questions each host passes, by its best group and time slice (places)."""
        best: Ints = np.zeros(len(self.columns.hosts), dtype=np.int64)
        for group in self.ask.groups:
            passes = np.array(_passes(self.columns, self.ask, group))
            np.maximum(best, np.cumprod(passes, axis=0).sum(axis=0), out=best)
        return np.asarray(best.reshape(self.columns.slices, -1).max(axis=0), dtype=np.int64)

    def rejected(
        self, cluster: str, found: Plan | None, why_all: Rejection | None = None
    ) -> dict[str, Rejection]:
        """The hosts of a cluster that are rejected, with why; ``found``: its best plan.

        ``why_all``: it is ruled out as a whole.
        """
        rows, hosts = self.columns.clusters[cluster], self.columns.hosts
        if why_all is not None:
            return {hosts[row].name: why_all for row in rows.tolist()}
        why = self._reasons(rows, roomy_hosts(self._empty, self.ask, rows), found)
        return {
            hosts[row].name: REASONS[at]
            for row, at in zip(rows.tolist(), why.tolist(), strict=True)
            if at < len(REASONS)
        }

    def _reasons(self, rows: Ints, roomy: Bools, found: Plan | None) -> Ints:
        """For each host the first of `REASONS` that excludes it, or one more than these (rows)."""
        why = self._stage[rows]
        takes_a_task = why == len(ON_THE_WAY)
        if found is not None:
            why[takes_a_task] = len(REASONS)
        else:
            why[takes_a_task & ~roomy] = len(ON_THE_WAY) + 1
        return why

    def _count_hosts(
        self, rows: Ints, roomy: Bools, found: Plan | None
    ) -> tuple[Counter[Rejection], int]:
        """Each host under the first reason that excludes it; and how many nothing excludes."""
        found_by = np.bincount(self._reasons(rows, roomy, found), minlength=len(REASONS) + 1)
        *counts, fitting = found_by.tolist()
        return +Counter(dict(zip(REASONS, counts, strict=True))), fitting

    def _count_spared(self, cluster: str) -> tuple[Count, ...]:
        """Running jobs that may not be stopped for this one (yet), by the first reason."""
        if not self.preempt:
            return ()
        held = self.search.allocations.values()
        reasons = Counter(self._spares(a) for a in held if a.plan.cluster == cluster)
        return tuple(Count(r, reasons[r]) for r in sorted(r for r in reasons if r is not None))

    def _spares(self, allocation: Allocation) -> Rejection | None:
        if allocation.hold not in GOING:
            return Rejection.STOPPING
        if allocation.band >= self.ask.band:
            return Rejection.BAND_NOT_LOWER
        if not allocation.spec.preemptible:
            return Rejection.NOT_PREEMPTIBLE
        old = old_enough_s(allocation, self.search.profile) <= self.search.now
        return None if old else Rejection.VICTIMS_TOO_YOUNG


def victims_of(search: PreemptiveSearch, plan: Plan) -> tuple[VictimVerdict, ...]:
    """The victims of a plan, what each loses and how it is priced. O(victims)."""
    restart_s, per_gpu_hour = search.profile.restart_cost_s, search.profile.score.preemption
    found = []
    for victim in plan.victims:
        held = search.allocations.get(victim.job)
        if held is None or held.epoch != victim.epoch:
            continue  # it has let go meanwhile
        found.append(
            VictimVerdict(
                job=victim.job,
                tenant=held.spec.tenant,
                band=held.band.name.lower(),
                lost_gpu_s=gpu_seconds(held.lost_s(search.now), held.plan.gpus_milli),
                restart_gpu_s=gpu_seconds(restart_s, held.plan.gpus_milli),
                price=points(victim.lost_gpu_s, per_gpu_hour),
            )
        )
    return tuple(found)


def hardware_key(ask: PlacementRequest) -> tuple[object, ...]:
    """What decides `pending_reason` on given hosts."""
    return ask.groups, ask.topology.required, ask.models, ask.needs


def pending_reason(columns: Columns, ask: PlacementRequest) -> PendingReason:
    """Why no plan exists now: the hardware is not there, could never hold the gang, or is busy.

    What is free does not matter for that, so that it is found once for all gangs alike. O(1) then.
    """
    kind = hardware_key(ask)
    reason = columns.reasons.get(kind)
    if reason is None:
        if len(columns.reasons) >= REASONS_KEPT:
            columns.reasons.clear()
        reason = columns.reasons[kind] = _reason(columns, ask)
    return reason


def _reason(columns: Columns, ask: PlacementRequest) -> PendingReason:
    empty = emptied(columns, ask)
    if any(roomy_hosts(empty, ask, rows).any() for rows in columns.clusters.values()):
        return PendingReason.INSUFFICIENT_CAPACITY
    for choice in choices_of(ask):
        if all(bool(empty.room(g.resources, choice).any()) for g in ask.groups):
            return PendingReason.TOPOLOGY_DOES_NOT_FIT
    return PendingReason.NO_MATCHING_HARDWARE


def emptied(columns: Columns, ask: PlacementRequest) -> Space:
    """The hosts that could ever run the gang, with nothing on them and all of them healthy."""
    return Space(columns.empty(), columns.unfit(ask))


def roomy_hosts(space: Space, ask: PlacementRequest, rows: Ints) -> Bools:
    """Which hosts of a cluster (rows) stand in a domain that could take each group of the gang.

    Of the widest level allowed: it has room if a tighter one in it has. O(rows x choices x groups).
    """
    roomy = np.zeros(len(rows), dtype=np.bool_)
    if len(rows):
        numbers = _domain_of(space.columns, ask, rows)
        for choice in choices_of(ask):
            enough = np.ones(int(numbers.max()) + 1, dtype=np.bool_)
            for group in ask.groups:
                room = space.room(group.resources, choice)[rows]
                enough &= np.bincount(numbers, weights=room) >= group.count
            roomy |= enough[numbers]
    return roomy


def _largest_gpus(empty: Space, ask: PlacementRequest, rows: Ints) -> float:
    best = 0
    for choice in choices_of(ask) if len(rows) else ():
        group = max(ask.groups, key=lambda g: gpus_of_task(g.resources, choice))
        room = empty.room(group.resources, choice)[rows]
        most = int(np.bincount(_domain_of(empty.columns, ask, rows), weights=room).max())
        best = max(best, most * gpus_of_task(group.resources, choice))
    return best / MILLI


def _domain_of(columns: Columns, ask: PlacementRequest, rows: Ints) -> Ints:
    """The domains of hosts at the widest level that the gang may span, numbered from 0 (rows)."""
    numbers = columns.domain[levels_of(ask)[-1]][rows]
    return np.asarray(numbers - numbers.min(), dtype=np.int64)


def _passes(columns: Columns, ask: PlacementRequest, group: GroupRequest) -> list[Bools]:
    """Hosts that pass each question of `ON_THE_WAY` for a task of a group (questions x hosts)."""
    resources, count = group.resources, len(columns.hosts)
    has, may, free = (np.zeros(count, dtype=np.bool_) for _ in range(3))
    for choice in range(max(1, len(accelerators_of(ask)))):
        milli = gpus_of_task(resources, choice)
        listed = resources.accelerators
        model = listed[min(choice, len(listed) - 1)].model if listed else None
        usable = columns.gpus * MILLI >= milli
        if model is not None:
            usable &= np.asarray(columns.models == model, dtype=np.bool_)
        has |= usable
        if choice in choices_of(ask):
            may |= usable
            free |= usable & _has_slots(columns, milli)
    avoided = np.zeros(count, dtype=np.bool_)
    avoided[columns.rows_of(ask.avoid_hosts)] = True
    reserved = np.zeros(count, dtype=np.bool_)
    reserved[columns.rows_of(ask.reserved or ())] = True
    able = np.ones(count, dtype=np.bool_)
    able[columns.unfit(ask)] = False
    cpus = columns.free_cpus + 1e-9 >= cpus_of(resources)
    memory = columns.free_memory >= resources.memory_bytes
    return [able, has, may, columns.available, ~avoided, ~reserved, free, cpus, memory]


def _has_slots(columns: Columns, milli: int) -> Bools:
    """Which hosts have GPUs free for one task (hosts)."""
    if milli == 0:
        return np.ones(len(columns.hosts), dtype=np.bool_)
    if milli < MILLI:
        return columns.shares_free(milli) > 0
    return columns.whole_free() * MILLI >= milli
