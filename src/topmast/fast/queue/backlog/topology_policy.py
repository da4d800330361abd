"""How close the tasks of a job must sit: as its submitter says, or as the scoring decides."""

from __future__ import annotations

from topmast.model.fleet import Fleet, HostSpec
from topmast.model.job import MILLI, JobSpec, TaskGroup, Topology
from topmast.policies.base import ScorePolicy, Shaping


class TopologyPolicy:
    """The topology that is asked for, looked up once for all jobs alike."""

    def __init__(self, score: ScorePolicy | None) -> None:
        self._score = score if isinstance(score, Shaping) else None
        self._kinds: tuple[HostSpec, ...] = ()
        self._known: dict[object, Topology] = {}

    def configure(self, fleet: Fleet) -> None:
        """Take up a fleet. O(hosts)."""
        kinds = {
            (h.model, h.gpus, h.cpus, h.memory_bytes): h
            for region in fleet.regions
            for cluster in region.clusters
            for h in cluster.hosts
        }
        self._kinds, self._known = tuple(kinds.values()), {}

    def topology_of(self, spec: JobSpec) -> Topology:
        """What the requests of a job ask for. O(kinds of hosts x models), then O(1)."""
        if self._score is None:
            return spec.topology
        key = (spec.groups, spec.topology, spec.skew)
        found = self._known.get(key)
        if found is None:
            on_one_host = any(_holds(kind, spec) for kind in self._kinds)
            found = self._known[key] = self._score.topology(spec, on_one_host)
        return found


def _holds(host: HostSpec, spec: JobSpec) -> bool:
    """Whether one empty host holds the whole gang. O(groups x models)."""
    cpus = sum(group.count * group.resources.cpus for group in spec.groups)
    memory_bytes = sum(group.count * group.resources.memory_bytes for group in spec.groups)
    milli = sum(_milli(host, group) for group in spec.groups)
    return (
        milli <= host.gpus * MILLI
        and (not host.cpus or cpus <= host.cpus)
        and (not host.memory_bytes or memory_bytes <= host.memory_bytes)
    )


def _milli(host: HostSpec, group: TaskGroup) -> float:
    """Thousandths of the host's GPUs that a group takes; infinite if it accepts no such model."""
    listed = group.resources.accelerators
    fitting = [a.gpus_milli for a in listed if a.model in (None, host.model)]
    if not listed:
        return 0.0
    return group.count * min(fitting) if fitting else float("inf")
