"""How much slower a gang goes for where it sits, and for the gangs beside it.

Three things slow a gang, each by an option of the world, none of them by default: tasks far from
each other (`across_hosts`, `across_racks`, `across_pods`: speed relative to one host), tasks that
share a GPU (`shared_gpu`), and tasks that share the CPUs of a host (`busy_cpus`). A gang goes as
fast as the slowest of its tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.job import JobSpec
from topmast.model.plan import Seat
from topmast.sim.settings import Settings

HALF = 0.5
"""CPUs begin to matter when more than this part of them is held: caches, buses, hyper-threads."""


class _Sitting(Struct, frozen=True):
    job: str
    cpus: float
    slots: tuple[int, ...]


class Neighbours:
    """Which gang sits where in one cluster."""

    def __init__(self, cluster: ClusterSpec, settings: Settings) -> None:
        self._settings = settings
        self._hosts: Mapping[str, HostSpec] = {}
        self._sitting: dict[str, list[_Sitting]] = {}
        self.equip(cluster.hosts)

    def equip(self, hosts: Iterable[HostSpec]) -> None:
        """The cluster has these hosts from now on; on those that are new no gang sits."""
        self._hosts = {host.name: host for host in hosts}
        self._sitting = {name: self._sitting.get(name, []) for name in self._hosts}

    @staticmethod
    def matter(settings: Settings) -> bool:
        """Whether anything slows a gang."""
        return any(
            speed < 1 for speed in (*_levels(settings), settings.shared_gpu, settings.busy_cpus)
        )

    @property
    def interfere(self) -> bool:
        """Whether a gang's speed changes when others come and go."""
        return self._settings.shared_gpu < 1 or self._settings.busy_cpus < 1

    def sit(self, spec: JobSpec, job: str, seats: Iterable[Seat]) -> list[str]:
        """A gang takes its seats; returns the other jobs on these hosts in order. O(neighbours)."""
        cpus = {g.name: g.resources.cpus or 0.0 for g in spec.groups}
        hosts: dict[str, None] = {}
        for seat in seats:
            self._sitting[seat.host].append(_Sitting(job, cpus[seat.group], seat.slots))
            hosts[seat.host] = None
        return self._others(job, hosts)

    def leave(self, job: str, seats: Iterable[Seat]) -> list[str]:
        """It is gone; returns the jobs that stay on these hosts, in order. O(neighbours)."""
        hosts = dict.fromkeys(seat.host for seat in seats)
        for host in hosts:
            self._sitting[host] = [s for s in self._sitting[host] if s.job != job]
        return self._others(job, hosts)

    def _others(self, job: str, hosts: Iterable[str]) -> list[str]:
        found: dict[str, None] = {}
        for host in hosts:
            found.update(dict.fromkeys(s.job for s in self._sitting[host] if s.job != job))
        return list(found)

    def factor(self, spec: JobSpec, job: str, seats: tuple[Seat, ...]) -> float:
        """The speed of a gang in its seats over its speed alone on one host. O(neighbours)."""
        spreads = spec.skew is not None and spec.skew < self._settings.spread_skew
        near = 1.0 if spreads else self._distance({seat.host: None for seat in seats})
        return near * min(self._beside(job, seat) for seat in seats)

    def _distance(self, hosts: Iterable[str]) -> float:
        specs = [self._hosts[name] for name in hosts]
        if len(specs) == 1:
            return 1.0
        hosts_apart, racks_apart, pods_apart = _levels(self._settings)
        first = specs[0]
        if any((s.datacenter, s.pod) != (first.datacenter, first.pod) for s in specs):
            return pods_apart
        return racks_apart if any(s.rack != first.rack for s in specs) else hosts_apart

    def _beside(self, job: str, seat: Seat) -> float:
        sitting = self._sitting[seat.host]
        shared = len(seat.slots) == 1 and any(
            s.job != job and seat.slots[0] in s.slots for s in sitting
        )
        speed = self._settings.shared_gpu if shared else 1.0
        there = self._hosts[seat.host].cpus
        if there:
            held = min(1.0, sum(s.cpus for s in sitting) / there)
            speed *= 1 - (1 - self._settings.busy_cpus) * max(0.0, (held - HALF) / (1 - HALF))
        return speed


def _levels(settings: Settings) -> tuple[float, float, float]:
    """The speeds across hosts, racks and pods: farther is never faster."""
    hosts = settings.across_hosts
    racks = min(hosts, settings.across_racks)
    return hosts, racks, min(racks, settings.across_pods)
