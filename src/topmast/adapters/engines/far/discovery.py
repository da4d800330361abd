"""What a cluster that is there already has, written as a fleet file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from topmast.model.fleet import HostSpec

MIB, GB = 1 << 20, 10**9


class Discovered(Struct, frozen=True):
    """What was found on one cluster."""

    name: str
    """What the cluster calls itself."""
    hosts: tuple[HostSpec, ...]
    """Named as their scheduler names them."""
    options: dict[str, str] = {}
    """Of the engine, in addition to those that were given."""
    left_out: tuple[str, ...] = ()
    """Hosts that a fleet cannot have, each with the reason."""


def fleet_document(
    found: Discovered, engine: str, *, region: str, cluster: str, options: dict[str, str]
) -> dict[str, Any]:
    """A fleet file with one cluster. The caller has it checked by the reader of fleet files."""
    given = {**options, **found.options}
    described = {
        "engine": engine,
        **({"options": given} if given else {}),
        "hosts": list(_entries(found.hosts)),
    }
    return {"regions": {region: {"clusters": {cluster: described}}}}


def _entries(hosts: Iterable[HostSpec]) -> Iterable[dict[str, Any]]:
    """Hosts that are alike but for their names in one entry, in order of first appearance."""
    entries: dict[str, dict[str, Any]] = {}
    for host in hosts:
        entry = _entry(host)
        entries.setdefault(repr(entry), {"names": [], **entry})["names"].append(host.name)
    return entries.values()


def _entry(host: HostSpec) -> dict[str, Any]:
    entry: dict[str, Any] = {"gpu": host.model} if host.gpus else {}
    entry["gpus"] = host.gpus
    if host.gpu_memory_bytes:
        entry["gpu_memory"] = _plain(host.gpu_memory_bytes / GB)
    if host.cpus:
        entry["cpus"] = _plain(host.cpus)
    if host.memory_bytes:
        mib, rest = divmod(host.memory_bytes, MIB)
        entry["memory"] = f"{host.memory_bytes}B" if rest else f"{mib}MiB"
    places = {"datacenter": host.datacenter, "pod": host.pod, "rack": host.rack}
    return entry | {place: name for place, name in places.items() if name}


def _plain(value: float) -> int | float:
    return int(value) if value == int(value) else value
