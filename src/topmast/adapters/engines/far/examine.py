"""Whether a cluster has the hosts of a fleet file."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from topmast.adapters.engines.far.discovery import Discovered
from topmast.adapters.engines.far.launcher import Host
from topmast.adapters.engines.far.options import FarOptions
from topmast.model.errors import InvalidInput
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.ports import Finding, Level

MOST_NAMED = 5
MOST_TOLD = 50
SKEW_S = 3.0
"""Clocks further apart make times in listings and logs misleading."""
ANSWER_S = 3.0
SLACK = 0.99
"""Sites and fleet files round sizes in ways of their own."""


def examined(
    cluster: ClusterSpec, discover: Callable[[], Discovered], closed: Sequence[Host] = ()
) -> tuple[Finding, ...]:
    """What a cluster answers, beside what the fleet file says of its hosts.

    ``closed`` are those that it would give no work now, as its launcher tells.
    """
    try:
        found = discover()
    except InvalidInput as error:
        return (Finding(Level.FAULT, "reach it", error.message, error.remedy),)
    return tuple(_compare(cluster, found, closed))


def calls_home(options: FarOptions) -> Iterator[Finding]:
    """Whether runners can call home, as far as that can be told from here."""
    yield from _listening(options.listen)
    yield from _advertised(options)


def _listening(listen: str) -> Iterator[Finding]:
    """Whether this machine can listen there. A port in use may be that of the server itself."""
    if listen.startswith("unix:"):
        return
    address, _, port = listen.rpartition(":")
    address = address.strip("[]")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, int(port)))
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        yield Finding(
            Level.WARNING if taken else Level.FAULT, "call home",
            f"cannot listen on {listen}: {why_not(error)}",
            "that is as it should be while the server runs; else set option `listen` to another "
            "port" if taken else
            "set option `listen` to an address of this machine, such as 0.0.0.0:0",
        )  # fmt: skip


def why_not(error: OSError) -> str:
    """Of a call for an address, in the words of the system, without its number."""
    return (error.strerror or str(error)).lower()


def _advertised(options: FarOptions) -> Iterator[Finding]:
    """Whether the address that runners are given is one, as far as that can be told from here."""
    if not options.advertise:
        return
    at = urlsplit(f"//{options.advertise}")
    port = at.port or urlsplit(f"//{options.listen}").port or 0
    try:
        if port:
            socket.create_connection((at.hostname or "", port), ANSWER_S).close()
        else:
            socket.getaddrinfo(at.hostname, None)
    except ConnectionRefusedError:
        pass  # the machine is there, and no server yet
    except OSError as error:
        why = error.strerror or "no answer"
        yield Finding(
            Level.WARNING, "call home", f"{options.advertise} is not reached from here: {why}",
            "hosts must reach it: see options `listen` and `advertise`, and firewalls",
        )  # fmt: skip


def _compare(cluster: ClusterSpec, found: Discovered, closed: Sequence[Host]) -> Iterator[Finding]:
    there = {host.name: host for host in found.hosts}
    yield Finding(
        Level.OK, "reach it", f"it answers, and has {len(there)} host{'s' * (len(there) != 1)}"
    )
    missing = [host.name for host in cluster.hosts if host.name not in there]
    yield from _missing(missing, found.left_out)
    closed = [host for host in closed if host.name not in missing]
    yield from _closed(closed, all_of_them=len(closed) == len(cluster.hosts))
    unnamed = [host.name for host in cluster.hosts if host.name in found.unnamed]
    faults = [
        f"{host.name} {fault}"
        for host in cluster.hosts if host.name in there
        for fault in _shortfalls(host, there[host.name], is_named=host.name not in unnamed)
    ]  # fmt: skip
    if faults:
        yield Finding(
            Level.FAULT, "sizes", _some(faults),
            "write what is there",
        )  # fmt: skip
    if unnamed:
        yield Finding(
            Level.WARNING, "GPUs",
            f"{_some(unnamed)}: no label tells the model of the GPUs; the fleet file is believed",
        )  # fmt: skip
    if cluster.hosts and not missing and not faults and not closed:
        yield Finding(Level.OK, "hosts", f"all {len(cluster.hosts)} are there, with their GPUs")


def _missing(names: list[str], left_out: Sequence[str]) -> Iterator[Finding]:
    """Hosts that are not there, each with the reason where there is one."""
    said = {name: why for name, colon, why in (line.partition(": ") for line in left_out) if colon}
    told = [name for name in names if name in said]
    for name in told[:MOST_TOLD]:
        yield Finding(Level.FAULT, f"host {name}", said[name])
    if more := told[MOST_TOLD:]:
        yield Finding(Level.FAULT, "hosts", f"not there either: {_some(more)}")
    if unknown := [name for name in names if name not in said]:
        yield Finding(
            Level.FAULT, "hosts", f"not there: {_some(unknown)}",
            "name hosts as the cluster does (topmast fleet discover)",
        )  # fmt: skip


def skewed(skews_s: Mapping[str, float]) -> Iterator[Finding]:
    """Hosts with a clock that is far from that of this machine."""
    far = [
        f"{name} is {abs(skew_s):.0f} s {'ahead' if skew_s > 0 else 'behind'}"
        for name, skew_s in skews_s.items() if abs(skew_s) > SKEW_S
    ]  # fmt: skip
    if far:
        yield Finding(
            Level.WARNING, "clock", f"{_some(far)} of this machine", "let all be set by NTP"
        )


def _closed(hosts: Sequence[Host], *, all_of_them: bool) -> Iterator[Finding]:
    """Hosts that get no work, with the reasons; some of a site are always away for a while."""
    reasons: dict[tuple[bool, str], list[str]] = {}
    for host in hosts:
        reasons.setdefault((host.misfit or all_of_them, host.closed), []).append(host.name)
    for (is_fault, why), names in reasons.items():
        level = Level.FAULT if is_fault else Level.WARNING
        yield Finding(level, "hosts", f"no work for {_some(names)}: {why}")


def _shortfalls(told: HostSpec, real: HostSpec, *, is_named: bool) -> Iterator[str]:
    """What a host has less of than it is told to have."""
    if told.gpus and is_named and told.model != real.model:
        yield f"has GPUs of model {real.model or '(none)'}, not {told.model}"
    elif told.gpus > real.gpus:
        yield f"has {real.gpus} GPUs, not {told.gpus}"
    if told.cpus * SLACK > real.cpus > 0:
        yield f"has {real.cpus:g} CPUs, not {told.cpus:g}"
    if told.memory_bytes * SLACK > real.memory_bytes > 0:
        yield f"has {real.memory_bytes / 1e9:.0f} GB of memory, not {told.memory_bytes / 1e9:.0f}"


def _some(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
