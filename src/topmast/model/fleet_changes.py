"""What differs between two fleets, and which of it a running server can take up."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from topmast.model.fleet import ClusterSpec, DatasetSpec, Fleet, HostSpec
from topmast.model.units import exact_bytes

_HELD = ("gpus", "cpus", "memory_bytes")
"""What jobs hold of a host."""
_NAMED = 20
"""So many changes are named."""


class FleetChange(Struct, frozen=True):
    """One thing that is another."""

    what: str
    """``host east-1-0``, ``tenant vision`` and the like."""
    change: str
    """``added``, ``removed``, or what is changed."""
    live: bool = True
    """False: it takes a start with the file."""
    jobs: tuple[str, ...] = ()
    """Jobs that have to leave for it."""


def fleet_version(fleet: Fleet) -> str:
    """The same for equal fleets, and for others not. O(fleet)."""
    return hashlib.sha256(msgspec.json.encode(fleet)).hexdigest()[:16]


def fleet_changes(before: Fleet, after: Fleet) -> tuple[FleetChange, ...]:
    """All that differs, the regions first. O(fleet)."""
    return tuple(_changes(before, after))


def with_what_stays(fleet: Fleet, now: Fleet) -> Fleet:
    """What engines can do is known of clusters that stay; datasets are added by themselves."""
    known = {cluster.name: cluster for region in now.regions for cluster in region.clusters}
    regions = []
    for region in fleet.regions:
        clusters = [
            replace(
                cluster,
                capabilities=known[cluster.name].capabilities,
                deadlines=known[cluster.name].deadlines,
            )
            if cluster.name in known
            else cluster
            for cluster in region.clusters
        ]
        regions.append(replace(region, clusters=tuple(clusters)))
    names = {region.name for region in fleet.regions}
    datasets = tuple(kept for spec in now.datasets if (kept := _within(spec, names)) is not None)
    return replace(fleet, regions=tuple(regions), datasets=datasets)


def _within(spec: DatasetSpec, regions: Container[str]) -> DatasetSpec | None:
    """What the file said of a dataset, without regions that are gone; None: it named no other."""
    replicas = tuple(region for region in spec.replicas if region in regions)
    allowed = spec.allowed
    if allowed is not None:
        allowed = tuple(region for region in allowed if region in regions)
        if not allowed:
            return None
    return replace(spec, replicas=replicas, allowed=allowed)


def not_live(changes: Iterable[FleetChange]) -> str:
    """Why a running server cannot take up some of these, with all of them; empty if it can."""
    fixed = [change for change in changes if not change.live]
    if not fixed:
        return ""
    told = [f"{change.what}: {change.change}" for change in fixed[:_NAMED]]
    more = f" and {len(fixed) - _NAMED:,} more" if len(fixed) > _NAMED else ""
    away = (
        "; a host may also leave first and come back: apply the file without it, and with it when "
        "it is gone"
        if any(change.what.startswith("host ") for change in fixed)
        else ""
    )
    return (
        f"{'; '.join(told)}{more}: a running server cannot do that; stop it, and start it with "
        "this file (--fleet; where others stand by, stop all and start one without --standby)"
        f"{away}"
    )


def is_built(change: FleetChange) -> bool:
    """Whether a region or cluster comes or goes."""
    kind = change.what.partition(" ")[0]
    return kind in ("region", "cluster") and change.change in ("added", "removed")


def _changes(before: Fleet, after: Fleet) -> Iterator[FleetChange]:
    old, new = ({region.name: region for region in fleet.regions} for fleet in (before, after))
    yield from _come_and_gone("region", old, new)
    for name in (name for name in old if name in new):
        yield from _fields(
            "region", name, old[name], new[name], fixed=("store",), skip=("clusters",)
        )
    was, now = _clusters(before), _clusters(after)
    yield from _come_and_gone("cluster", was, now)
    left, reached = cluster_regions(before), cluster_regions(after)
    for name in (name for name in was if name in now):
        if left[name] != reached[name]:
            moved = f"region {left[name]} -> {reached[name]}"
            yield FleetChange(f"cluster {name}", moved, live=False)
        fixed = ("engine", "options", "paths", "image")
        skip = ("hosts", "capabilities", "deadlines")
        yield from _fields("cluster", name, was[name], now[name], fixed=fixed, skip=skip)
    yield from _hosts(was, now)
    links = [{f"{x.source}-{x.target}": x for x in fleet.links} for fleet in (before, after)]
    tenants = [{x.name: x for x in fleet.tenants} for fleet in (before, after)]
    for kind, (first, second) in (("link", links), ("tenant", tenants)):
        yield from _come_and_gone(kind, first, second)
        for name in (name for name in first if name in second):
            yield from _fields(kind, name, first[name], second[name])
    if before.prices != after.prices:
        yield FleetChange("prices", f"{_shown(before.prices)} -> {_shown(after.prices)}")


def _clusters(fleet: Fleet) -> dict[str, ClusterSpec]:
    return {cluster.name: cluster for region in fleet.regions for cluster in region.clusters}


def cluster_regions(fleet: Fleet) -> dict[str, str]:
    """The region of each cluster."""
    return {cluster.name: region.name for region in fleet.regions for cluster in region.clusters}


def _hosts(was: Mapping[str, ClusterSpec], now: Mapping[str, ClusterSpec]) -> Iterator[FleetChange]:
    """Hosts of clusters that stay: those of others come and go with them."""
    both = [name for name in was if name in now]
    old: dict[str, tuple[str, HostSpec]] = {h.name: (c, h) for c in both for h in was[c].hosts}
    new: dict[str, tuple[str, HostSpec]] = {h.name: (c, h) for c in both for h in now[c].hosts}
    begun = [name for name in now if name not in was]
    new |= {h.name: (c, h) for c in begun for h in now[c].hosts if h.name in old}
    yield from _come_and_gone("host", old, new)
    for name in (name for name in old if name in new):
        (cluster, spec), (other, changed) = old[name], new[name]
        if cluster != other:
            yield FleetChange(f"host {name}", f"cluster {cluster} -> {other}", live=False)
        # What jobs hold there is counted against these: they do not become less below them.
        held = ("model", *(field for field in _HELD if not _grows(field, spec, changed)))
        yield from _fields("host", name, spec, changed, fixed=held)


def _grows(field: str, spec: HostSpec, changed: HostSpec) -> bool:
    """Whether a host has as much of something as before, or more."""
    was, to = getattr(spec, field), getattr(changed, field)
    if field != "gpus" and 0 in (was, to):  # no limit
        return bool(to == 0)
    return bool(to >= was)


def _come_and_gone(
    kind: str, old: Mapping[str, object], new: Mapping[str, object]
) -> Iterator[FleetChange]:
    yield from (FleetChange(f"{kind} {n}", "removed") for n in old if n not in new)
    yield from (FleetChange(f"{kind} {n}", "added") for n in new if n not in old)


def _fields(
    kind: str,
    name: str,
    old: Struct,
    new: Struct,
    *,
    fixed: tuple[str, ...] = (),
    skip: tuple[str, ...] = (),
) -> Iterator[FleetChange]:
    """Fields that differ, in the words of the fleet file; ``fixed`` ones take a start."""
    for field in old.__struct_fields__:
        was, to = getattr(old, field), getattr(new, field)
        if field not in skip and was != to:
            change = f"{field.removesuffix('_bytes')} {_told(field, was)} -> {_told(field, to)}"
            yield FleetChange(f"{kind} {name}", change, live=field not in fixed)


def _told(field: str, value: Any) -> str:
    if field.endswith("_bytes"):
        return exact_bytes(value) if value else "none"
    return _shown(value)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {part}" for name, part in value.items()) + "}"
    if isinstance(value, float):
        return f"{value:.15g}"
    return "none" if value in (None, "") or value is msgspec.UNSET else str(value)
