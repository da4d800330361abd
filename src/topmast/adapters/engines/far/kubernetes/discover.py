"""What a Kubernetes cluster has: nodes, GPUs by their labels, zones and racks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation

import httpx

from topmast.adapters.engines.far.discovery import MIB, Discovered, short_model
from topmast.adapters.engines.far.kubernetes.api import Api, Refusal
from topmast.adapters.engines.far.kubernetes.kubeconfig import read_login
from topmast.adapters.engines.far.kubernetes.nodes import Node
from topmast.adapters.engines.far.kubernetes.options import GPU, KubernetesOptions
from topmast.adapters.engines.far.launcher import Unreachable
from topmast.model.errors import InvalidInput
from topmast.model.fleet import HostSpec

_RESOURCES = (GPU, "amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi")
"""What GPUs are called, if the options do not say it."""
_MODELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "amd.com/gpu.product-name",
    "gpu.nvidia.com/model",
    "node.kubernetes.io/instance-type",
)
_MEMORY_MIB = "nvidia.com/gpu.memory"
_SIZE = re.compile(r"[0-9]{1,9}")
"""What anything else says is not the memory of a GPU: labels are written by people, too."""
_REGION = "topology.kubernetes.io/region"
_DATACENTER = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_POD = (
    "topology.kubernetes.io/block",
    "cloud.google.com/gce-topology-block",
    "topology.k8s.aws/network-node-layer-2",
)
_RACK = (
    "topology.kubernetes.io/rack",
    "cloud.google.com/gce-topology-subblock",
    "topology.k8s.aws/network-node-layer-3",
)
_UNITS = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}  # fmt: skip
_QUANTITY = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]{0,2})")


def discover(
    options: KubernetesOptions, transport: httpx.BaseTransport | None = None
) -> Discovered:
    """All nodes with GPUs. Raises InvalidInput; a ``transport`` replaces the net."""
    login = read_login(options.kubeconfig, options.context)
    api = Api(lambda: login, options.timeout_s, transport)
    try:
        nodes = api.all(Node, "/api/v1/nodes")
    except (Refusal, Unreachable) as error:
        raise InvalidInput(str(error), field="kubernetes") from None
    finally:
        api.close()
    return describe(nodes, _name(login.cluster), options)


def describe(nodes: list[Node], cluster: str, options: KubernetesOptions) -> Discovered:
    """The hosts that a fleet can have, and the options that they need."""
    asked = list(filter(None, options.resource.values()))
    resources = asked or list(_RESOURCES)
    with_gpus = [(node, _resource(node, resources)) for node in nodes]
    models = _models([node for node, resource in with_gpus if resource])
    hosts: list[HostSpec] = []
    unnamed: list[str] = []
    found: dict[str, str] = {}
    left_out: list[str] = []
    for node, resource in sorted(with_gpus, key=lambda pair: pair[0].metadata.name):
        if not resource:
            left_out.append(f"{node.metadata.name}: it offers no {' or '.join(resources)}")
            continue
        host = _host(node, resource, models, options)
        hosts.append(host)
        if not _label(node, _MODELS):
            unnamed.append(host.name)
        if resource != GPU and not asked:
            found[f"resource.{host.model}"] = resource
    if not hosts:
        raise InvalidInput(
            f"no node of {len(nodes)} offers {' or '.join(resources)}", field="kubernetes",
            remedy="install the device plugin of the GPUs, or name what it calls them "
            "(--set resource=NAME)",
        )  # fmt: skip
    regions = {(node.metadata.labels or {}).get(_REGION, "") for node in nodes}
    region = _name(regions.pop()) if len(regions) == 1 else ""
    return Discovered(cluster, tuple(hosts), found, tuple(left_out), region, tuple(unnamed))


def _resource(node: Node, resources: list[str]) -> str:
    """The first of these that the node has any of."""
    return next((name for name in resources if node.amount(name)), "")


def _models(nodes: list[Node]) -> dict[str, str]:
    """What a fleet calls the GPUs of each label: by a short name such as H100.

    Two labels with one short name (40 and 80 GB) keep names of their own.
    """
    labels = {_label(node, _MODELS) for node in nodes}
    uses = Counter(short_model(label) for label in labels)
    return {
        label: short_model(label) if uses[short_model(label)] == 1 else label
        for label in sorted(labels)
    }


def _host(
    node: Node, resource: str, models: Mapping[str, str], options: KubernetesOptions
) -> HostSpec:
    there = node.status.allocatable or {}
    labels = node.metadata.labels or {}
    memory_mib = labels.get(_MEMORY_MIB, "")
    return HostSpec(
        name=f"{options.host_prefix}{node.metadata.name}",
        # Nothing tells the model: the maker, from the name of the resource, keeps kinds apart.
        model=models[_label(node, _MODELS)] or resource.partition(".")[0].upper(),
        gpus=node.amount(resource),
        gpu_memory_bytes=int(memory_mib) * MIB if _SIZE.fullmatch(memory_mib) else 0,
        cpus=float(quantity(there.get("cpu", "0"))),
        memory_bytes=int(quantity(there.get("memory", "0"))) // MIB * MIB,
        datacenter=_name(_label(node, _DATACENTER)),
        pod=_name(_label(node, _POD)),
        rack=_name(_label(node, _RACK)),
    )


def _label(node: Node, names: tuple[str, ...]) -> str:
    """The first of these labels that the node has."""
    labels = node.metadata.labels or {}
    return next((labels[name] for name in names if labels.get(name)), "")


def quantity(text: str) -> Decimal:
    """An amount as Kubernetes writes it: ``3920m``, ``263856Ki``, ``1e3``; 0 for no such text."""
    found = _QUANTITY.fullmatch(text)
    if found and found[2] in _UNITS:
        with suppress(InvalidOperation):
            return Decimal(found[1]) * _UNITS[found[2]]
    return Decimal(0)


def _name(text: str) -> str:
    """A text as a name of a fleet file."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")[:128]
