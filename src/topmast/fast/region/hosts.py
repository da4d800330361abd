"""Hosts: configured, cordoned, drained, lost and found."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from topmast.fast.region import facts as f
from topmast.fast.region.answers import RegionAnswers
from topmast.fast.region.attempts import announce, drain, tell_out_of_service
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.absent import given
from topmast.model.errors import NotFound
from topmast.model.owners import owners_of
from topmast.model.states import HostState

CLOSED = "closed by its cluster"


def configure(placer: RegionAnswers, event: m.ConfigureRegion) -> None:
    """Take up the part of the fleet file that this region is; hosts that leave are drained."""
    if event.region != placer.state.region or placer.state.leaving:
        placer.decide(f.RegionSet())
    for cluster in placer.state.region.clusters:
        placer.send(ids.cluster(cluster.name), m.ConfigureCluster(placer.region, cluster))
    placer.freed = False
    # The queue that asks may be a new process, which was told nothing.
    tell_out_of_service(placer, again=True)
    placer.send(ids.QUEUE, m.CapacityChanged(placer.region, placer.state.version))
    drain(placer, tuple(host for host in placer.state.leaving if host not in placer.state.wanted))
    announce(placer)


def set_host(placer: RegionAnswers, event: m.SetHost) -> Any:
    """An operator cordons, drains or returns hosts: all are out of service before work moves."""
    for host in event.hosts:
        if host not in placer.columns.index:
            return NotFound(f"no host '{host}' in region '{placer.region}'")
    for host in event.hosts:
        trusted = host not in placer.state.suspect
        until_s = given(placer.state.until, {}).get(host, UNSET)
        known = placer.state.wanted.get(host, HostState.HEALTHY) is event.state
        known = known and until_s == event.until_s
        if event.reason:
            known = known and given(placer.state.orders, {}).get(host, UNSET) == event.order()
        if not known or (event.state is HostState.HEALTHY and not trusted):
            placer.decide(f.HostSet(host, event.state, event.until_s))
    if event.state is HostState.DRAINING:
        drain(placer, event.hosts, event.at_once)
    announce(placer)
    return None


def set_closure(placer: RegionAnswers, event: m.SetClosure) -> Any:
    """An operator closes a cluster or hosts to new work, or opens them again."""
    known, wanted = given(placer.state.closures, {}).get(event.name), event.closure
    if wanted is not None and wanted.cluster and wanted.cluster not in placer.columns.clusters:
        return NotFound(f"no cluster '{wanted.cluster}' in region '{placer.region}'")
    if wanted != known:
        placer.decide(f.ClosureSet(event.name, wanted))
    announce(placer)
    return None


def assign(placer: RegionAnswers, event: m.AssignHosts) -> Any:
    """Hosts shall go to other clusters: idle ones now, others when they are empty."""
    owners = owners_of(placer.state.region)
    known = {cluster.name for cluster in placer.state.region.clusters}
    for host, cluster in event.owners.items():
        if host not in owners:
            return NotFound(f"no host '{host}' in region '{placer.region}'")
        if cluster not in known:
            return NotFound(f"no cluster '{cluster}' in region '{placer.region}'")
    wanted = {host: to for host, to in event.owners.items() if owners[host] != to}
    if wanted != placer.state.assigned:
        placer.decide(f.HostsAssigned(wanted))
    announce(placer)
    return None


def host_changed(placer: RegionAnswers, event: m.HostChanged) -> None:
    """An engine lost a host, or has it again."""
    if event.host in placer.columns.index and placer.state.down.get(event.host, False) is event.up:
        placer.decide(f.HostReachable(event.host, event.up))
    if event.up and event.host in placer.state.suspect:
        placer.decide(f.SuspicionOver(event.host))
    announce(placer)


def host_closed(placer: RegionAnswers, event: m.HostClosed | m.HostOpened) -> None:
    """The cluster gives a host no new work, or work again: what runs there, runs on."""
    _close(placer, event.host, (event.why or CLOSED) if isinstance(event, m.HostClosed) else "")
    announce(placer)


def closed_hosts(placer: RegionAnswers, event: m.ClosedHosts) -> None:
    """All that a cluster has closed: the others are open. O(hosts that are or were closed)."""
    columns = placer.columns
    for host in list(placer.state.closed):
        mine = host in columns.index and columns.cluster_of[columns.index[host]] == event.cluster
        if mine and host not in event.hosts:
            _close(placer, host, "")
    for host, why in event.hosts.items():
        _close(placer, host, why or CLOSED)
    announce(placer)


def _close(placer: RegionAnswers, host: str, why: str) -> None:
    """Note why a host is closed; empty opens it."""
    if host in placer.columns.index and placer.state.closed.get(host, "") != why:
        placer.decide(f.HostClosure(host, why))
