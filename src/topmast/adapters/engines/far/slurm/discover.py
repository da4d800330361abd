"""What a Slurm cluster has: hosts, GPUs, CPUs, memory, switches."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from msgspec import structs

from topmast.adapters.engines.far.discovery import (
    MIB,
    Discovered,
    address_towards,
    short_model,
)
from topmast.adapters.engines.far.launcher import Refused, Unreachable
from topmast.adapters.engines.far.slurm.commands import Commands
from topmast.adapters.engines.far.slurm.listings import gpus_of
from topmast.adapters.engines.far.slurm.options import ANY_TYPE, SlurmOptions
from topmast.model.errors import InvalidInput
from topmast.model.fleet import HostSpec

NODE_FORMAT = "%N|%c|%m|%R|%o|%G"
ASKED = 8
"""Of so many hosts the address is looked up, until one is known here."""
_GPU_MEMORY = re.compile(r"(?:^|[^a-z0-9])(\d{1,3})gb(?:[^a-z0-9]|$)")


class Node(NamedTuple):
    """A host as Slurm describes it."""

    name: str
    cpus: int
    memory_mib: int
    gpus: dict[str, int]
    """By type; the type is empty where Slurm says none."""
    address: str = ""
    """By which Slurm reaches it."""


def discover(
    options: SlurmOptions, partitions: str = "", model: str = "", *, everywhere: bool = False
) -> Discovered:
    """What Slurm has, or what it has in ``partitions`` (names, with commas between them), else in
    those of the options; ``everywhere``: whatever partitions these are.

    ``model`` is the model of GPUs for which the site says no type. Raises InvalidInput.
    """
    commands = Commands(options)
    wanted = "" if everywhere else partitions or _partitions(options)
    try:
        name = _cluster_name(commands.ask("scontrol", "show", "config"))
        only = ("-p", wanted) if wanted else ()
        said = commands.ask("sinfo", "-N", "-h", *only, "-o", NODE_FORMAT)
        switches = _switches(commands)
    except (Refused, Unreachable) as error:
        raise InvalidInput(str(error), field="slurm") from None
    nodes = read_nodes(said)
    there = {line.split("|")[3].strip().rstrip("*") for line in said.splitlines()}
    empty = [name for name in wanted.split(",") if name and name not in there]
    if empty or not nodes:
        where = f"partition {', '.join(empty)}" if empty else "the partitions that you may see"
        raise InvalidInput(f"there is no host in {where}", field="slurm", remedy="see `sinfo -s`")
    found = describe(name, nodes, switches, options, partitions=partitions, model=model)
    listen, notes = _listen(nodes, options)
    return structs.replace(found, options={**found.options, **listen}, notes=notes)


def _partitions(options: SlurmOptions) -> str:
    """All that parts are submitted to; nothing if one of them is that of the site's choice."""
    names = [name for text in options.partition.values() for name in text.split(",")]
    return ",".join(dict.fromkeys(names)) if options.partition.get("") else ""


def read_nodes(said: str) -> tuple[Node, ...]:
    """The hosts in an answer of ``sinfo -N -o NODE_FORMAT``, each once."""
    found: dict[str, Node] = {}
    for line in said.splitlines():
        fields = [field.strip() for field in line.split("|", 5)]
        if len(fields) != 6 or not fields[1].isdecimal() or not fields[2].isdecimal():
            raise InvalidInput(f"sinfo said {line[:200]!r}, not {NODE_FORMAT}", field="slurm")
        node, cpus, memory_mib, _, address, gres = fields
        found[node] = Node(node, int(cpus), int(memory_mib), gpus_of(gres), address)
    return tuple(found.values())


def describe(
    cluster: str,
    nodes: Iterable[Node],
    switches: Mapping[str, tuple[str, str]],
    options: SlurmOptions,
    *,
    partitions: str = "",
    model: str = "",
) -> Discovered:
    """The hosts that a fleet can have; ``switches`` has rack and pod of those that are in some."""
    left_out = [
        f"{node.name}: GPUs of types {', '.join(sorted(node.gpus))}; hosts have one model"
        for node in nodes
        if len(node.gpus) > 1
    ]
    usable = [node for node in nodes if len(node.gpus) <= 1]
    models = _models({of_type for node in usable for of_type in node.gpus}, options, model)
    hosts = tuple(_host(node, models, switches, options) for node in usable)
    return Discovered(
        cluster, hosts, _options(usable, models, options, partitions), tuple(left_out)
    )


