"""How each fact changes the region's books. Nothing is decided here: recovery runs this alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from topmast.fast.machine import Fact
from topmast.fast.region import facts as f
from topmast.fast.region.inventory.allocation import Allocation, AllocationPhase, to_internal
from topmast.fast.region.reservation.bookings import Booking
from topmast.fast.region.state import RegionState
from topmast.model import messages as m
from topmast.model.absent import given
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.owners import owners_of, with_owners
from topmast.model.states import HostState

Value = TypeVar("Value")


def _region(placer: RegionState, fact: f.RegionSet, event: m.ConfigureRegion) -> None:
    before, owners = owners_of(placer.state.region), owners_of(event.region)
    placer.state.closed = {
        host: why
        for host, why in placer.state.closed.items()
        if owners.get(host) == before.get(host)  # else another cluster speaks for it
    }
    clusters = {cluster.name for cluster in event.region.clusters}
    placer.state.assigned = {
        host: cluster
        for host, cluster in placer.state.assigned.items()
        if cluster in clusters and owners.get(host, cluster) != cluster
    }
    placer.configure_columns(_with_hosts_in_use(event.region, placer))
    placer.more()


def _taken(placer: RegionState, fact: f.SlotsTaken, event: m.CommitPlan) -> None:
    waits = bool(fact.waiting_for)  # else `Launched` follows, and its hosts need no second count
    phase = AllocationPhase.CLAIMED if waits else AllocationPhase.STARTING
    allocation = Allocation(
        to_internal(event.plan), event.epoch, event.spec, event.band, placer.now,
        event.time_left_s, phase, list(fact.waiting_for), expected_s=event.expected_s,
    )  # fmt: skip
    placer.state.allocations[event.plan.job] = placer.claims[event.plan.job] = allocation
    placer.columns.hold(allocation)
    placer.state.version += 1


def _all_taken(placer: RegionState, fact: f.AllTaken, event: m.CommitPlans) -> None:
    now, starting = placer.now, AllocationPhase.STARTING
    taken = [
        Allocation(
            plan, epoch, spec, band, now, time_left_s, starting, [], expected_s=expected_s
        )
        for plan, epoch, spec, band, time_left_s, expected_s in zip(
            event.plans.plans, event.epochs, event.specs, event.bands, event.time_left_s,
            event.expected_s, strict=True,
        )
    ]  # fmt: skip
    placer.state.allocations.update(zip(event.plans.jobs, taken, strict=True))
    placer.columns.hold_each(event.plans.seats, taken)
    placer.state.version += len(taken)


def _launched(placer: RegionState, fact: f.Launched, event: m.Message) -> None:
    allocation = placer.state.allocations[fact.job]
    placer.claims.pop(fact.job, None)
    if allocation.hold is AllocationPhase.STARTING and allocation.start_s == placer.now:
        return
    allocation.hold = AllocationPhase.STARTING
    allocation.start_s = placer.now
    placer.columns.note(allocation)


def _up(placer: RegionState, fact: f.Up, event: m.Message) -> None:
    allocation = placer.state.allocations[fact.job]
    allocation.running_s = placer.now
    if allocation.hold is AllocationPhase.STARTING:
        allocation.hold = AllocationPhase.RUNNING
    placer.columns.note(allocation)


def _kept(placer: RegionState, fact: f.Kept, event: m.Message) -> None:
    allocation = placer.state.allocations[fact.job]
    allocation.kept_until_s = fact.at_s
    placer.columns.note(allocation)


def _paired(placer: RegionState, fact: f.PairedWith, event: m.Message) -> None:
    placer.state.allocations[fact.job].paired = fact.other or UNSET


def _stopping(placer: RegionState, fact: f.Stopping, event: m.Message) -> None:
    allocation = placer.state.allocations[fact.job]
    allocation.hold = AllocationPhase.STOPPING
    allocation.why = fact.why
    placer.columns.note(allocation)


def _freed(placer: RegionState, fact: f.SlotsFreed, event: m.Message) -> None:
    allocation = placer.state.allocations.pop(fact.job)
    placer.claims.pop(fact.job, None)
    placer.columns.let_go(allocation)
    placer.sharing.on_freed(fact.job)
    for other in placer.claims.values():
        if fact.job in other.waiting_for:
            other.waiting_for.remove(fact.job)
    placer.more()


def _booked(placer: RegionState, fact: f.PlaceBooked, event: m.Message) -> None:
    needs = placer.state.allocations[fact.job].needs()
    placer.state.places[fact.job] = Booking(fact.plan, needs, fact.until_s)
    placer.columns.take(fact.plan.seats, needs, fact.plan.in_slice)
    placer.state.version += 1


def _given_up(placer: RegionState, fact: f.PlaceGivenUp, event: m.Message) -> None:
    place = placer.state.places.pop(fact.job)
    placer.columns.give_back(place.plan.seats, place.needs, place.plan.in_slice)
    placer.columns.grown[place.plan.cluster] = None
    placer.state.places_used += fact.used
    placer.state.places_missed += not fact.used
    placer.more()


def _host(placer: RegionState, fact: f.HostSet, event: m.Message) -> None:
    state = placer.state
    if fact.state is HostState.HEALTHY:
        state.wanted.pop(fact.host, None)
        state.suspect.pop(fact.host, None)
    else:
        state.wanted[fact.host] = fact.state
    state.until = _with(state.until, fact.host, fact.until_s)
    before = given(state.orders, {}).get(fact.host, UNSET)
    order = event.order(before) if isinstance(event, m.SetHost) else UNSET
    state.orders = _with(state.orders, fact.host, order)
    _refresh(placer, fact.host)


def _with(
    known: dict[str, Value] | UnsetType, host: str, value: Value | UnsetType
) -> dict[str, Value] | UnsetType:
    """What is known of hosts, changed in place: another value for one of them, or none."""
    found = given(known, {})
    if isinstance(value, UnsetType):
        found.pop(host, None)
    else:
        found[host] = value
    return found or UNSET


def _assigned(placer: RegionState, fact: f.HostsAssigned, event: m.Message) -> None:
    before, placer.state.assigned = placer.state.assigned, dict(fact.owners)
    for host in dict.fromkeys((*before, *fact.owners)):
        _refresh(placer, host)


def _handed_over(placer: RegionState, fact: f.HostsHandedOver, event: m.Message) -> None:
    for host in fact.owners:
        placer.state.assigned.pop(host, None)
        placer.state.closed.pop(host, None)  # its new cluster speaks for it
    placer.configure_columns(with_owners(placer.state.region, fact.owners))
    placer.more()


def _gone(placer: RegionState, fact: f.HostsGone, event: m.Message) -> None:
    state, region = placer.state, placer.state.region
    books: tuple[dict[str, Any], ...] = (
        state.leaving, state.wanted, state.assigned, state.down, state.closed, state.suspect
    )  # fmt: skip
    for host in fact.hosts:
        state.until = _with(state.until, host, UNSET)
        state.orders = _with(state.orders, host, UNSET)
        for known in books:
            known.pop(host, None)
    clusters = []
    for cluster in region.clusters:
        left = tuple(host for host in cluster.hosts if host.name not in fact.hosts)
        # A cluster that left the fleet file was here for its hosts alone.
        if left or cluster != ClusterSpec(cluster.name, cluster.hosts):
            clusters.append(msgspec.structs.replace(cluster, hosts=left))
    placer.configure_columns(msgspec.structs.replace(region, clusters=tuple(clusters)))
    placer.health_changed = True
    placer.more()


def _reachable(placer: RegionState, fact: f.HostReachable, event: m.Message) -> None:
    if fact.up:
        placer.state.down.pop(fact.host, None)
    else:
        placer.state.down[fact.host] = True
    _refresh(placer, fact.host)


def _closure(placer: RegionState, fact: f.HostClosure, event: m.Message) -> None:
    closed = placer.state.closed
    was = closed.pop(fact.host, "")
    if fact.why:
        closed[fact.host] = fact.why
    if bool(was) != bool(fact.why):
        _refresh(placer, fact.host)


def _closed_by_people(placer: RegionState, fact: f.ClosureSet, event: m.Message) -> None:
    closures = {n: c for n, c in given(placer.state.closures, {}).items() if n != fact.name}
    if fact.closure is not None:
        closures[fact.name] = fact.closure
    placer.state.closures = closures or UNSET
    before = list(placer.shut)
    placer.note_closures()
    for host in dict.fromkeys((*before, *placer.shut)):
        _refresh(placer, host)


def _suspected(placer: RegionState, fact: f.HostSuspected, event: m.Message) -> None:
    placer.state.suspect[fact.host] = fact.until_s
    _refresh(placer, fact.host)


def _trusted(placer: RegionState, fact: f.SuspicionOver, event: m.Message) -> None:
    placer.state.suspect.pop(fact.host, None)
    _refresh(placer, fact.host)


def _refresh(placer: RegionState, host: str) -> None:
    placer.health_changed = True
    if host in placer.columns.index:
        placer.columns.set_state(host, placer.host_state(host))
    placer.more()


def _with_hosts_in_use(region: RegionSpec, placer: RegionState) -> RegionSpec:
    """The new configuration, plus hosts that left it while attempts still run there: draining."""
    listed = {h.name for c in region.clusters for h in c.hosts}
    leaving: dict[str, list[HostSpec]] = {}
    placer.state.leaving = {}
    for allocation in placer.state.allocations.values():
        for name in allocation.plan.hosts:
            if name not in listed and name in placer.columns.index:
                listed.add(name)
                spec = placer.columns.known(name)
                leaving.setdefault(allocation.plan.cluster, []).append(spec)
                placer.state.leaving[name] = True
    if not leaving:
        return region
    known = {c.name for c in region.clusters}
    clusters = [
        msgspec.structs.replace(c, hosts=c.hosts + tuple(leaving.get(c.name, ())))
        for c in region.clusters
    ]
    clusters += [ClusterSpec(n, tuple(h)) for n, h in sorted(leaving.items()) if n not in known]
    return RegionSpec(region.name, tuple(clusters), region.storage_bytes, region.store)


APPLIERS: dict[type[Fact], Callable[..., None]] = {
    f.RegionSet: _region,
    f.SlotsTaken: _taken,
    f.AllTaken: _all_taken,
    f.Launched: _launched,
    f.Up: _up,
    f.Kept: _kept,
    f.Stopping: _stopping,
    f.SlotsFreed: _freed,
    f.PlaceBooked: _booked,
    f.PlaceGivenUp: _given_up,
    f.HostSet: _host,
    f.HostsAssigned: _assigned,
    f.HostsHandedOver: _handed_over,
    f.HostsGone: _gone,
    f.HostReachable: _reachable,
    f.HostClosure: _closure,
    f.ClosureSet: _closed_by_people,
    f.HostSuspected: _suspected,
    f.SuspicionOver: _trusted,
    f.PairedWith: _paired,
}
"""Every fact of a region."""
