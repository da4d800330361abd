"""What a cluster that is there already has, written as a fleet file."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, structs

from topmast.model.fleet import HostSpec

MIB, GB = 1 << 20, 10**9
_MODEL = re.compile(
    r"(?:^|[^a-z0-9])(gb[23]00|gh200|[bh][123]00|h20|h800|a[18]00|a10g?|a[346]0|l40s?|l4|v100s?"
    r"|p100|t4|mi\d{3}[ax]?)(?:[^a-z0-9]|$)"
)


class Discovered(Struct, frozen=True):
    """What was found on one cluster."""

    name: str
    """What the cluster calls itself."""
    hosts: tuple[HostSpec, ...]
    """Named as their scheduler names them."""
    options: Mapping[str, str | int] = {}
    """Of the engine, in addition to those that were given."""
    left_out: tuple[str, ...] = ()
    """Hosts that a fleet cannot have, each with the reason."""
    region: str = ""
    """Where it says that it is; empty: it does not."""
    unnamed: tuple[str, ...] = ()
    """Hosts that do not tell the model of their GPUs, which is a word in its place."""
    notes: tuple[str, ...] = ()
    """What people should know of hosts that are not left out."""


def short_model(said: str) -> str:
    """What a fleet calls a GPU that a site calls ``NVIDIA-H100-80GB-HBM3``; else as it is."""
    found = _MODEL.search(said.lower())
    return found[1].upper() if found else said


def as_declared(given: Mapping[str, str], options: Struct) -> dict[str, Any]:
    """Options that were given as text, numbers as numbers: ``options`` are the same, read."""
    read = structs.asdict(options)
    return {
        name: _plain(value) if isinstance(value := read.get(name), int | float) else text
        for name, text in given.items()
    }


def address_towards(hosts: Iterable[str]) -> str:
    """The address of this machine by which it reaches the first of these hosts that is known here.

    Nothing is sent. Empty: none of them is known here.
    """
    for host in filter(None, hosts):
        try:
            family, kind, *_, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return ""


def fleet_document(
    found: Discovered, engine: str, *, region: str, cluster: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """A fleet file with one cluster. The caller has it checked by the reader of fleet files."""
    given = {**_of_found(options, found.hosts), **found.options}
    described = {
        "engine": engine,
        **({"options": given} if given else {}),
        "hosts": list(_entries(found.hosts)),
    }
    return {"regions": {region: {"clusters": {cluster: described}}}}


def _of_found(options: Mapping[str, Any], hosts: Iterable[HostSpec]) -> dict[str, Any]:
    """Options without the addresses of hosts that were left out: a fleet file has none of these."""
    names = {host.name for host in hosts}
    pairs = ((name.partition("."), name, value) for name, value in options.items())
    return {n: value for (first, _, key), n, value in pairs if first != "address" or key in names}


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
    if isinstance(value, bool):
        return value
    return int(value) if value == int(value) else value
