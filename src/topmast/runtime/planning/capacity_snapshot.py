"""What the capacity planner sees: the hosts of clusters, which are in use, shortages, idle GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from topmast.fast.queue import GlobalQueue, JobRecord, could_hold
from topmast.fast.region import RegionalPlacer
from topmast.model.dataset import ReplicaState
from topmast.model.fleet import ClusterSpec, Fleet
from topmast.model.job import MILLI, JobSpec
from topmast.model.states import WAITING, HostState
from topmast.policies.options import SlowOptions
from topmast.runtime.planning.growth import Grown, Growth
from topmast.slow.capacity.feedback import Gpus, Limits
from topmast.slow.capacity.planning import CapacityPlanOptions, CapacitySnapshot, HostNow, RegionNow

Placers = Mapping[str, RegionalPlacer]


def growth_of(options: SlowOptions) -> Limits | None:
    """How far clusters may grow and shrink; None where nothing makes them."""
    planned = options.plan_capacity_every_s is not None and options.capacity_gain > 0
    return options_of(options).limits if planned else None


def options_of(options: SlowOptions) -> CapacityPlanOptions:
    """What a profile wants of plans of capacity."""
    limits = Limits(options.capacity_gain, options.capacity_least, options.capacity_most)
    return CapacityPlanOptions(limits, options.capacity_survive, options.buffer_fraction)


def snapshot_of(queue: GlobalQueue, placers: Placers) -> CapacitySnapshot:
    """The regions of these placers. O(hosts + attempts)."""
    regions = (r for r in queue.fleet.regions if r.name in placers)
    return CapacitySnapshot(
        tuple(
            RegionNow(
                region.name,
                tuple(cluster.name for cluster in region.clusters),
                _hosts(queue, placers[region.name]),
            )
            for region in sorted(regions, key=lambda r: r.name)
        )
    )


def _hosts(queue: GlobalQueue, placer: RegionalPlacer) -> tuple[HostNow, ...]:
    state = placer.state
    used = {host for held in state.allocations.values() for host in held.plan.hosts}
    healthy = (HostState.HEALTHY, HostState.DRAINING)
    return tuple(
        HostNow(
            host,
            cluster.name,
            queue.homes.get(host.name, cluster.name),
            placer.host_state(host.name) in healthy and host.name not in state.wanted,
            host.name in used,
            state.assigned.get(host.name),
        )
        for cluster in state.region.clusters
        for host in cluster.hosts
        if host.name not in state.leaving
    )


def idle_of(placers: Placers, spare: frozenset[str]) -> Gpus:
    """Usable GPUs without work, by cluster and model, but not of ``spare`` hosts. O(slots)."""
    found: Gpus = {}
    for name in sorted(placers):
        columns = placers[name].columns
        free = columns.free_by_host().tolist()
        for row, host in enumerate(columns.hosts):
            if host.gpus and columns.available[row] and host.name not in spare:
                key = (columns.cluster_of[row], host.model)
                found[key] = found.get(key, 0.0) + free[row] / MILLI
    return found


class Demand:
    """Which clusters jobs wait for: the bound one, or all that could hold them where their data is.

    A gang that is too large for every cluster waits for the one that needs the fewest additional
    GPUs to hold it, if ``limits`` let clusters grow and shrink so far.
    """

    def __init__(self, fleet: Fleet, homes: Mapping[str, str], limits: Limits) -> None:
        self.fleet = fleet
        self._clusters = [(r.name, c) for r in fleet.regions for c in r.clusters]
        self._growth = [Growth(region, homes, limits) for region in fleet.regions]
        self._able: dict[object, list[tuple[str, ClusterSpec]]] = {}
        self._nearest: dict[object, list[Grown]] = {}

    def add_unmet(self, found: Gpus, queue: GlobalQueue, jobs: Iterable[str]) -> None:
        """Add the GPUs that ``jobs`` wait for, by cluster and model. O(jobs x clusters)."""
        for name in jobs:
            record = queue.jobs.records.get(name)
            if record is None or record.plan is not None or record.state not in WAITING:
                continue
            self._add(found, queue, record)

    def _add(self, found: Gpus, queue: GlobalQueue, record: JobRecord) -> None:
        spec = record.spec
        listed = spec.groups[0].resources.accelerators
        wanted = spec.gpus_milli() / MILLI
        if not listed or not wanted:
            return
        parts = {
            (cluster.name, model): gpus
            for region, cluster in self._eligible(queue, record)
            for model, gpus in _gpus_of(cluster, listed[0].model).items()
        }
        total = sum(parts.values())
        for key, gpus in parts.items():
            found[key] = found.get(key, 0.0) + wanted * gpus / total

    def _eligible(self, queue: GlobalQueue, record: JobRecord) -> list[tuple[str, ClusterSpec]]:
        place, able = record.bound, self._able_to_hold(record.spec)
        if place is not None:
            return [
                (region, cluster)
                for region, cluster in self._clusters
                if region == place.region and place.cluster in (None, cluster.name)
            ]
        if not able:
            return self._nearest_to(queue, record.spec)
        with_data = [
            (region, cluster) for region, cluster in able if _has_data(queue, record.spec, region)
        ]
        return with_data or able

    def _nearest_to(self, queue: GlobalQueue, spec: JobSpec) -> list[tuple[str, ClusterSpec]]:
        """The cluster that needs the fewest GPUs more to hold a job; one with its data, if any."""
        kind = _kind_of(spec)
        if kind not in self._nearest:
            found = [grown for growth in self._growth for grown in growth.to_hold(spec)]
            self._nearest[kind] = sorted(found, key=lambda g: (g.gpus, g.region, g.cluster.name))
        grown = [each for each in self._nearest[kind] if _may_read(queue, spec, each.region)]
        with_data = [each for each in grown if _has_data(queue, spec, each.region)]
        return [(each.region, each.cluster) for each in (with_data or grown)[:1]]

    def _able_to_hold(self, spec: JobSpec) -> list[tuple[str, ClusterSpec]]:
        kind = _kind_of(spec)
        if kind not in self._able:
            self._able[kind] = [each for each in self._clusters if could_hold(each[1], spec)]
        return self._able[kind]


def _kind_of(spec: JobSpec) -> object:
    """Jobs of a kind fit into the same clusters."""
    groups = tuple((group.least, group.resources) for group in spec.groups)
    return groups, spec.topology.required


def _gpus_of(cluster: ClusterSpec, model: str | None) -> dict[str, int]:
    """GPUs of a model, or of each, in a cluster."""
    found: dict[str, int] = {}
    for host in cluster.hosts:
        if host.gpus and model in (None, host.model):
            found[host.model] = found.get(host.model, 0) + host.gpus
    return found


def _may_read(queue: GlobalQueue, spec: JobSpec, region: str) -> bool:
    """Whether a job's data may lie in a region."""
    known = queue.data.catalogue.datasets
    allowed = (known[n].spec.allowed for n in spec.datasets if n in known)
    return all(names is None or region in names for names in allowed)


def _has_data(queue: GlobalQueue, spec: JobSpec, region: str) -> bool:
    known = queue.data.catalogue.datasets
    complete = ReplicaState.COMPLETE
    return all(n in known and known[n].replicas.get(region) is complete for n in spec.datasets)
