"""The fleet file: what it builds, and what its author is told when it cannot be built."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import parse_dataset, parse_fleet, read_fleet
from topmast.model.fleet import (
    ClusterSpec,
    DatasetSpec,
    Fleet,
    HostSpec,
    Link,
    RegionSpec,
    TenantSpec,
)

GB = 10**9

WHOLE = """
regions:
  east:
    storage: 100TB
    store: /srv/east
    clusters:
      east-1:
        engine: slurm
        options: {partition: gpu, retries: 3, exclusive: true}
        hosts:
          - {count: 2, gpu: H100, gpus: 8, gpu_memory: 80, cpus: 96, memory: 1024, rack_size: 1}
  west:
    clusters:
      west-1: {hosts: [{count: 1, gpu: A100, gpus: 4, name: node, datacenter: w-2}]}
links: [{from: east, to: west, gbps: 100, usd_per_gb: 0.02}]
tenants:
  vision: {quota: {H100: 16}, borrow_limit: {H100: 8}, weight: 2}
  nlp:
datasets:
  imagenet: {size: 150GB, replicas: [east], path: data/imagenet, allowed: [east, west], min_replicas: 2}
  words: {size: 5GiB}
"""


def hosts_of(*entries: dict[str, Any]) -> tuple[HostSpec, ...]:
    """The hosts that ``entries`` make in cluster `c` of region `r`."""
    fleet = parse_fleet({"regions": {"r": {"clusters": {"c": {"hosts": list(entries)}}}}})
    return fleet.regions[0].clusters[0].hosts


def entry(count: int, **fields: Any) -> dict[str, Any]:
    return {"count": count, "gpu": "H100", "gpus": 8, **fields}


def named(*names: str, **fields: Any) -> dict[str, Any]:
    return {"names": list(names), "gpu": "H100", "gpus": 8, **fields}


def test_a_fleet_with_every_field(tmp_path: Path) -> None:
    """Each field goes where the rest of the system looks for it."""
    (tmp_path / "fleet.yaml").write_text(WHOLE)

    def east(number: int) -> HostSpec:
        return HostSpec(
            f"east-1-{number}", "H100", 8, 80 * GB, 96.0, 1024 * GB, "east", "east-1-p0",
            f"east-1-r{number}",
        )  # fmt: skip

    west = HostSpec("node-0", "A100", 4, datacenter="w-2", pod="west-1-p0", rack="west-1-r0")
    options = {"partition": "gpu", "retries": "3", "exclusive": "true"}
    want = Fleet(
        regions=(
            RegionSpec(
                "east",
                (ClusterSpec("east-1", (east(0), east(1)), "slurm", options),),
                10**14,
                "/srv/east",
            ),
            RegionSpec("west", (ClusterSpec("west-1", (west,)),)),
        ),
        links=(Link("east", "west", 12.5e9, 0.02), Link("west", "east", 12.5e9, 0.02)),
        tenants=(TenantSpec("vision", {"H100": 16}, {"H100": 8}, 2.0), TenantSpec("nlp")),
        datasets=(
            DatasetSpec(
                "imagenet", 150 * GB, "data/imagenet", ("east",), ("east", "west"), min_replicas=2
            ),
            DatasetSpec("words", 5 * 2**30, "words"),
        ),
    )
    assert read_fleet(tmp_path / "fleet.yaml") == want


def test_an_image_and_paths_of_a_cluster() -> None:
    """Absent where a file says nothing of them; paths without surplus slashes."""
    more = {"image": "site/train:1", "paths": {"/data/east/": "/mnt//lustre/data", "/": "/far"}}
    document = {"regions": {"r": {"clusters": {"c": {"hosts": [entry(1)], **more}}}}}
    (found,) = parse_fleet(document).regions[0].clusters
    assert (found.image, found.paths) == (
        "site/train:1", {"/data/east": "/mnt/lustre/data", "/": "/far"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("here", "want"),
    [
        ("/data/east", "/mnt/lustre/data"),
        ("/data/east/words/1", "/mnt/lustre/data/words/1"),
        ("/data/eastern/words", "/far/data/eastern/words"),
        ("/data/east/hot/x", "/flash/x"),
        ("/data", "/far/data"),
    ],
)
def test_the_longest_folder_that_is_mapped_counts(here: str, want: str) -> None:
    """And a name that only begins alike is another one."""
    paths = {"/data/east": "/mnt/lustre/data", "/": "/far", "/data/east/hot": "/flash"}
    assert ClusterSpec("c", (), paths=paths).path_there(here) == want
    assert ClusterSpec("c", ()).path_there(here) == here


def test_the_smallest_fleet() -> None:
    """Nothing limits what is not said; one tenant may use it all."""
    document = {"regions": {"r": {"clusters": {"c": {"hosts": [entry(1)]}}}}}
    host = HostSpec("c-0", "H100", 8, datacenter="r", pod="c-p0", rack="c-r0")
    region = RegionSpec("r", (ClusterSpec("c", (host,)),))
    assert parse_fleet(document) == Fleet((region,), tenants=(TenantSpec("default"),))


def test_json(tmp_path: Path) -> None:
    """A fleet file may be JSON."""
    text = '{"regions":{"r":{"clusters":{"c":{"hosts":[{"count":1,"gpu":"H100","gpus":8}]}}}}}'
    (tmp_path / "fleet.json").write_text(text)
    assert read_fleet(tmp_path / "fleet.json").models() == ("H100",)


def test_racks_and_pods_are_filled_in_order() -> None:
    """Five hosts in racks of two, two racks to a pod; a second entry begins its own."""
    hosts = hosts_of(entry(5, rack_size=2, pod_size=2), entry(1, rack_size=2, pod_size=1))
    places = [(host.name, host.rack, host.pod) for host in hosts]
    assert places == [
        ("c-0", "c-r0", "c-p0"),
        ("c-1", "c-r0", "c-p0"),
        ("c-2", "c-r1", "c-p0"),
        ("c-3", "c-r1", "c-p0"),
        ("c-4", "c-r2", "c-p1"),
        ("c-5", "c-r3", "c-p2"),
    ]


def test_hosts_without_a_rack_size_share_one_rack() -> None:
    """One rack and pod per cluster; another datacenter has its own."""
    hosts = hosts_of(entry(2), entry(1, datacenter="d"), entry(1), entry(2, rack_size=1))
    assert [host.rack for host in hosts] == ["c-r0", "c-r0", "c-r1", "c-r0", "c-r2", "c-r3"]
    assert [host.pod for host in hosts] == ["c-p0", "c-p0", "c-p1", "c-p0", "c-p0", "c-p0"]
    assert [host.datacenter for host in hosts] == ["r", "r", "d", "r", "r", "r"]


def test_hosts_racks_and_pods_may_have_names_of_their_own() -> None:
    """Hosts of a cluster that is there already are called as it calls them."""
    hosts = hosts_of(
        named("gpu-b", "gpu-a.x", rack="leaf1", pod="spine"),
        named("7", rack="leaf2"),
        entry(1),
        named("m", "n", rack_size=1, pod="spine"),
    )
    assert [(host.name, host.rack, host.pod) for host in hosts] == [
        ("gpu-b", "leaf1", "spine"),
        ("gpu-a.x", "leaf1", "spine"),
        ("7", "leaf2", "c-p0"),
        ("c-0", "c-r0", "c-p0"),
        ("m", "c-r1", "spine"),
        ("n", "c-r2", "spine"),
    ]


def test_names_of_hosts_go_on_through_the_cluster() -> None:
    """Entries of one prefix are numbered together."""
    hosts = hosts_of(entry(2), entry(1, name="fat"), entry(1), entry(1, name="fat"))
    assert [host.name for host in hosts] == ["c-0", "c-1", "fat-0", "c-2", "fat-1"]


def test_hosts_without_gpus() -> None:
    """Readers run there; the GPU model of no GPU is none."""
    hosts = hosts_of(entry(1), {"count": 1, "gpus": 0, "cpus": 64}, entry(1, gpus=0))
    assert [(host.model, host.gpus) for host in hosts] == [("H100", 8), ("", 0), ("", 0)]


def test_a_host_may_be_as_large_as_a_cluster() -> None:
    """Traces without hosts become one large host."""
    assert hosts_of(entry(1, gpus=65_536))[0].gpus == 65_536


def test_a_large_fleet() -> None:
    """A hundred thousand hosts are fine."""
    assert Counter(host.gpus for host in hosts_of(entry(100_000))) == {8: 100_000}


def test_one_way_links() -> None:
    """Each direction may have its own rate and price."""
    regions = {name: {"clusters": {f"{name}1": {"hosts": [entry(1)]}}} for name in ("a", "b")}
    links = [
        {"from": "a", "to": "b", "gbps": 8, "one_way": True},
        {"from": "b", "to": "a", "gbps": 0.8, "one_way": True, "usd_per_gb": 1},
    ]
    found = parse_fleet({"regions": regions, "links": links}).links
    assert found == (Link("a", "b", 1e9), Link("b", "a", 1e8, 1.0))


# ---------------------------------------------------------------------------------------- refusals

BASE = """\
regions:
  east: {clusters: {e: {hosts: [{count: 1, gpu: H100, gpus: 8}]}}}
  west: {clusters: {w: {hosts: [{count: 1, gpu: A100, gpus: 8}]}}}
