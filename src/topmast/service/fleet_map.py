"""The map of the fleet: drawn region by region between commits, and kept for many readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from topmast.adapters.handing import handed
from topmast.fast.queue import GlobalQueue
from topmast.fast.region import RegionalPlacer
from topmast.model.job import MILLI, Band
from topmast.model.map_views import ClusterCells, FleetMap, HolderView, HostCells, RegionCells
from topmast.model.plan import Seat
from topmast.ports import Clock
from topmast.runtime.loop import Runtime
from topmast.service.fleet import STOPPED, Processes, closed_why
from topmast.service.redaction import HIDDEN_TENANT

LEAST_KEPT_S = 1.0
REST = 50.0
"""A map is kept for so many times what it took, so that readers cost the decisions 2% at most."""


_BANDS = {band: band.name.lower() for band in Band}


class FleetMaps:
    """Draws the map for all readers together."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        process_of: Processes,
        elapsed_s: Callable[[], float],
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._process_of = process_of
        self._elapsed_s = elapsed_s
        self._drawing = asyncio.Lock()
        self._kept: FleetMap | None = None
        self._fresh_until_s = 0.0
        self._took_s = 0.0
        """By the questions of the last map, without what they waited for."""

    async def now(
        self, placers: Callable[[], Mapping[str, RegionalPlacer]], absent: Collection[str]
    ) -> FleetMap:
        """The map as it is, or was a moment ago."""
        async with self._drawing:
            begun_s = self._elapsed_s()
            if self._kept is not None and begun_s < self._fresh_until_s:
                return self._kept
            self._took_s = 0.0
            self._kept = await self._drawn(placers(), absent)
            rest_s = max(LEAST_KEPT_S, REST * self._took_s)
            self._fresh_until_s = self._elapsed_s() + rest_s
            return self._kept

    async def _drawn(
        self, placers: Mapping[str, RegionalPlacer], absent: Collection[str]
    ) -> FleetMap:
        queue = self._runtime.machines.queue
        jobs: dict[str, HolderView] = {}
        regions = []
        for name in sorted(placers):
            # A region at a time: decisions go on between them.
            question = partial(self._clusters, placers[name], queue, jobs)
            clusters = await handed(self._runtime.ask(question))
            clusters = await asyncio.to_thread(self._with_processes, clusters)
            regions.append(RegionCells(name, name not in absent, clusters))
        return FleetMap(self._clock.now(), jobs, tuple(regions))

    def _clusters(
        self, placer: RegionalPlacer, queue: GlobalQueue, jobs: dict[str, HolderView]
    ) -> tuple[ClusterCells, ...]:
        """The hosts of a region by cluster. O(hosts + running tasks)."""
        begun_s = self._elapsed_s()
        columns = placer.columns
        held = _held(placer, queue, jobs)
        hosts: dict[str, list[HostCells]] = {name: [] for name in columns.clusters}
        for row, spec in enumerate(columns.hosts[: columns.places]):
            cluster = columns.cluster_of[row]
            hosts[cluster].append(
                HostCells(
                    spec.name, spec.rack, spec.model if spec.gpus else "", spec.gpus,
                    columns.states[row].value, held.get(spec.name, {}),
                    closed_why(placer, spec.name),
                )
            )  # fmt: skip
        cells = tuple(ClusterCells(name, tuple(found)) for name, found in hosts.items())
        self._took_s += self._elapsed_s() - begun_s
        return cells

    def _with_processes(self, clusters: Sequence[ClusterCells]) -> tuple[ClusterCells, ...]:
        """The same hosts, where those that are halted are shown so: files of each may be read."""

        def shown(cluster: str, host: HostCells) -> HostCells:
            _, stopped = self._process_of(cluster, host.name) or (None, False)
            return replace(host, state=STOPPED) if stopped else host

        return tuple(
            ClusterCells(c.name, tuple(shown(c.name, h) for h in c.hosts)) for c in clusters
        )


def _held(
    placer: RegionalPlacer, queue: GlobalQueue, jobs: dict[str, HolderView]
) -> dict[str, dict[str, float]]:
    """GPUs by host and job, in the order of slots; notes each job that holds some in ``jobs``.

    Most hosts have one job: what is made for each of them costs a collection of garbage.
    """
    held: dict[str, dict[str, float]] = {}
    first: dict[str, Seat] = {}
    shared: dict[str, list[tuple[tuple[int, ...], str, float]]] = {}
    records = queue.jobs.records
    for allocation in placer.state.allocations.values():
        plan, spec = allocation.plan, allocation.spec
        if not plan.gpus_milli:
            continue
        job, record = plan.job, records.get(plan.job)
        state = record.state.value if record is not None else allocation.hold.name
        jobs[job] = HolderView(spec.name, spec.tenant, _BANDS[allocation.band], state)
        for seat in plan.seats:
            if not seat.slots:
                continue
            host, gpus = seat.host, len(seat.slots) * seat.slot_milli / MILLI
            if host not in held:
                held[host], first[host] = {job: gpus}, seat
                continue
            if host not in shared:
                ((other, its_gpus),) = held[host].items()
                shared[host] = [(first[host].slots, other, its_gpus)]
            shared[host].append((seat.slots, job, gpus))
    for host, entries in shared.items():
        held[host] = {}
        for _, job, gpus in sorted(entries):
            held[host][job] = held[host].get(job, 0.0) + gpus
    return held


def seen_by(whole: FleetMap, seen: frozenset[str]) -> FleetMap:
    """The same map, where jobs of other tenants are GPUs and bands only. O(hosts + jobs)."""
    names: dict[str, str] = {}
    jobs: dict[str, HolderView] = {}
    for at, (job, holder) in enumerate(whole.jobs.items()):
        if holder.tenant in seen:
            names[job], jobs[job] = job, holder
        else:
            names[job] = f"other-{at}"
            jobs[names[job]] = HolderView("", HIDDEN_TENANT, holder.band, holder.state)

    def shown(host: HostCells) -> HostCells:
        held = {names[job]: gpus for job, gpus in host.held.items()}
        return HostCells(host.name, host.rack, host.model, host.gpus, host.state, held, host.closed)

    regions = tuple(
        RegionCells(
            region.name,
            region.reachable,
            tuple(ClusterCells(c.name, tuple(map(shown, c.hosts))) for c in region.clusters),
        )
        for region in whole.regions
    )
    return FleetMap(whole.at_s, jobs, regions)
