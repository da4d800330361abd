"""Reservations of hosts: from a time on, until another, no job has them, or those of some tenants.

In the code they are windows: a `Reservation` is what backfill keeps for a job.
"""

from __future__ import annotations

from msgspec import Struct

from topmast.model.fleet import Fleet

CLOSURE = "reservation/"
"""What the name of a closure begins with that a window makes."""


class Window(Struct, frozen=True):
    """Hosts that are reserved for a while. A job that would not end before does not start there."""

    name: str
    from_s: float
    until_s: float
    """When it ends by itself."""
    hosts: tuple[str, ...] = ()
    cluster: str = ""
    """All hosts of this cluster, also those that come to it later."""
    region: str = ""
    """All hosts of this region, likewise."""
    tenants: tuple[str, ...] = ()
    """Their jobs, and those of tenants below them, may have the hosts; none: no job may."""
    by: str = ""
    reason: str = ""

    def is_like(self, other: Window) -> bool:
        """Whether it says the same under another name."""
        return (
            self.from_s, self.until_s, self.hosts, self.cluster, self.region, self.tenants
        ) == (
            other.from_s, other.until_s, other.hosts, other.cluster, other.region, other.tenants
        )  # fmt: skip

    def why(self) -> str:
        """In words."""
        reason = f": {self.reason}" if self.reason else ""
        return f"reserved by {self.by or 'an unknown user'} ({self.name}){reason}"

    def hosts_in(self, fleet: Fleet) -> tuple[str, ...]:
        """The names of its hosts. O(hosts)."""
        named = frozenset(self.hosts)
        return tuple(
            host.name
            for region in fleet.regions
            for cluster in region.clusters
            for host in cluster.hosts
            if self.region == region.name or self.cluster == cluster.name or host.name in named
        )


class Stay(Struct, frozen=True):
    """What decides which reserved hosts a job may start on: the same for its whole class."""

    lasts_s: float
    """How long it would run, rounded up."""
    exempt: tuple[str, ...] = ()
    """Windows that are for its tenant."""
