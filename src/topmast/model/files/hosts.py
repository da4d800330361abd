"""The hosts of one cluster: each entry of a fleet file stands for `count` like hosts.

Hosts are numbered through the cluster, racks and pods too. An entry with `rack_size` begins a new
rack and fills racks of that size; with `pod_size` it begins a new pod and fills pods of that many
racks. Entries without share one rack, or one pod, per datacenter of the cluster.
"""

from __future__ import annotations

from msgspec import structs

from topmast.model.files.fields import Record, Value
from topmast.model.fleet import HostSpec
from topmast.model.units import parse_memory_gb

MAX_GPUS_PER_HOST = 65_536
MAX_CPUS = 1_000_000

_FIELDS = (
    "count", "name", "gpu", "gpus", "gpu_memory", "cpus", "memory", "rack_size", "pod_size",
    "datacenter",
)  # fmt: skip
_MEMORY = "an amount of memory: GB as a number, or 64GiB"


class Hosts:
    """The hosts of a cluster, entry by entry."""

    def __init__(self, cluster: str, region: str) -> None:
        self.found: list[HostSpec] = []
        self._cluster = cluster
        self._region = region
        self._numbers: dict[str, int] = {}
        self._numbers_of_places: dict[str, int] = {}
        self._shared: dict[tuple[str, str], str] = {}

    def read(self, entry: Value, room: int) -> list[HostSpec]:
        """The hosts of one entry; at most ``room`` more may be in the fleet."""
        fields = entry.record(_FIELDS)
        count = fields.need("count", "4").integer(low=1, high=100_000)
        if count > room:
            raise fields.need("count").error("the fleet has too many hosts", "at most 100,000")
        model, gpus = self._gpus(fields)
        gpu_memory, cpus, memory = (fields.get(f) for f in ("gpu_memory", "cpus", "memory"))
        prefix, datacenter = fields.get("name"), fields.get("datacenter")
        kind = HostSpec(
            name=prefix.name() if prefix else self._cluster,
            model=model,
            gpus=gpus,
            gpu_memory_bytes=gpu_memory.quantity(parse_memory_gb, _MEMORY) if gpu_memory else 0,
            cpus=cpus.number(high=MAX_CPUS) if cpus else 0.0,
            memory_bytes=memory.quantity(parse_memory_gb, _MEMORY) if memory else 0,
            datacenter=datacenter.name() if datacenter else self._region,
        )
        made = self._placed(kind, count, fields)
        self.found += made
        return made

    def _gpus(self, fields: Record) -> tuple[str, int]:
        """The GPU model and how many of it a host has; a host without GPUs has no model."""
        number = fields.need("gpus", "8")
        gpus = number.integer(low=0, high=MAX_GPUS_PER_HOST)
        named = fields.get("gpu")
        if named is None:
            if gpus:
                fields.need("gpu", "H100")
            return "", 0
        model = named.check_model(named.raw(limit_bytes=4096))
        return (model, gpus) if gpus else ("", 0)

    def _placed(self, kind: HostSpec, count: int, fields: Record) -> list[HostSpec]:
        """``count`` hosts like ``kind``, named and put into racks and pods."""
        rack_size, pod_size = fields.get("rack_size"), fields.get("pod_size")
        hosts_per_rack = rack_size.integer(low=1, high=100_000) if rack_size else None
        racks_per_pod = pod_size.integer(low=1, high=100_000) if pod_size else None
        if pod_size and not rack_size:
            raise pod_size.error("counts racks, and there is no rack_size", "give both")
        first = self._numbers.get(kind.name, 0)
        self._numbers[kind.name] = first + count
        rack = "" if hosts_per_rack else self._shared_name("r", kind.datacenter)
        pod = "" if racks_per_pod else self._shared_name("p", kind.datacenter)
        made = []
        for index in range(count):
            if hosts_per_rack and index % hosts_per_rack == 0:
                rack = self._new_name("r")
                if racks_per_pod and index // hosts_per_rack % racks_per_pod == 0:
                    pod = self._new_name("p")
            name = f"{kind.name}-{first + index}"
            made.append(structs.replace(kind, name=name, rack=rack, pod=pod))
        return made

    def _new_name(self, level: str) -> str:
        """The name of the next rack (``r``) or pod (``p``) of the cluster."""
        number = self._numbers_of_places.get(level, 0)
        self._numbers_of_places[level] = number + 1
        return f"{self._cluster}-{level}{number}"

    def _shared_name(self, level: str, datacenter: str) -> str:
        """The rack or pod of all hosts in ``datacenter`` that are not put into one of a size."""
        place = (level, datacenter)
        if place not in self._shared:
            self._shared[place] = self._new_name(level)
        return self._shared[place]
