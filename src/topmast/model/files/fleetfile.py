"""The fleet file: regions, clusters, hosts, links, tenants and datasets, read into a `Fleet`.

`read_fleet` reads a file, `parse_fleet` a document that is in memory already. What an engine has to
say of its clusters comes in by a check. Regions come first;
what refers to a region or a GPU model is checked against them, and a word that is not known
suggests the nearest one that is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET

from topmast.model.dataset import Paths
from topmast.model.errors import Faults, InvalidInput
from topmast.model.files.documents import from_document
from topmast.model.files.every import every_error, line_of
from topmast.model.files.fields import Record, Value
from topmast.model.files.hosts import Hosts
from topmast.model.files.source import FLEET_LIMITS, JOB_LIMITS, Node, read_file
from topmast.model.files.tenants import read_tenants
from topmast.model.fleet import (
    ClusterSpec,
    DatasetSpec,
    Fleet,
    HostSpec,
    Link,
    RegionSpec,
)
from topmast.model.units import parse_bytes, show

MAX_REGIONS = 1_000
MAX_CLUSTERS = 10_000
MAX_HOSTS = 100_000
MAX_GPUS = 10_000_000
MAX_DATASETS = 100_000
MAX_OPTIONS = 100
MAX_PATHS = 100
MAX_GBPS = 1e6
MAX_USD_PER_GB = 1e6
MAX_USD_PER_GPU_H = 1e6
MAX_PRICES = 1_000
BYTES_PER_S_PER_GBPS = 1e9 / 8

OWN_FOLDER = "give each dataset a folder of its own: dropping it deletes the whole folder"

_FLEET_FIELDS = ("regions", "links", "tenants", "datasets", "prices")
_REGION_FIELDS = ("storage", "store", "clusters", "prices")
_CLUSTER_FIELDS = ("engine", "options", "hosts", "image", "paths")
_LINK_FIELDS = ("from", "to", "gbps", "usd_per_gb", "one_way")
_DATASET_FIELDS = ("size", "path", "replicas", "allowed", "min_replicas")


Check = Callable[[Fleet], None]
"""Raises InvalidInput for a fault that the reader cannot know, with the field of the document."""


def read_fleet(path: Path, check: Check | None = None) -> Fleet:
    """The fleet in the file at ``path``. What ``check`` finds is told with all other faults."""
    node = read_file(path, FLEET_LIMITS)
    where = str(path) if str(path).isprintable() else show(str(path))
    return _read(node, where, check)


def parse_fleet(
    document: Mapping[str, Any], *, where: str = "request", check: Check | None = None
) -> Fleet:
    """The fleet in ``document``; ``check`` as in `read_fleet`."""
    return _read(from_document(document, where, FLEET_LIMITS), where, check)


def _read(node: Node, where: str, check: Check | None) -> Fleet:
    def read(document: Node) -> Fleet:
        fleet = _fleet(Value(document, "", where))
        try:
            if check is not None:
                check(fleet)
        except InvalidInput as error:
            line = line_of(node, error.field)
            raise error.at(where=f"{where}:{line}" if line else where) from None
        return fleet

    return every_error(read, node)


def parse_dataset(
    name: str, document: Mapping[str, Any], *, regions: Collection[str], where: str = "request"
) -> DatasetSpec:
    """A dataset to be added to a running fleet with these ``regions``."""
    faults = Faults()
    node = from_document(document, where, JOB_LIMITS)
    faults.of(lambda: Value(node, "name", where).check_name(name))
    named = "dataset" if faults else name  # a fault is told once
    found = faults.of(
        lambda: every_error(lambda known: _dataset(named, Value(known, "", where), regions), node)
    )
    faults.refuse()
    return found


def _fleet(root: Value) -> Fleet:
    fleet = root.record(_FLEET_FIELDS)
    regions = _regions(fleet)
    names = {region.name: region for region in regions}
    models = Fleet(regions=regions).models()
    if not models:
        raise root.error("the fleet has no GPUs", "give at least one host gpu and gpus")
    return Fleet(
        regions=regions,
        links=_links(fleet.get("links"), names),
        tenants=read_tenants(fleet.get("tenants"), models),
        datasets=_datasets(fleet.get("datasets"), names),
        prices=_prices(fleet.get("prices")) or UNSET,
    )


# ----------------------------------------------------------------------------- regions to clusters


class _Totals:
    """What is counted and kept unique over the whole fleet."""

    def __init__(self) -> None:
        self.clusters: dict[str, str] = {}
        self.hosts: dict[str, str] = {}
        self.gpus = 0


def _regions(fleet: Record) -> tuple[RegionSpec, ...]:
    listed = fleet.need("regions").entries(limit=MAX_REGIONS, wanted="a mapping of regions")
    if not listed:
        raise fleet.need("regions").error("names no region", "a fleet has at least one")
    totals = _Totals()
    return tuple([_region(name, value, totals) for name, value in listed.items()])


def _region(name: str, value: Value, totals: _Totals) -> RegionSpec:
    value.check_name(name)
    fields = value.record(_REGION_FIELDS)
    storage, store, clusters = fields.get("storage"), fields.get("store"), fields.need("clusters")
    listed = clusters.entries(limit=MAX_CLUSTERS, wanted="a mapping of clusters")
    if not listed:
        raise clusters.error("names no cluster", "a region has at least one")
    return RegionSpec(
        name=name,
        clusters=tuple([_cluster(key, part, name, totals) for key, part in listed.items()]),
        storage_bytes=storage.quantity(parse_bytes, "a size such as 100TB") if storage else None,
        store=_store(store) if store else "",
        prices=_prices(fields.get("prices")) or UNSET,
    )


def _prices(value: Value | None) -> dict[str, float]:
    """USD for an hour of one GPU, by model. A model may have come and gone."""
    listed = (
        value.entries(limit=MAX_PRICES, wanted="a mapping of GPU models to USD") if value else {}
    )
    return {
        part.check_model(model): part.number(high=MAX_USD_PER_GPU_H)
        for model, part in listed.items()
    }


def _store(value: Value) -> str:
    text = value.text()
    return text if "://" in text else value.no_url(text, "a bucket is s3://BUCKET/PREFIX")


def _cluster(name: str, value: Value, region: str, totals: _Totals) -> ClusterSpec:
    value.check_name(name)
    if name in totals.clusters:
        first = totals.clusters[name]
        message = f"a second cluster named {show(name)}, after {first}"
        raise value.error(message, "rename one: names of clusters are unique in the fleet")
    totals.clusters[name] = value.field
    fields = value.record(_CLUSTER_FIELDS)
    engine, options, hosts = fields.get("engine"), fields.get("options"), fields.need("hosts")
    image, paths = fields.get("image"), fields.get("paths")
    found = _hosts(hosts, name, region, totals)
    given = options.entries(limit=MAX_OPTIONS) if options else {}
    settings = {key: _option(option) for key, option in given.items()}
    named_image = image.image() if image else UNSET
    unknown = fields.is_aside("engine")  # what is said to it is not said to another
    return ClusterSpec(
        name=name,
        hosts=found,
        engine=engine.name() if engine else "local",
        options={} if unknown else settings,
        image=UNSET if unknown else named_image,
        paths=_paths(paths) if paths else UNSET,
    )


def _paths(value: Value) -> dict[str, str]:
    """Where the hosts have folders of this machine, by folder."""
    found: dict[str, str] = {}
    for here, there in value.entries(limit=MAX_PATHS).items():
        folder = there.absolute_path(here)
        if folder in found:
            raise there.error(f"a second entry for {show(folder)}", "keep one")
        found[folder] = there.absolute_path(there.text())
    if not found:
        raise value.error("maps no folder", "leave it out where hosts have the same paths")
    return found


def _option(value: Value) -> str:
    if value.is_endless():  # most likely of an option that wants a number: quoted it is none
        raise value.wrong("text or a finite number", "write a number with an end")
    return value.node.text if value.is_boolean() else value.raw(limit_bytes=4096)


def _hosts(value: Value, cluster: str, region: str, totals: _Totals) -> tuple[HostSpec, ...]:
    hosts = Hosts(cluster, region)
    for item in value.items(limit=MAX_HOSTS):
        for host in hosts.read(item, MAX_HOSTS - len(totals.hosts)):
            if host.name in totals.hosts:
                message = f"a second host named {show(host.name)}, after {totals.hosts[host.name]}"
                raise item.error(message, "give one of the two another name")
            totals.hosts[host.name] = item.field
            totals.gpus += host.gpus
        if totals.gpus > MAX_GPUS:
            raise item.error(f"the fleet has more than {MAX_GPUS:,} GPUs", "split the fleet")
    if not hosts.found:
        raise value.error("lists no host", "for example - {count: 4, gpu: H100, gpus: 8}")
    return tuple(hosts.found)


# ------------------------------------------------------------------------------------------- links


def _links(value: Value | None, regions: Collection[str]) -> tuple[Link, ...]:
    links: dict[tuple[str, str], Link] = {}
    first, *_, last = (*regions, *regions)
    for item in value.items(limit=MAX_REGIONS * MAX_REGIONS) if value else []:
        fields = item.record(_LINK_FIELDS)
        price, one_way = fields.get("usd_per_gb"), fields.get("one_way")
        rate = fields.need("gbps", "100").number(high=MAX_GBPS, above=True) * BYTES_PER_S_PER_GBPS
        usd_per_gb = price.number(high=MAX_USD_PER_GB) if price else 0.0
        both = not (one_way and one_way.boolean())
        source = _region_name(fields.need("from", first), regions)
        target = _region_name(fields.need("to", last), regions)
        if source == target:
            raise item.error(f"links {source} with itself", "a link joins two regions")
        for ends in [(source, target), (target, source)] if both else [(source, target)]:
            if ends in links:
                remedy = "keep one; a link is two-way unless it has one_way: true"
                raise item.error(f"a second link from {ends[0]} to {ends[1]}", remedy)
            links[ends] = Link(*ends, rate, usd_per_gb)
    return tuple(links.values())


def _region_name(value: Value, regions: Collection[str]) -> str:
    name = value.name()
    if name not in regions:
        raise value.unknown("there is no region", name, regions, "regions")
    return name


def _region_names(value: Value, regions: Collection[str]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for item in value.items(limit=MAX_REGIONS):
        name = _region_name(item, regions)
        if name in names:
            raise item.error(f"the region {show(name)} is listed twice", "list it once")
        names[name] = None
    return tuple(names)


# ---------------------------------------------------------------------------------------- datasets


def _datasets(value: Value | None, regions: Collection[str]) -> tuple[DatasetSpec, ...]:
    listed = value.entries(limit=MAX_DATASETS, wanted="a mapping of datasets") if value else {}
    paths, found = Paths(), []
    for name, part in listed.items():
        dataset = _dataset(name, part, regions)
        fault = paths.fault(name, dataset.path)
        if fault:
            raise (part.record(_DATASET_FIELDS).get("path") or part).error(fault, OWN_FOLDER)
        paths.add(name, dataset.path)
        found.append(dataset)
    return tuple(found)


def _dataset(name: str, value: Value, regions: Collection[str]) -> DatasetSpec:
    value.check_name(name)
    fields = value.record(_DATASET_FIELDS)
    size, path = fields.need("size", "150GB"), fields.get("path")
    listed, residency, least = (fields.get(f) for f in ("replicas", "allowed", "min_replicas"))
    replicas = _region_names(listed, regions) if listed else ()
    allowed = _region_names(residency, regions) if residency else None
    if residency and not allowed:
        raise residency.error("allows no region", "leave it out to allow every region")
    for item in listed.items(limit=MAX_REGIONS) if listed and allowed else ():
        if (region := item.name()) not in (allowed or ()):
            message = f"{region} holds a replica but is not among the regions allowed"
            raise item.error(message, "add it to allowed, or remove the replica")
    places = len(allowed) if allowed else len(regions)
    return DatasetSpec(
        name=name,
        size_bytes=size.quantity(parse_bytes, "a size such as 150GB"),
        path=path.relative_path() if path else name,
        replicas=replicas,
        allowed=allowed,
        min_replicas=least.integer(low=1, high=places) if least else 1,
    )
