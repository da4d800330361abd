"""One data placement to be decided, as its file says it: regions, tables, workloads, links,
prices.
"""

from __future__ import annotations

from msgspec import Struct, field

Bytes = int | float
Segments = tuple[tuple[float, float], ...]


class Region(Struct, frozen=True, forbid_unknown_fields=True):
    """A region: what it can store, and what it can run, in bytes, GPUs by model, and CPUs."""

    name: str
    storage_bytes: Bytes
    gpus: dict[str, float] = {}
    cpus: float = 0.0


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """A table: its size, its regions at the start, and where it may lie (None: anywhere)."""

    name: str
    bytes: Bytes
    replicas: tuple[str, ...] = ()
    allowed: tuple[str, ...] | None = None
    min_replicas: int = 1


class Workload(Struct, frozen=True, forbid_unknown_fields=True):
    """Workloads that read the same tables together, and what they want, in GPUs by model and
    CPUs.
    """

    name: str
    tables: tuple[str, ...] = ()
    gpus: dict[str, float] = {}
    cpus: float = 0.0
    kind: str = ""


class Link(Struct, frozen=True, forbid_unknown_fields=True):
    """What can be copied one way between two regions in one period."""

    source: str = field(name="from")
    target: str = field(name="to")
    bytes_per_period: Bytes = 0


class Prices(Struct, frozen=True, forbid_unknown_fields=True):
    """The prices, all in one currency for one period.

    ``overload_gpu`` holds ``(up_to_fraction, price)``: GPUs beyond the supply cost the first
    price up to that fraction of the supply, and so on; the last price goes on without end.
    """

    non_collocated_gpu: float
    overload_gpu: Segments
    replica_byte: float
    moved_byte: float
    non_collocated_cpu: float = 0.0


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    """A whole problem. ``move_budget_bytes`` None: only the links limit what is copied."""

    regions: tuple[Region, ...]
    tables: tuple[Table, ...]
    prices: Prices
    workloads: tuple[Workload, ...] = ()
    links: tuple[Link, ...] = ()
    move_budget_bytes: Bytes | None = None
