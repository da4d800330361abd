"""The fleet: regions, clusters, hosts, links, tenants and datasets as configured."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from topmast.model.absent import given
from topmast.model.budget import Budget
from topmast.model.engines import PROCESSES, Capability, Deadlines


class HostSpec(Struct, frozen=True):
    """One machine."""

    name: str
    model: str
    gpus: int
    gpu_memory_bytes: int = 0
    """Of one GPU; 0 if unknown."""
    cpus: float = 0.0
    """0 does not limit."""
    memory_bytes: int = 0
    """0 does not limit."""
    datacenter: str = ""
    pod: str = ""
    rack: str = ""


class ClusterSpec(Struct, frozen=True):
    """What one engine runs. Names are unique in the fleet."""

    name: str
    hosts: tuple[HostSpec, ...]
    engine: str = "local"
    options: dict[str, str] = {}
    image: str | UnsetType = UNSET
    """The container image of jobs that name none; absent: they run without."""
    paths: dict[str, str] | UnsetType = UNSET
    """Folders of this machine, and where the cluster's hosts have the same; absent: all as here."""
    capabilities: tuple[Capability, ...] | UnsetType = UNSET
    """Of its engine, told by the process that reads the fleet file; absent: as `PROCESSES`."""
    deadlines: Deadlines | UnsetType = UNSET
    """Of its engine with the options, told likewise; absent: the default."""

    def can(self, capability: Capability) -> bool:
        """Whether its engine has a capability."""
        return capability in given(self.capabilities, PROCESSES)

    def path_there(self, path: str) -> str:
        """Where its hosts have what is at an absolute path here: by the longest folder mapped."""
        mapped = given(self.paths, {})
        for here in sorted(mapped, key=len, reverse=True):
            inside = path[len(here.rstrip("/")) :]
            if path.startswith(here.rstrip("/")) and (not inside or inside.startswith("/")):
                return mapped[here].rstrip("/") + inside
        return path


class RegionSpec(Struct, frozen=True):
    """A place with clusters and one store for datasets."""

    name: str
    clusters: tuple[ClusterSpec, ...]
    storage_bytes: int | None = None
    """None does not limit."""
    store: str = ""
    """A directory or a URL of an object store; empty: a directory of the state folder."""
    prices: dict[str, float] | UnsetType = UNSET
    """USD for an hour of one GPU, by model; else the price of the fleet."""


class Link(Struct, frozen=True):
    """A directed link between two regions."""

    source: str
    target: str
    bytes_per_s: float
    usd_per_gb: float = 0.0


class TenantSpec(Struct, frozen=True):
    """A node in the tree of tenants, with its quota."""

    name: str
    quota: dict[str, int] | None = None
    """Whole GPUs by model; None states none."""
    borrow_limit: dict[str, int] | None = None
    """The most GPUs, by model, held beyond the quota; None does not limit."""
    weight: float = 1.0
    lend_limit: dict[str, int] | None = None
    """The most idle GPUs of the quota, by model, that others may use; None does not limit."""
    parent: str | None = None
    """None: the root of a tree."""
    budget: Budget | UnsetType = UNSET
    """What it may spend in a month; absent: there is no limit."""


class DatasetSpec(Struct, frozen=True):
    """A table or directory, and the regions that hold it at the start."""

    name: str
    size_bytes: int
    path: str
    """Relative to each region's store."""
    replicas: tuple[str, ...] = ()
    allowed: tuple[str, ...] | None = None
    """The regions that may hold it; None: any region (no residency rule)."""
    min_replicas: int = 1


class Fleet(Struct, frozen=True):
    """Everything a fleet file says."""

    regions: tuple[RegionSpec, ...]
    links: tuple[Link, ...] = ()
    tenants: tuple[TenantSpec, ...] = ()
    datasets: tuple[DatasetSpec, ...] = ()
    prices: dict[str, float] | UnsetType = UNSET
    """USD for an hour of one GPU, by model."""

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

        A quota includes the quotas below it. A tenant without a quota promises the sum of those
        below it.
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
        """The memory of a GPU by model, if known: the least of its hosts."""
        found: dict[str, int] = {}
        for host in (h for r in self.regions for c in r.clusters for h in c.hosts if h.gpus):
            if host.gpu_memory_bytes:
                known = found.get(host.model, host.gpu_memory_bytes)
                found[host.model] = min(known, host.gpu_memory_bytes)
        return found
