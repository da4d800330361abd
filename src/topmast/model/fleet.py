"""The fleet: regions, clusters, hosts, links, tenants and datasets as configured."""

from __future__ import annotations

from msgspec import Struct


class HostSpec(Struct, frozen=True):
    """One machine. ``cpus`` 0 and ``memory_bytes`` 0 mean: not limiting."""

    name: str
    model: str
    gpus: int
    gpu_memory_bytes: int = 0
    cpus: float = 0.0
    memory_bytes: int = 0
    datacenter: str = ""
    pod: str = ""
    rack: str = ""


class ClusterSpec(Struct, frozen=True):
    """What one engine runs. Names are unique in the fleet."""

    name: str
    hosts: tuple[HostSpec, ...]
    engine: str = "local"
    options: dict[str, str] = {}


class RegionSpec(Struct, frozen=True):
    """A place with clusters and one store for datasets; ``storage_bytes`` None does not limit.

    ``store`` is a directory or a URL of an object store; empty: a directory of the state folder.
    """

    name: str
    clusters: tuple[ClusterSpec, ...]
    storage_bytes: int | None = None
    store: str = ""


class Link(Struct, frozen=True):
    """A directed link between two regions."""

    source: str
    target: str
    bytes_per_s: float
    usd_per_gb: float = 0.0


class TenantSpec(Struct, frozen=True):
    """A node in the tree of tenants and its quota in whole GPUs per model; ``quota`` None states none.

    ``borrow_limit`` caps the GPUs per model held beyond the quota, ``lend_limit`` those of the quota
    that others may use while they are idle; None does not limit. ``parent`` None: a tree's root.
    """

    name: str
    quota: dict[str, int] | None = None
    borrow_limit: dict[str, int] | None = None
    weight: float = 1.0
    lend_limit: dict[str, int] | None = None
    parent: str | None = None


class DatasetSpec(Struct, frozen=True):
    """A table or directory, and the regions that hold it at the start.

    ``path`` is relative to each region's store. ``allowed`` None: any region (no residency rule).
    """

    name: str
    size_bytes: int
    path: str
    replicas: tuple[str, ...] = ()
    allowed: tuple[str, ...] | None = None
    min_replicas: int = 1


class Fleet(Struct, frozen=True):
    """Everything a fleet file says."""

    regions: tuple[RegionSpec, ...]
    links: tuple[Link, ...] = ()
    tenants: tuple[TenantSpec, ...] = ()
    datasets: tuple[DatasetSpec, ...] = ()

    def models(self) -> tuple[str, ...]:
        """Every GPU model present, sorted."""
        return tuple(sorted(self.gpus()))

    def gpus(self) -> dict[str, int]:
        """How many GPUs of each model are configured, out of service or not."""
        found: dict[str, int] = {}
        for host in (h for r in self.regions for c in r.clusters for h in c.hosts if h.gpus):
            found[host.model] = found.get(host.model, 0) + host.gpus
        return found

    def quotas(self) -> dict[str, int]:
        """How many GPUs of each model the quotas of all trees of tenants promise together.

        What is stated below a quota is within it; a tenant that states none promises what those below it do.
        """
        below: dict[str | None, list[TenantSpec]] = {}
        for tenant in self.tenants:
            below.setdefault(tenant.parent, []).append(tenant)
        found: dict[str, int] = {}
        open_tenants = [*below.get(None, ())]
        while open_tenants:
            tenant = open_tenants.pop()
            if tenant.quota is None:
                open_tenants += below.get(tenant.name, ())
            for model, gpus in (tenant.quota or {}).items():
                found[model] = found.get(model, 0) + gpus
        return found

    def gpu_memory_bytes(self) -> dict[str, int]:
        """The memory of a GPU by model, the least of its hosts; without models of which none says it."""
        found: dict[str, int] = {}
        for host in (h for r in self.regions for c in r.clusters for h in c.hosts if h.gpus):
            if host.gpu_memory_bytes:
                known = found.get(host.model, host.gpu_memory_bytes)
                found[host.model] = min(known, host.gpu_memory_bytes)
        return found
