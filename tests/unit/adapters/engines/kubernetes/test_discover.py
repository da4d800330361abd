"""A fleet file from nodes, as several kinds of clusters describe them."""

from typing import Any

import httpx
import msgspec
import pytest

from tests.unit.adapters.engines.kubernetes.replies import kubeconfig_in, replying
from topmast.adapters.engines.far.discovery import Discovered, fleet_document
from topmast.adapters.engines.far.kubernetes.discover import describe, discover, quantity
from topmast.adapters.engines.far.kubernetes.nodes import Node
from topmast.adapters.engines.far.kubernetes.options import KubernetesOptions
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.fleet import HostSpec

LABELS = {
    "product": "nvidia.com/gpu.product",
    "memory": "nvidia.com/gpu.memory",
    "amd": "amd.com/gpu.product-name",
    "zone": "topology.kubernetes.io/zone",
    "rack": "topology.kubernetes.io/rack",
    "region": "topology.kubernetes.io/region",
}


def node(name: str, gpus: int | str = 8, resource: str = "nvidia.com/gpu", **labels: str) -> Node:
    given = {LABELS[key]: value for key, value in labels.items()}
    content = {
        "metadata": {"name": name, "uid": name, "labels": given},
        "status": {"allocatable": {resource: str(gpus), "cpu": "95500m", "memory": "1048576Ki"}},
    }
    return msgspec.convert(content, Node)


def found(*nodes: Node, **options: Any) -> Discovered:
    return describe(list(nodes), "east", KubernetesOptions(**options))


H100, A40GB, A80GB = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB"


def test_nodes_become_hosts_with_their_places() -> None:
    there = found(
        node("b", product=H100, memory="81559",
             zone="eu-1a", rack="r 7",
             region="eu"),
        host_prefix="east-",
    )  # fmt: skip
    assert there.hosts == (
        HostSpec("east-b", "H100", 8, 81559 << 20, 95.5, 1 << 30, "eu-1a", "", "r-7"),
    )
    assert there.region == "eu"
    assert there.options == {}


@pytest.mark.parametrize("said", ["9" * 20, "-1", "80GB", ""])
def test_a_label_that_is_no_memory_says_nothing(said: str) -> None:
    """One node keeps no cluster from being described."""
    (host,) = found(node("a", product=H100, memory=said)).hosts
    assert host.gpu_memory_bytes == 0


def test_the_reader_of_fleet_files_takes_what_is_written() -> None:
    there = found(
        *(node(f"gpu-{index}", product=H100) for index in range(3)),
        node("amd-0", 4, "amd.com/gpu", amd="AMD-Instinct-MI300X"),
        node("plain", gpus=4),
    )
    document = fleet_document(there, "kubernetes", region="eu", cluster="east", options={})
    cluster = parse_fleet(document, where="test").regions[0].clusters[0]
    assert [host.name for host in cluster.hosts] == ["amd-0", "gpu-0", "gpu-1", "gpu-2", "plain"]
    assert [host.model for host in cluster.hosts] == ["MI300X", "H100", "H100", "H100", "NVIDIA"]
    assert cluster.options == {"resource.MI300X": "amd.com/gpu"}


def test_two_labels_with_one_short_name_stay_apart() -> None:
    there = found(node("a", product=A40GB), node("b", product=A80GB))
    assert [host.model for host in there.hosts] == [A40GB, A80GB]


def test_nodes_without_gpus_are_left_out_with_the_reason() -> None:
    there = found(node("a"), node("control", gpus=0), node("odd", gpus="many"))
    assert [host.name for host in there.hosts] == ["a"]
    assert [line.split(":")[0] for line in there.left_out] == ["control", "odd"]


def test_regions_that_differ_are_not_guessed() -> None:
    there = found(node("a", region="x"), node("b", region="y"))
    assert there.region == ""


def test_a_cluster_without_gpus_says_what_to_do() -> None:
    with pytest.raises(InvalidInput, match=r"no node of 1 offers.*install the device plugin"):
        found(node("a", gpus=0))


@pytest.mark.parametrize(
    ("text", "want"),
    [("4", 4), ("3920m", 3.92), ("1Ki", 1024), ("2G", 2e9), ("1e3", 1000), ("5k", 5000),
     ("", 0), ("many", 0), ("1.2.3", 0), ("3Xi", 0), ("-1", 0)],
)  # fmt: skip
def test_amounts(text: str, want: float) -> None:
    assert float(quantity(text)) == want


def test_an_api_server_that_refuses_is_told(tmp_path: Any) -> None:
    answer = {"code": 403, "reason": "Forbidden", "message": "nodes is forbidden"}
    transport = replying({"/api/v1/nodes": lambda request: httpx.Response(403, json=answer)})
    options = KubernetesOptions(kubeconfig=str(kubeconfig_in(tmp_path)))
    with pytest.raises(InvalidInput, match="nodes is forbidden"):
        discover(options, transport)
