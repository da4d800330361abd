"""A fleet written as a file and read again is the same fleet; what differs is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from topmast.model.files.fleetdump import dump_fleet
from topmast.model.files.fleetfile import parse_fleet, read_fleet
from topmast.model.fleet_changes import fleet_changes, fleet_version

EXAMPLES = sorted(Path(__file__).parents[3].glob("examples/**/fleet*.yaml"))
ODD = {
    "regions": {
        "east": {
            "storage": "1TB", "store": "s3://b/p", "prices": {"H100": 2.1, "A100": 0},
            "clusters": {
                "a": {
                    "engine": "local", "options": {"x": "true"}, "image": "img:1",
                    "paths": {"/data": "/mnt/data"},
                    "hosts": [
                        {"count": 3, "gpu": "H100", "gpus": 8, "gpu_memory": 80, "cpus": 1.5,
                         "memory": "64GiB", "rack_size": 2, "pod_size": 1},
                        {"names": ["x", "y"], "gpus": 0, "datacenter": "d"},
                    ],
                }
            },
        },
        "west": {"clusters": {"b": {"hosts": [{"count": 1, "gpu": "A100", "gpus": 4}]}}},
    },
    "links": [{"from": "east", "to": "west", "gbps": 3.3, "usd_per_gb": 0.02, "one_way": True}],
    "tenants": {
        "v": {"quota": {"H100": 1}, "borrow_limit": {"H100": 0}, "lend_limit": {"H100": 1},
              "weight": 0.5},
        "w": {"parent": "v"},
    },
    "prices": {"H100": 2.5},
    "datasets": {"d": {"size": "7B", "replicas": ["east"], "allowed": ["east"]}},
}  # fmt: skip


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name + path.name)
def test_an_example_comes_back(path: Path) -> None:
    """Each fleet file that is shipped."""
    fleet = read_fleet(path)
    assert parse_fleet(dump_fleet(fleet)) == fleet


def test_an_odd_fleet_comes_back() -> None:
    """With every field."""
    fleet = parse_fleet(ODD)
    again = parse_fleet(dump_fleet(fleet))
    assert again == fleet
    assert fleet_version(again) == fleet_version(fleet)
    assert fleet_changes(fleet, again) == ()


def test_prices_are_live() -> None:
    """Of the fleet and of its regions."""
    fleet = parse_fleet(ODD)
    after = replace(
        fleet, prices=UNSET, regions=tuple(replace(r, prices=UNSET) for r in fleet.regions)
    )
    found = fleet_changes(fleet, after)
    assert [(c.what, c.change, c.live) for c in found] == [
        ("region east", "prices {H100: 2.1, A100: 0.0} -> none", True),
        ("prices", "{H100: 2.5} -> none", True),
    ]


def test_what_takes_a_start_is_told_apart() -> None:
    """Regions, clusters, hosts and quotas are live; another engine, or another home, is not."""
    fleet = parse_fleet(ODD)
    east, west = fleet.regions
    (cluster,) = east.clusters
    small = replace(cluster, hosts=cluster.hosts[1:], engine="ssh")
    after = replace(fleet, regions=(replace(east, clusters=(small,), storage_bytes=None),))
    found = {(c.what, c.change): c.live for c in fleet_changes(fleet, after)}
    assert found == {
        ("region west", "removed"): True,
        ("region east", "storage 1TB -> none"): True,
        (f"cluster {west.clusters[0].name}", "removed"): True,
        ("cluster a", "engine local -> ssh"): False,
        (f"host {cluster.hosts[0].name}", "removed"): True,
    }


def test_what_changes_its_home_takes_a_start() -> None:
    """A cluster of another region, a host of a new cluster: neither comes new nor goes."""
    fleet = parse_fleet(ODD)
    east, west = fleet.regions
    (cluster,), (other,) = east.clusters, west.clusters
    swapped = replace(east, clusters=(cluster, other)), replace(west, clusters=())
    found = {
        (c.what, c.change): c.live for c in fleet_changes(fleet, replace(fleet, regions=swapped))
    }
    assert found == {(f"cluster {other.name}", "region west -> east"): False}
    host, *left = cluster.hosts
    new = replace(cluster, name="new", hosts=(host,))
    split = replace(east, clusters=(replace(cluster, hosts=tuple(left)), new))
    found = {
        (c.what, c.change): c.live
        for c in fleet_changes(fleet, replace(fleet, regions=(split, west)))
    }
    assert found == {
        ("cluster new", "added"): True,
        (f"host {host.name}", f"cluster {cluster.name} -> new"): False,
    }


def test_what_jobs_hold_of_a_host_takes_a_start() -> None:
    """Where it becomes less; more of it, where the host stands, and its GPUs' memory, do not."""
    fleet = parse_fleet(ODD)
    east, west = fleet.regions
    (cluster,) = east.clusters
    host, *left = cluster.hosts
    for change, live in (
        ({"gpus": host.gpus - 1}, False), ({"gpus": host.gpus + 1}, True),
        ({"cpus": host.cpus / 2}, False), ({"cpus": host.cpus * 2}, True), ({"cpus": 0.0}, True),
        ({"memory_bytes": 10**9}, False), ({"model": "A100"}, False), ({"rack": "r"}, True),
        ({"gpu_memory_bytes": 10**10}, True),
    ):  # fmt: skip
        hosts = (replace(host, **change), *left)
        after = replace(east, clusters=(replace(cluster, hosts=hosts),))
        found = fleet_changes(fleet, replace(fleet, regions=(after, west)))
        assert [(c.what, c.live) for c in found] == [(f"host {host.name}", live)], change
