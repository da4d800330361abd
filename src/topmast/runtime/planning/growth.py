"""What a cluster would have to be given to hold a gang that is too large for it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from topmast.fast.queue import could_hold
from topmast.model.bisection import fewest_that
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import JobSpec, Level
from topmast.slow.capacity.feedback import Limits


class Grown(Struct, frozen=True):
    """A cluster, and the GPUs of other clusters of its region with which it could hold a job."""

    region: str
    cluster: ClusterSpec
    gpus: int


class Growth:
    """The clusters of one region, and what each may have of the others.

    ``homes``: the cluster of each host in the fleet file, where it is another than now.
    """

    def __init__(self, region: RegionSpec, homes: Mapping[str, str], limits: Limits) -> None:
        self._region, self._limits = region, limits
        self._configured: dict[tuple[str, str], int] = {}
        self._has: dict[tuple[str, str], int] = {}
        for cluster in region.clusters:
            for host in (host for host in cluster.hosts if host.gpus):
                home = homes.get(host.name, cluster.name), host.model
                self._configured[home] = self._configured.get(home, 0) + host.gpus
                here = cluster.name, host.model
                self._has[here] = self._has.get(here, 0) + host.gpus

    def to_hold(self, spec: JobSpec) -> list[Grown]:
        """What each cluster would need to hold a job, for clusters that may have as much.

        Hosts of one model are added, the largest first. That does not help a gang that must be
        closer together than a cluster: hosts stay where they stand. O(clusters x models x hosts log
        hosts).
        """
        if spec.topology.required not in (None, Level.CLUSTER):
            return []
        found = []
        models = sorted({model for _, model in self._has})
        for cluster in self._region.clusters:
            ways = [self._with_more(cluster, model, spec) for model in models]
            least = min((gpus for gpus in ways if gpus is not None), default=None)
            if least is not None:
                found.append(Grown(self._region.name, cluster, least))
        return found

    def _with_more(self, cluster: ClusterSpec, model: str, spec: JobSpec) -> int | None:
        """GPUs of a model that let a cluster hold a job; None if it may not have so many."""
        others = [
            host
            for other in self._region.clusters
            if other.name != cluster.name
            for host in other.hosts
            if host.model == model
        ]
        others.sort(key=lambda host: (-host.gpus, host.name))
        room = self._room(cluster.name, model)
        offered: list[HostSpec] = []
        for host in others:
            if sum(each.gpus for each in offered) + host.gpus <= room:
                offered.append(host)
        if could_hold(cluster, spec):
            return 0
        needed = fewest_that(
            lambda count: could_hold(_with(cluster, offered[:count]), spec), len(offered)
        )
        return None if needed is None else sum(host.gpus for host in offered[:needed])

    def _room(self, cluster: str, model: str) -> float:
        """GPUs that a cluster may still get: up to its limit, down to the others' minimum."""
        configured = self._configured.get((cluster, model), 0)
        most = self._limits.most * configured - self._has.get((cluster, model), 0)
        spare = 0.0
        for (other, its), gpus in self._has.items():
            if other != cluster and its == model:
                kept = self._limits.least * self._configured.get((other, model), 0)
                spare += max(0.0, gpus - kept)
        return min(most, spare)


def _with(cluster: ClusterSpec, more: list[HostSpec]) -> ClusterSpec:
    return ClusterSpec(cluster.name, (*cluster.hosts, *more))