def _listen(
    nodes: Sequence[Node], options: SlurmOptions
) -> tuple[dict[str, str | int], tuple[str, ...]]:
    """Where runners call home, unless that was given or hosts are on this machine; a note of it."""
    if options.listen != SlurmOptions().listen or options.advertise:
        return {}, ()
    address = address_towards(node.address for node in nodes[:ASKED])
    if not address:
        return {}, (
            "the hosts call home to this machine, and none of their addresses is known here: set "
            "option `listen: ADDRESS:PORT` to an address of this machine that they reach",
        )
    if ip_address(address.partition("%")[0]).is_loopback:
        return {}, ()
    listen = f"[{address}]:0" if ":" in address else f"{address}:0"
    return {"listen": listen}, (
        f"the hosts call home to {listen} of this machine (option `listen`): write another "
        "address there if they reach it by another, and a port if a firewall lets only some pass",
    )


def _host(
    node: Node, models: Mapping[str, str], switches: Mapping[str, tuple[str, str]],
    options: SlurmOptions,
) -> HostSpec:  # fmt: skip
    host = HostSpec(
        name=f"{options.host_prefix}{node.name}",
        model="",
        gpus=0,
        cpus=float(node.cpus),
        memory_bytes=node.memory_mib * MIB,
    )
    for of_type, count in node.gpus.items():
        size = _GPU_MEMORY.search(of_type.lower())
        gpu_memory_bytes = int(size[1]) * 10**9 if size else 0
        host = structs.replace(
            host, model=models[of_type], gpus=count, gpu_memory_bytes=gpu_memory_bytes
        )
    rack, pod = switches.get(node.name, ("", ""))
    return structs.replace(host, rack=rack, pod=pod)


def _models(types: Iterable[str], options: SlurmOptions, model: str) -> dict[str, str]:
    """What a fleet calls each type: as the options say, else by a short name such as H100.

    Two types with one short name (40 and 80 GB) keep names of their own.
    """
    called = {options.gpu_type(name): name for name in options.gpu}
    short = {of_type: called.get(of_type) or short_model(of_type) for of_type in sorted(types)}
    if "" in short:
        if not (model or "" in called):
            raise InvalidInput(
                "the site does not say of which type its GPUs are", field="slurm",
                remedy="name their model with --gpu, such as --gpu H100",
            )  # fmt: skip
        short[""] = called.get("") or model
    uses = Counter(short.values())
    return {of_type: name if uses[name] == 1 else of_type for of_type, name in short.items()}


def _options(
    nodes: Iterable[Node], models: Mapping[str, str], options: SlurmOptions, partitions: str
) -> dict[str, str | int]:
    """What submitting needs, as far as it is known from here."""
    found: dict[str, str | int] = {"partition": partitions} if partitions else {}
    for of_type, name in models.items():
        if of_type != name and options.gpu.get(name) != (of_type or ANY_TYPE):
            found[f"gpu.{name}"] = of_type or ANY_TYPE
    shares = [(node, sum(node.gpus.values())) for node in nodes if node.gpus]
    # A job that names no CPUs would get one, and one that names no memory perhaps all.
    if shares and not options.cpus_per_gpu:
        found["cpus_per_gpu"] = max(1, min(node.cpus // gpus for node, gpus in shares))
    if shares and not options.memory_mib_per_gpu:
        least = min(node.memory_mib // gpus for node, gpus in shares)
        found |= {"memory_mib_per_gpu": least} if least else {}
    return found


def _cluster_name(said: str) -> str:
    found = re.search(r"^ClusterName\s*=\s*(\S+)", said, re.MULTILINE)
    return found[1] if found else "slurm"


def _switches(commands: Commands) -> dict[str, tuple[str, str]]:
    """Rack and pod of each host: the switch that it is at, and the one above that."""
    try:
        said = commands.ask("scontrol", "show", "topology")
    except Refused:
        return {}  # a site without a topology
    levels: list[dict[str, str]] = [{}, {}]
    for name, level, hosts in read_switches(said):
        if level < len(levels):
            for host in commands.ask("scontrol", "show", "hostnames", hosts).split():
                levels[level].setdefault(host, name)
    racks, pods = levels
    return {host: (rack, pods.get(host, "")) for host, rack in racks.items()}


def read_switches(said: str) -> Iterator[tuple[str, int, str]]:
    """Name, level and hosts of each switch in an answer of ``scontrol show topology``."""
    for line in said.splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if words.get("SwitchName") and words.get("Nodes") and words.get("Level", "").isdecimal():
            yield words["SwitchName"], int(words["Level"]), words["Nodes"]
