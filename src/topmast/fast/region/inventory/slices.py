"""Layers: each cluster of a region several times over, one copy for each time slice.

A gang lies whole in one layer of one cluster, so that its tasks always run at the same time (the matrix of
Ousterhout, *Scheduling Techniques for Concurrent Systems*, ICDCS '82, with slices for rows). In the columns the
clusters and hosts of the second layer and above bear names of their own, which no fleet file can give; whatever
leaves the placer has the names that people know, and a plan says its layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from topmast.fast.region.inventory.pair_seats import booked, shown
from topmast.model import messages as m
from topmast.model.fleet import ClusterSpec, RegionSpec
from topmast.model.plan import PlacementRequest, Plan, Seat

MARK = "#"


def inner(name: str, layer: int) -> str:
    """What a cluster or host is called in a layer."""
    return f"{name}{MARK}{layer}" if layer else name


def outer(name: str) -> str:
    """The cluster or host that people know by this name."""
    return name.partition(MARK)[0]


def layer_of(name: str) -> int:
    """The layer of a cluster or host."""
    _, mark, layer = name.partition(MARK)
    return int(layer) if mark else 0


def layered(region: RegionSpec, layers: int) -> RegionSpec:
    """The region with every cluster once in each layer, those of a layer side by side.

    A host has all of its GPUs and CPUs in each, for these are used in turns; and a part of its memory, for work that
    is suspended keeps that. O(hosts x layers).
    """
    if layers == 1:
        return region
    clusters = tuple(
        _in_layer(cluster, layer, layers) for layer in range(layers) for cluster in region.clusters
    )
    return msgspec.structs.replace(region, clusters=clusters)


def _in_layer(cluster: ClusterSpec, layer: int, layers: int) -> ClusterSpec:
    hosts = tuple(
        msgspec.structs.replace(
            host, name=inner(host.name, layer), memory_bytes=host.memory_bytes // layers
        )
        for host in cluster.hosts
    )
    return msgspec.structs.replace(cluster, name=inner(cluster.name, layer), hosts=hosts)


def in_all(hosts: Iterable[str], layers: int) -> tuple[str, ...]:
    """Hosts by their names in every layer."""
    if layers == 1:
        return tuple(hosts)
    return tuple(inner(outer(host), layer) for host in hosts for layer in range(layers))


def inside(plan: Plan) -> Plan:
    """A plan as the books have it: with the names of its layer. O(seats)."""
    plan = booked(plan)
    layer = 0 if isinstance(plan.layer, msgspec.UnsetType) else plan.layer
    moved = any(v.to is not None and v.to.layer for v in plan.victims)
    if not layer and not moved:
        return plan
    return _renamed(
        plan,
        inner(plan.cluster, layer),
        tuple(_at(s, inner(s.host, layer)) for s in plan.seats),
        msgspec.UNSET,
        inside,
    )


def outside(plan: Plan) -> Plan:
    """A plan with the names that people know. O(seats); the same plan where there is one layer."""
    plan = shown(plan)
    layer = layer_of(plan.cluster)
    if not layer:
        moved = any(v.to is not None and layer_of(v.to.cluster) for v in plan.victims)
        return _renamed(plan, plan.cluster, plan.seats, plan.layer, outside) if moved else plan
    return _renamed(
        plan,
        outer(plan.cluster),
        tuple(_at(s, outer(s.host)) for s in plan.seats),
        layer,
        outside,
    )


def _renamed(
    plan: Plan,
    cluster: str,
    seats: tuple[Seat, ...],
    layer: int | msgspec.UnsetType,
    turn: Callable[[Plan], Plan],
) -> Plan:
    victims = tuple(
        v if v.to is None else msgspec.structs.replace(v, to=turn(v.to)) for v in plan.victims
    )
    return msgspec.structs.replace(plan, cluster=cluster, seats=seats, layer=layer, victims=victims)


def _at(seat: Seat, host: str) -> Seat:
    return Seat(seat.group, seat.rank, host, seat.slots, seat.slot_milli)


def offered(offer: m.Bid) -> m.Bid:
    """An offer as it leaves the placer."""
    if offer.plan is None:
        return offer
    plan = outside(offer.plan)
    return offer if plan is offer.plan else msgspec.structs.replace(offer, plan=plan)


def asked(ask: PlacementRequest, layers: int) -> PlacementRequest:
    """A question as it is put to the columns: a host to avoid is avoided in every layer."""
    if layers == 1 or not ask.avoid_hosts:
        return ask
    return msgspec.structs.replace(ask, avoid_hosts=in_all(ask.avoid_hosts, layers))
