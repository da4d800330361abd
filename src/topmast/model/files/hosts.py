"""The hosts of one cluster: an entry stands for `count` like hosts, or for those that it `names`.

Counted hosts are numbered through the cluster, racks and pods too. An entry with `rack_size` begins
a new rack and fills racks of that size; with `pod_size` it begins a new pod and fills pods of that
many racks. Entries without share one rack, or one pod, per datacenter of the cluster, unless they
name it.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from topmast.model.files.fields import Record, Value
from topmast.model.fleet import HostSpec
from topmast.model.units import parse_memory_gb, show

MAX_GPUS_PER_HOST = 65_536
MAX_CPUS = 1_000_000

_FIELDS = (
    "count", "name", "names", "gpu", "gpus", "gpu_memory", "cpus", "memory", "rack", "rack_size",
    "pod", "pod_size", "datacenter",
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
        listed = fields.get("names")
        names = _names(listed, fields) if listed else ()
        count = len(names) or fields.need("count", "4").integer(low=1, high=100_000)
        if count > room:
            where = listed or fields.need("count")
            raise where.error("the fleet has too many hosts", "at most 100,000")
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
        names = names or self._numbered(kind.name, count)
        made = [
            structs.replace(kind, name=name, rack=rack, pod=pod)
            for name, (rack, pod) in zip(names, self._places(kind, count, fields), strict=True)
        ]
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

    def _numbered(self, prefix: str, count: int) -> tuple[str, ...]:
        first = self._numbers.get(prefix, 0)
        self._numbers[prefix] = first + count
        return tuple(f"{prefix}-{first + index}" for index in range(count))

    def _places(self, kind: HostSpec, count: int, fields: Record) -> Iterator[tuple[str, str]]:
        """Rack and pod of each of ``count`` hosts."""
        rack_size, pod_size = _size(fields, "rack"), _size(fields, "pod")
        if pod_size and not rack_size:
            remedy = "give both"
            raise fields.need("pod_size").error("counts racks, and there is no rack_size", remedy)
        rack = "" if rack_size else self._given(fields, "rack", kind.datacenter)
        pod = "" if pod_size else self._given(fields, "pod", kind.datacenter)
        for index in range(count):
            if rack_size and index % rack_size == 0:
                rack = self._new_name("r")
                if pod_size and index // rack_size % pod_size == 0:
                    pod = self._new_name("p")
            yield rack, pod

    def _given(self, fields: Record, place: str, datacenter: str) -> str:
        """The rack or pod that an entry names, or the one that its datacenter shares."""
        named = fields.get(place)
        return named.name() if named else self._shared_name(place[0], datacenter)

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


def _names(value: Value, fields: Record) -> tuple[str, ...]:
    """The hosts that an entry names one by one."""
    for other in ("count", "name"):
        if (field := fields.get(other)) is not None:
            raise field.error("the entry has names already", f"give names or {other}, not both")
    names: dict[str, None] = {}
    for item in value.items(limit=100_000):
        if (name := item.name()) in names:
            raise item.error(f"the host {show(name)} is listed twice", "list it once")
        names[name] = None
    if not names:
        raise value.error("names no host", "for example names: [gpu-001, gpu-002]")
    return tuple(names)


def _size(fields: Record, place: str) -> int | None:
    """How many a rack or a pod holds, if the entry says so."""
    size = fields.get(f"{place}_size")
    if size and fields.get(place):
        raise size.error(f"the entry names its {place} already", f"give {place} or {place}_size")
    return size.integer(low=1, high=100_000) if size else None
