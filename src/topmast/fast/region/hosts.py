"""Hosts: configured, cordoned, drained, lost and found."""

from __future__ import annotations

from typing import Any

from topmast.fast.region.answers import RegionAnswers
from topmast.fast.region.attempts import announce, drain, tell_out_of_service
from topmast.fast.region.facts import (
    HostReachable,
    HostsAssigned,
    HostSet,
    RegionSet,
    SuspicionOver,
)
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import NotFound
from topmast.model.owners import owners_of
from topmast.model.states import HostState


def configure(placer: RegionAnswers, event: m.ConfigureRegion) -> None:
    """Take up the part of the fleet file that this region is."""
    if event.region != placer.state.region or placer.state.leaving:
        placer.decide(RegionSet())
    for cluster in placer.state.region.clusters:
        placer.send(ids.cluster(cluster.name), m.ConfigureCluster(placer.region, cluster))
    placer.freed = False
    # The queue that asks may be a new process, which was told nothing.
    tell_out_of_service(placer, again=True)
    placer.send(ids.QUEUE, m.CapacityChanged(placer.region, placer.state.version))


def set_host(placer: RegionAnswers, event: m.SetHost) -> Any:
    """An operator cordons, drains or returns hosts: all are out of service before work moves."""
    for host in event.hosts:
        if host not in placer.columns.index:
            return NotFound(f"no host '{host}' in region '{placer.region}'")
    for host in event.hosts:
        trusted = host not in placer.state.suspect
        known = placer.state.wanted.get(host, HostState.HEALTHY) is event.state
        if not known or (event.state is HostState.HEALTHY and not trusted):
            placer.decide(HostSet(host, event.state))
    if event.state is HostState.DRAINING:
        drain(placer, event.hosts, event.at_once)
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
        placer.decide(HostsAssigned(wanted))
    announce(placer)
    return None


def host_changed(placer: RegionAnswers, event: m.HostChanged) -> None:
    """An engine lost a host, or has it again."""
    if event.host in placer.columns.index and placer.state.down.get(event.host, False) is event.up:
        placer.decide(HostReachable(event.host, event.up))
    if event.up and event.host in placer.state.suspect:
        placer.decide(SuspicionOver(event.host))
    announce(placer)