"""


@dataclass(frozen=True)
class Case:
    """A fleet file, and what its author must be told."""

    story: str
    text: str
    want_field: str
    want_words: tuple[str, ...]
    want_line: int


def bad(story: str, text: str, field: str, *words: str, line: int = 4) -> Case:
    """A case whose file begins with two good regions."""
    return Case(story, BASE + text, field, words, line)


def bad_host(story: str, fields: str, field: str, *words: str) -> Case:
    text = f"regions: {{r: {{clusters: {{c: {{hosts: [{{{fields}}}]}}}}}}}}"
    path = f"regions.r.clusters.c.hosts[0]{field}"
    return Case(story, text, path, words, 1)


REGIONS = [
    Case("no regions", "tenants: {}", "regions", ("missing",), 1),
    Case("regions of nothing", "regions:", "regions", ("missing",), 1),
    Case("regions of none", "regions: {}", "regions", ("names no region",), 1),
    Case("a list of regions", "regions: [a]", "regions", ("wanted a mapping of regions",), 1),
    Case("a bad name", "regions: {a/b: {}}", "regions.a/b", ("'a/b' is not a name",), 1),
    Case("no clusters", "regions: {a: {}}", "regions.a.clusters", ("missing",), 1),
    Case("a region of nothing", "regions: {a: }", "regions.a", ("wanted a mapping",), 1),
    Case("clusters of none", "regions: {a: {clusters: {}}}", "regions.a.clusters",
         ("names no cluster",), 1),
    Case("no hosts", "regions: {a: {clusters: {c: {}}}}", "regions.a.clusters.c.hosts",
         ("missing",), 1),
    Case("hosts of none", "regions: {a: {clusters: {c: {hosts: []}}}}",
         "regions.a.clusters.c.hosts", ("lists no host", "{count: 4, gpu: H100, gpus: 8}"), 1),
    Case("no GPUs", "regions: {a: {clusters: {c: {hosts: [{count: 1, gpus: 0}]}}}}", "",
         ("the fleet has no GPUs",), 1),
    Case("a typing error", "regions: {a: {cluster: {}}}", "regions.a.cluster",
         ("did you mean 'clusters'?",), 1),
    Case("storage in words", "regions:\n  a:\n    storage: big\n"
         "    clusters: {c: {hosts: [{count: 1, gpu: H, gpus: 1}]}}",
         "regions.a.storage", ("'big' is not a size", "100TB"), 3),
    Case("a URL with one slash", "regions:\n  a:\n    store: s3:/bucket\n    clusters: {b: {hosts: [{gpu: H100, gpus: 8}]}}\n",
         "regions.a.store", ("'s3:/bucket' is a URL, and must be a path",), 3),
    Case("the same cluster twice",
         "regions:\n  a: {clusters: {c: {hosts: [{count: 1, gpu: H, gpus: 1}]}}}\n"
         "  b: {clusters: {c: {hosts: [{count: 1, gpu: H, gpus: 1}]}}}\n",
         "regions.b.clusters.c",
         ("a second cluster named 'c', after regions.a.clusters.c", "rename"), 3),
    Case("the same host twice",
         "regions:\n  a:\n    clusters:\n"
         "      c: {hosts: [{count: 2, gpu: H, gpus: 1}]}\n"
         "      d: {hosts: [{count: 2, gpu: H, gpus: 1, name: c}]}\n",
         "regions.a.clusters.d.hosts[0]",
         ("a second host named 'c-0', after regions.a.clusters.c.hosts[0]",), 5),
    bad("an unknown field", "region: {}", "region", "did you mean 'regions'?"),
]  # fmt: skip

HOSTS = [
    bad_host("no count", "gpu: H, gpus: 1", ".count", "missing", "count: 4"),
    bad_host("no gpus", "gpu: H, count: 1", ".gpus", "missing", "gpus: 8"),
    bad_host("no model", "gpus: 1, count: 1", ".gpu", "missing", "gpu: H100"),
    bad_host("no hosts", "gpu: H, gpus: 1, count: 0", ".count", "0 is out of range", "from 1"),
    bad_host("half a host", "gpu: H, gpus: 1, count: 0.5", ".count", "wanted a whole number"),
    bad_host("too many", "gpu: H, gpus: 1, count: 100001", ".count", "out of range", "100,000"),
    bad_host("half a GPU", "gpu: H, gpus: 0.5, count: 1", ".gpus", "wanted a whole number"),
    bad_host("negative", "gpu: H, gpus: -1, count: 1", ".gpus", "out of range"),
    bad_host("a huge host", "gpu: H, gpus: 65537, count: 1", ".gpus", "from 0 to 65,536"),
    bad_host("a huge fleet", "gpu: H, gpus: 65536, count: 1000", "", "more than 10,000,000 GPUs"),
    bad_host("a model with a colon", "gpu: 'H:8', gpus: 1, count: 1", ".gpu", "not the name"),
    bad_host("a list of models", "gpu: [H], gpus: 1, count: 1", ".gpu", "wanted text"),
    bad_host("memory", "gpu: H, gpus: 1, count: 1, memory: x", ".memory", "amount of memory"),
    bad_host("GPU memory", "gpu: H, gpus: 1, count: 1, gpu_memory: -1", ".gpu_memory", "amount"),
    bad_host("NaN", "gpu: H, gpus: 1, count: 1, cpus: .nan", ".cpus", "out of range"),
    bad_host("infinite", "gpu: H, gpus: 1, count: 1, cpus: .inf", ".cpus", "out of range"),
    bad_host("a rack of none", "gpu: H, gpus: 1, count: 1, rack_size: 0", ".rack_size", "range"),
    bad_host("pods without racks", "gpu: H, gpus: 1, count: 1, pod_size: 2", ".pod_size",
             "no rack_size"),
    bad_host("names and a count", "gpu: H, gpus: 1, names: [a], count: 1", ".count", "not both"),
    bad_host("names and a prefix", "gpu: H, gpus: 1, names: [a], name: b", ".name", "not both"),
    bad_host("no names", "gpu: H, gpus: 1, names: []", ".names", "names no host"),
    bad_host("a name twice", "gpu: H, gpus: 1, names: [a, a]", ".names[1]", "listed twice"),
    bad_host("a rack twice", "gpu: H, gpus: 1, count: 1, rack: a, rack_size: 1", ".rack_size",
             "names its rack already"),
    bad_host("a pod twice", "gpu: H, gpus: 1, count: 1, rack_size: 1, pod: a, pod_size: 1",
             ".pod_size", "names its pod already"),
    bad_host("a typing error", "gpu: H, gpus: 1, cuont: 1", ".cuont", "did you mean 'count'?"),
    bad_host("a bad prefix", "gpu: H, gpus: 1, count: 1, name: a b", ".name", "not a name"),
    Case("too many hosts together", "regions: {r: {clusters: {c: {hosts: [\n"
         "{count: 60000, gpu: H, gpus: 1},\n{count: 60000, gpu: H, gpus: 1}]}}}}",
         "regions.r.clusters.c.hosts[1].count", ("too many hosts", "100,000"), 3),
    Case("an image with blanks", "regions: {r: {clusters: {c: {image: a b, hosts: [{count: 1, gpu: H100, gpus: 8}]}}}}",
         "regions.r.clusters.c.image", ("not a name of an image",), 1),
    Case("a relative path", "regions: {r: {clusters: {c: {paths: {data: /mnt}, hosts: [{count: 1, gpu: H100, gpus: 8}]}}}}",
         "regions.r.clusters.c.paths.data", ("not a usable path", "/data/east"), 1),
    Case("a path that leads out", "regions: {r: {clusters: {c: {paths: {/a: /mnt/../b}, hosts: [{count: 1, gpu: H100, gpus: 8}]}}}}",
         "regions.r.clusters.c.paths./a", ("not a usable path",), 1),
    Case("a path to a bucket", "regions: {r: {clusters: {c: {paths: {/a: 's3://b'}, hosts: [{count: 1, gpu: H100, gpus: 8}]}}}}",
         "regions.r.clusters.c.paths./a", ("is a URL",), 1),
    Case("one folder twice", "regions: {r: {clusters: {c: {paths: {/a: /b, /a/: /c}, hosts: [{count: 1, gpu: H100, gpus: 8}]}}}}",
         "regions.r.clusters.c.paths./a/", ("a second entry for '/a'",), 1),
    Case("no folder", "regions: {r: {clusters: {c: {paths: {}, hosts: [{count: 1, gpu: H100, gpus: 8}]}}}}",
         "regions.r.clusters.c.paths", ("maps no folder",), 1),
    Case("an option with a list", "regions: {r: {clusters: {c: {options: {a: []}, hosts: [x]}}}}",
         "regions.r.clusters.c.hosts[0]", ("wanted a mapping",), 1),
    Case("an endless number for an option",
         "regions: {r: {clusters: {c: {options: {a: -.inf}, hosts: [{count: 1, gpu: H, gpus: 1}]}}}}",
         "regions.r.clusters.c.options.a",
         ("wanted text or a finite number, found the number -.inf (write a number with an end)",), 1),
    Case("an option that is a list", "regions: {r: {clusters: {c: {options: {a: []},"
         " hosts: [{count: 1, gpu: H, gpus: 1}]}}}}",
         "regions.r.clusters.c.options.a", ("wanted text or a number",), 1),
]  # fmt: skip

LINKS = [
    bad("to nowhere", "links: [{from: east, to: wets, gbps: 1}]", "links[0].to",
        "there is no region 'wets'", "did you mean 'west'?"),
    bad("from nowhere", "links: [{from: x, to: west, gbps: 1}]", "links[0].from",
        "there is no region 'x'", "one of: east, west"),
    bad("to itself", "links: [{from: east, to: east, gbps: 1}]", "links[0]", "with itself"),
    bad("without a rate", "links: [{from: east, to: west}]", "links[0].gbps", "missing"),
    bad("of no rate", "links: [{from: east, to: west, gbps: 0}]", "links[0].gbps", "more than 0"),
    bad("of endless rate", "links: [{from: east, to: west, gbps: .inf}]", "links[0].gbps", "range"),
    bad("of a rate in words", "links: [{from: east, to: west, gbps: 1G}]", "links[0].gbps",
        "wanted a number, found text '1G'"),
    bad("of a negative price", "links: [{from: east, to: west, gbps: 1, usd_per_gb: -1}]",
        "links[0].usd_per_gb", "out of range"),
    bad("twice", "links:\n- {from: east, to: west, gbps: 1}\n- {from: west, to: east, gbps: 1}",
        "links[1]", "a second link from west to east", "one_way: true", line=6),
    bad("twice one way", "links:\n- {from: east, to: west, gbps: 1, one_way: true}\n"
        "- {from: east, to: west, gbps: 1, one_way: true}", "links[1]", "from east to west", line=6),
    bad("one way, perhaps", "links: [{from: east, to: west, gbps: 1, one_way: maybe}]",
        "links[0].one_way", "wanted true or false"),
    bad("by name", "links: {east: west}", "links", "wanted a list"),
]  # fmt: skip

TENANTS = [
    bad("quota of a model that is not there", "tenants: {a: {quota: {H1000: 1}}}",
        "tenants.a.quota.H1000", "no region has the GPU model 'H1000'", "did you mean 'H100'?"),
    bad("a limit of one", "tenants: {a: {quota: {}, borrow_limit: {T4: 1}}}",
        "tenants.a.borrow_limit.T4", "no region has", "one of: A100, H100"),
    bad("a limit without a quota", "tenants: {a: {borrow_limit: {H100: 1}}}",
        "tenants.a.borrow_limit", "no quota to borrow beyond"),
    bad("half a GPU", "tenants: {a: {quota: {H100: 0.5}}}", "tenants.a.quota.H100", "whole number"),
    bad("a negative quota", "tenants: {a: {quota: {H100: -1}}}", "tenants.a.quota.H100", "range"),
    bad("quota in a number", "tenants: {a: {quota: 16}}", "tenants.a.quota", "{H100: 16}"),
    bad("no weight", "tenants: {a: {weight: 0}}", "tenants.a.weight", "more than 0"),
    bad("a list", "tenants: [a]", "tenants", "wanted a mapping of tenants, found a list"),
    bad("a bad name", "tenants: {a b: }", "tenants.a b", "not a name"),
    bad("a typing error", "tenants: {a: {qouta: {}}}", "tenants.a.qouta", "did you mean 'quota'?"),
    bad("lending without a quota", "tenants: {a: {lend_limit: {H100: 1}}}",
        "tenants.a.lend_limit", "no quota to lend from", "quota as well"),
    bad("lending what is not there", "tenants: {a: {quota: {}, lend_limit: {H1000: 1}}}",
        "tenants.a.lend_limit.H1000", "no region has", "did you mean 'H100'?"),
    bad("lending less than nothing", "tenants: {a: {quota: {}, lend_limit: {H100: -1}}}",
        "tenants.a.lend_limit.H100", "out of range"),
    bad("a parent that is not there", "tenants:\n  research:\n  a: {parent: reserach}",
        "tenants.a.parent", "there is no tenant 'reserach'", "did you mean 'research'?", line=6),
    bad("two parents", "tenants: {a: {parent: [b, c]}}", "tenants.a.parent", "wanted a name"),
    bad("its own parent", "tenants: {a: {parent: a}}", "tenants.a.parent",
        "go round in a circle: a -> a", "take the parent from one of them"),
    bad("a circle", "tenants:\n  x: {parent: a}\n  a: {parent: b}\n  b: {parent: c}\n  c: {parent: a}",
        "tenants.a.parent", "go round in a circle: a -> b -> c -> a", line=6),
    bad("a deep tree", "tenants:\n  t0:\n" + "".join(
        f"  t{i}: {{parent: t{i - 1}}}\n" for i in range(1, 18)),
        "tenants.t16.parent", "more than 16 tenants one below the other", line=21),
    bad("more than its parent", "tenants:\n  o: {quota: {H100: 8}}\n  a: {parent: o, quota: {H100: 9}}",
        "tenants.a.quota.H100", "9 H100 is more than the 8 of 'o' above it", "at most 8", line=6),
    bad("what its parent has not", "tenants:\n  o: {quota: {H100: 8}}\n  a: {parent: o, quota: {A100: 1}}",
        "tenants.a.quota.A100", "1 A100 is more than the 0 of 'o'", line=6),
    bad("more than the one above its parent", "tenants: {o: {quota: {H100: 8}}, p: {parent: o},"
        " a: {parent: p, quota: {H100: 9}}}", "tenants.a.quota.H100", "the 8 of 'o' above it"),
    bad("more together", "tenants:\n  o: {quota: {H100: 8}}\n  a: {parent: o, quota: {H100: 5}}\n"
        "  b: {parent: o, quota: {H100: 4}}", "tenants.o.quota.H100",
        "below it have quotas of 9 H100, and it has 8", "at least 9, or lower theirs", line=5),
]  # fmt: skip

DATASETS = [
    bad("without a size", "datasets: {a: {}}", "datasets.a.size", "missing", "150GB"),
    bad("of nothing", "datasets: {a: }", "datasets.a", "wanted a mapping"),
    bad("of a size in words", "datasets: {a: {size: big}}", "datasets.a.size", "not a size"),
    bad("of negative size", "datasets: {a: {size: -1}}", "datasets.a.size", "'-1' is not a size"),
    bad("at a place that is not", "datasets: {a: {size: 1, replicas: [aest]}}",
        "datasets.a.replicas[0]", "there is no region 'aest'", "did you mean"),
    bad("twice at a place", "datasets: {a: {size: 1, replicas: [east, east]}}",
        "datasets.a.replicas[1]", "listed twice"),
    bad("allowed nowhere", "datasets: {a: {size: 1, allowed: []}}", "datasets.a.allowed",
        "allows no region"),
    bad("where it may not be", "datasets: {a: {size: 1, replicas: [east], allowed: [west]}}",
        "datasets.a.replicas[0]", "east holds a replica but is not among the regions allowed"),
    bad("more often than places", "datasets: {a: {size: 1, min_replicas: 3}}",
        "datasets.a.min_replicas", "from 1 to 2"),
    bad("more often than allowed", "datasets: {a: {size: 1, min_replicas: 2, allowed: [east]}}",
        "datasets.a.min_replicas", "from 1 to 1"),
    bad("outside the store", "datasets: {a: {size: 1, path: ../x}}", "datasets.a.path", "leaves"),
    bad("inside, then out", "datasets: {a: {size: 1, path: x/../y}}", "datasets.a.path", "leaves"),
    bad("anywhere", "datasets: {a: {size: 1, path: /etc}}", "datasets.a.path", "leaves"),
    bad("at home", "datasets: {a: {size: 1, path: '~root'}}", "datasets.a.path", "leaves"),
    bad("at an empty path", "datasets: {a: {size: 1, path: ''}}", "datasets.a.path", "empty"),
    bad("at a dot", "datasets: {a: {size: 1, path: .}}", "datasets.a.path", "names no file"),
    bad("at a path of two lines", 'datasets: {a: {size: 1, path: "a\\nb"}}', "datasets.a.path",
        "not a usable path"),
    bad("at a long path", f"datasets: {{a: {{size: 1, path: {'x' * 256}}}}}", "datasets.a.path",
        "not a usable path"),
    bad("in one folder", "datasets:\n  a: {size: 1, path: x}\n  b: {size: 1, path: x}",
        "datasets.b.path", "is that of dataset 'a'", "a folder of its own", line=6),
    bad("one inside another", "datasets:\n  a: {size: 1, path: x}\n  b: {size: 1, path: x/./y}",
        "datasets.b.path", "lies inside dataset 'a', at 'x'", line=6),
    bad("one around another", "datasets:\n  a: {size: 1, path: b/c}\n  b: {size: 1}",
        "datasets.b", "contains dataset 'a'", line=6),
    bad("in a bucket", "datasets: {a: {size: 1, path: 's3://b/c'}}", "datasets.a.path", "is a URL",
        "buckets are not supported"),
    bad("of a bad name", "datasets: {../a: {size: 1}}", "datasets.../a", "not a name"),
]  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [*REGIONS, *HOSTS, *LINKS, *TENANTS, *DATASETS],
    ids=lambda case: f"{case.want_field}: {case.story}",
)
def test_what_cannot_be_accepted(tmp_path: Path, case: Case) -> None:
    """The error names the file, the line, the field, what is wrong, and the way out."""
    (tmp_path / "fleet.yaml").write_text(case.text)
    with pytest.raises(InvalidInput) as refused:
        read_fleet(tmp_path / "fleet.yaml")
    error = refused.value
    for words in case.want_words:
        assert words in error.line()
    assert error.field == case.want_field
    assert error.where == f"{tmp_path / 'fleet.yaml'}:{case.want_line}"
    assert error.line().isprintable()


def test_a_dataset_added_later() -> None:
    """A running fleet takes datasets one by one, in the words of the file."""
    found = parse_dataset("words", {"size": "5GB", "replicas": ["west"]}, regions=["east", "west"])
    assert found == DatasetSpec("words", 5 * GB, "words", ("west",))


def test_a_dataset_added_nowhere() -> None:
    """Its errors name its fields."""
    with pytest.raises(InvalidInput, match=r"request: replicas\[0\]: there is no region 'north'"):
        parse_dataset("words", {"size": "5GB", "replicas": ["north"]}, regions=["east", "west"])
