"""Which cluster owns which host, where that differs from the fleet file."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from topmast.model.fleet import ClusterSpec, Fleet, HostSpec, RegionSpec


def owners_of(region: RegionSpec) -> dict[str, str]:
    """The cluster of each host. O(hosts)."""
    return {host.name: cluster.name for cluster in region.clusters for host in cluster.hosts}


def with_owners(region: RegionSpec, owners: Mapping[str, str]) -> RegionSpec:
    """The region with these hosts in other clusters; a changed cluster sorts its hosts anew.

    They are sorted by place and name. Hosts and clusters that the region lacks are ignored. O(hosts
    log hosts).
    """
    known = {cluster.name for cluster in region.clusters}
    gone: dict[str, str] = {}
    guests: dict[str, list[HostSpec]] = {}
    for cluster in region.clusters:
        for host in cluster.hosts:
            to = owners.get(host.name, cluster.name)
            if to != cluster.name and to in known:
                gone[host.name] = cluster.name
                guests.setdefault(to, []).append(host)
    changed = {*gone.values(), *guests}

    def after(cluster: ClusterSpec) -> ClusterSpec:
        if cluster.name not in changed:
            return cluster
        stay = [host for host in cluster.hosts if host.name not in gone]
        hosts = sorted((*stay, *guests.get(cluster.name, ())), key=_place)
        return replace(cluster, hosts=tuple(hosts))

    return replace(region, clusters=tuple(after(cluster) for cluster in region.clusters))


def moved_within(fleet: Fleet, name: str, owners: Mapping[str, str]) -> Fleet:
    """The fleet with hosts of one region in other clusters. O(hosts of the region)."""
    regions = (with_owners(r, owners) if r.name == name else r for r in fleet.regions)
    return replace(fleet, regions=tuple(regions))


def settled(file: Fleet, known: Fleet, homes: Mapping[str, str]) -> Fleet:
    """A fleet file with its hosts where they are now.

    ``homes``: the clusters that the last file gave to hosts that have moved since. A host stays
    where it went while files still give it to that cluster. A file that gives it to another is
    followed. O(hosts).
    """
    now = {region.name: owners_of(region) for region in known.regions}
    regions = []
    for region in file.regions:
        here = now.get(region.name, {})
        stay = {
            host: here[host]
            for host, cluster in owners_of(region).items()
            if homes.get(host) == cluster and host in here
        }
        regions.append(with_owners(region, stay))
    return replace(file, regions=tuple(regions))


def homes_after(fleet: Fleet, known: Fleet, homes: Mapping[str, str]) -> dict[str, str]:
    """The homes of hosts that are still away, once ``fleet`` has replaced ``known``. O(hosts)."""
    before = {host: c for region in known.regions for host, c in owners_of(region).items()}
    after = {host: c for region in fleet.regions for host, c in owners_of(region).items()}
    return {
        host: home
        for host, home in homes.items()
        if host in after and after[host] != home and after[host] == before.get(host)
    }


def homes_with(fleet: Fleet, homes: Mapping[str, str], owners: Mapping[str, str]) -> dict[str, str]:
    """The homes of hosts that are away, once ``owners`` took them from ``fleet``. O(hosts)."""
    now = {host: c for region in fleet.regions for host, c in owners_of(region).items()}
    found = dict(homes)
    for host, cluster in owners.items():
        home = found.setdefault(host, now[host])
        if home == cluster:
            del found[host]
    return found


def _place(host: HostSpec) -> tuple[str, str, str, str]:
    return (host.datacenter, host.pod, host.rack, host.name)
