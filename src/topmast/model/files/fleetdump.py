"""A fleet as the document of a fleet file, which `parse_fleet` reads back as the same fleet."""

from __future__ import annotations

import re
from typing import Any

import yaml

from topmast.model.absent import given
from topmast.model.files.fleetfile import BYTES_PER_S_PER_GBPS
from topmast.model.fleet import ClusterSpec, DatasetSpec, Fleet, HostSpec, Link, TenantSpec
from topmast.model.units import exact_bytes

_VERSION_LINE = re.compile(rb"# version (\S+):")


def fleet_text(document: dict[str, Any], version: str) -> str:
    """A fleet file that says of which version of the fleet it is. O(hosts): seconds for many."""
    told = f"# version {version}: `topmast fleet apply` refuses this file if the fleet has another"
    return f"{told}\n{yaml.safe_dump(document, sort_keys=False)}"


def version_in(text: bytes) -> str | None:
    """The version that `fleet_text` wrote into a file, if it did."""
    found = _VERSION_LINE.match(text)
    return None if found is None else found[1].decode(errors="replace")


def dump_fleet(fleet: Fleet) -> dict[str, Any]:
    """The document. O(hosts)."""
    regions = {
        region.name: _given(
            storage=None if region.storage_bytes is None else exact_bytes(region.storage_bytes),
            store=region.store,
            prices=given(region.prices, {}),
            clusters={cluster.name: _cluster(cluster) for cluster in region.clusters},
        )
        for region in fleet.regions
    }
    return _given(
        regions=regions,
        links=[_link(link) for link in fleet.links],
        tenants={tenant.name: _tenant(tenant) for tenant in fleet.tenants},
        datasets={dataset.name: _dataset(dataset) for dataset in fleet.datasets},
        prices=given(fleet.prices, {}),
    )


def _cluster(cluster: ClusterSpec) -> dict[str, Any]:
    entries: list[tuple[HostSpec, list[str]]] = []
    for host in cluster.hosts:
        if not entries or not _alike(entries[-1][0], host):
            entries.append((host, []))
        entries[-1][1].append(host.name)
    return _given(
        engine=cluster.engine, options=cluster.options, image=given(cluster.image, ""),
        paths=given(cluster.paths, {}), hosts=[_hosts(host, names) for host, names in entries],
    )  # fmt: skip


def _alike(one: HostSpec, other: HostSpec) -> bool:
    fields = [name for name in HostSpec.__struct_fields__ if name != "name"]
    return all(getattr(one, name) == getattr(other, name) for name in fields)


def _hosts(host: HostSpec, names: list[str]) -> dict[str, Any]:
    memory = exact_bytes(host.memory_bytes) if host.memory_bytes else ""
    gpu_memory = exact_bytes(host.gpu_memory_bytes) if host.gpu_memory_bytes else ""
    found = _given(
        names=names, gpu=host.model, gpu_memory=gpu_memory, cpus=host.cpus, memory=memory,
        datacenter=host.datacenter, pod=host.pod, rack=host.rack,
    )  # fmt: skip
    return {**found, "gpus": host.gpus}


def _link(link: Link) -> dict[str, Any]:
    return _given(
        **{"from": link.source, "to": link.target}, gbps=link.bytes_per_s / BYTES_PER_S_PER_GBPS,
        usd_per_gb=link.usd_per_gb, one_way=True,
    )  # fmt: skip


def _tenant(tenant: TenantSpec) -> dict[str, Any]:
    found = {
        "parent": tenant.parent, "quota": tenant.quota, "borrow_limit": tenant.borrow_limit,
        "lend_limit": tenant.lend_limit, "weight": tenant.weight, "budget": _budget(tenant),
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def _budget(tenant: TenantSpec) -> dict[str, Any] | None:
    budget = tenant.budget
    if not budget:
        return None
    return _given(gpu_hours=budget.gpu_hours, usd=budget.usd, at_limit=budget.at_limit.value)


def _dataset(dataset: DatasetSpec) -> dict[str, Any]:
    return _given(
        size=exact_bytes(dataset.size_bytes), path=dataset.path, replicas=list(dataset.replicas),
        allowed=None if dataset.allowed is None else list(dataset.allowed),
        min_replicas=dataset.min_replicas,
    )  # fmt: skip


def _given(**fields: Any) -> dict[str, Any]:
    """Fields that say something."""
    return {name: value for name, value in fields.items() if value not in (None, "", 0, {}, [])}
