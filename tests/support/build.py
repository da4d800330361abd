"""Builders: fleets, jobs and profiles, of which a test says only what its story is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from topmast.model.fleet import (
    ClusterSpec,
    DatasetSpec,
    Fleet,
    HostSpec,
    Link,
    RegionSpec,
    TenantSpec,
)
from topmast.model.job import MILLI, Accelerator, Band, JobSpec, Resources, TaskGroup
from topmast.model.plan import FREE, GroupRequest, Mode, PlacementRequest, Preempt
from topmast.policies.options import Profile

LINK_BYTES_PER_S = 1e9


def profile(**options: Any) -> Profile:
    """A profile whose jobs may be preempted at once, unless told otherwise."""
    return Profile(**{"name": "test", "min_runtime_s": 0.0, "restart_cost_s": 1.0, **options})


def cluster(
    name: str, hosts: int = 2, gpus: int = 8, model: str = "H100", **more: Any
) -> ClusterSpec:
    """A cluster of equal hosts ``NAME-0``, ``NAME-1``, ..., two to a rack, four to a pod."""
    return ClusterSpec(
        name,
        tuple(
            HostSpec(f"{name}-{i}", model, gpus, rack=f"r{i // 2}", pod=f"p{i // 4}", **more)
            for i in range(hosts)
        ),
    )


def fleet(
    *clusters: ClusterSpec,
    tenants: tuple[TenantSpec, ...] = (TenantSpec("default"),),
    datasets: tuple[DatasetSpec, ...] = (),
    links: tuple[Link, ...] | None = None,
    storage_bytes: dict[str, int] | None = None,
) -> Fleet:
    """A region for each cluster, named after it up to the dash; links between all of them."""
    owned: dict[str, list[ClusterSpec]] = {}
    for spec in clusters:
        owned.setdefault(spec.name.split("-")[0], []).append(spec)
    if links is None:
        links = tuple(Link(a, b, LINK_BYTES_PER_S) for a in owned for b in owned if a != b)
    limits = storage_bytes or {}
    regions = tuple(RegionSpec(name, tuple(of), limits.get(name)) for name, of in owned.items())
    return Fleet(regions, links, tenants, datasets)


def dataset(name: str, *replicas: str, size_bytes: int = 10**9, **more: Any) -> DatasetSpec:
    """A dataset that a link copies in one second."""
    return DatasetSpec(name, size_bytes, f"data/{name}", replicas, **more)


def tenant(
    name: str,
    parent: str | None = None,
    *,
    weight: float = 1.0,
    borrow: int | None = None,
    lend: int | None = None,
    **quota: int,
) -> TenantSpec:
    """A tenant with a quota by model (``H100=8``); ``borrow`` and ``lend`` limit those of each."""
    assert quota or (borrow is None and lend is None), "no fleet file has limits without a quota"
    limits = [None if limit is None else dict.fromkeys(quota, limit) for limit in (borrow, lend)]
    return TenantSpec(name, quota or None, limits[0], weight, limits[1], parent)


def needs(gpus: float = 0, *models: str | None, cpus: float = 0.0, memory: int = 0) -> Resources:
    """Resources of a task: ``gpus`` of one of ``models``, in order of preference."""
    listed = tuple(Accelerator(model, round(gpus * MILLI)) for model in models or ("H100",))
    return Resources(listed if gpus else (), float(cpus), memory)


def job(
    name: str = "job",
    gpus: float = 1,
    count: int = 1,
    model: str | None = "H100",
    band: Band = Band.NORMAL,
    **more: Any,
) -> JobSpec:
    """A gang of ``count`` equal tasks with ``gpus`` each."""
    resources = more.pop("resources", None) or needs(gpus, model)
    return JobSpec(name, (TaskGroup("main", count, resources, "true"),), band=band, **more)


def elastic(spec: JobSpec, fewest: int, most: int, group: int = 0) -> JobSpec:
    """The same job, of which one group may have from ``fewest`` to ``most`` tasks."""
    groups = list(spec.groups)
    groups[group] = replace(groups[group], min_count=fewest, max_count=most)
    return replace(spec, groups=tuple(groups))


def gang(groups: Mapping[str, tuple[int, Resources]], name: str = "gang", **more: Any) -> JobSpec:
    """A gang of several groups: ``gang({"trainer": (2, needs(8)), "reader": (4, needs(cpus=4))})``."""
    built = tuple(
        TaskGroup(group, count, resources, "true") for group, (count, resources) in groups.items()
    )
    return JobSpec(name, built, **more)


def ask(
    spec: JobSpec, *, preempt: bool = False, mode: Mode = FREE, **more: Any
) -> PlacementRequest:
    """The request that a queue puts to a region for a job named ``j1``."""
    groups = tuple(GroupRequest(g.name, g.count, g.resources) for g in spec.groups)
    band = more.pop("band", spec.band)
    return PlacementRequest(
        "j1", groups, spec.topology, band, Preempt() if preempt else mode, **more
    )
