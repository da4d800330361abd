"""What a fleet file may say of a cluster that Kubernetes runs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from topmast.adapters.engines.far.options import FarOptions, Seconds
from topmast.adapters.engines.forms import (
    CLAIM,
    MODEL,
    MOUNT,
    NAMESPACE,
    OBJECT,
    PATH,
    PROGRAM,
    SCRATCH,
    TAINTS,
    TENANT,
    keyed_by,
    plain_path,
)

Id = Annotated[int, Meta(ge=0, le=2**31 - 1)]
ByTenant = Annotated[dict[str, str], keyed_by(TENANT, default=True)]
GPU = "nvidia.com/gpu"


class KubernetesOptions(FarOptions, frozen=True):
    """Options of engine ``kubernetes``."""

    kubeconfig: str = ""
    """Empty: $KUBECONFIG, ~/.kube/config, or the pod's own service account."""
    context: str = ""
    """Of the kubeconfig; empty: its current one."""
    namespace: Annotated[dict[str, Annotated[str, NAMESPACE]], keyed_by(TENANT, default=True)] = (
        field(default_factory=dict)
    )
    """Where pods are made, by tenant (``namespace.TENANT``); empty: that of the context."""
    host_prefix: str = ""
    """Stands before the name of the node in a host's name: two clusters may both have a node-1."""
    resource: Annotated[dict[str, str], keyed_by(MODEL, default=True)] = field(default_factory=dict)
    """What pods ask for to get a GPU, by model (``resource.MODEL``); by default that of NVIDIA."""
    secrets: ByTenant = field(default_factory=dict)
    """Secrets that jobs may refer to, by tenant: ``secrets.TENANT: NAME,NAME``; none by default."""
    pull_secret: Annotated[str, OBJECT] = ""
    """The Secret with the registry's password, in each of the namespaces."""
    python: Annotated[str, PROGRAM] = "python3"
    """The interpreter of the runner, in the image: 3.8 or newer."""
    priority_class: Annotated[str, OBJECT] = ""
    """Of all pods; empty: the cluster's default."""
    runtime_class: Annotated[str, OBJECT] = ""
    """Of all pods: some sites give GPUs only to ``nvidia``."""
    tolerate: Annotated[str, TAINTS] = ""
    """Taints that pods tolerate: ``KEY[=VALUE][:EFFECT]``, separated by commas."""
    mount: Annotated[
        dict[str, Annotated[str, CLAIM]], keyed_by(PATH, default=False, form=MOUNT)
    ] = field(default_factory=dict)
    """Claims of volumes, by the path at which tasks see them: ``mount./data: datasets``."""
    work: Annotated[str, SCRATCH] = ""
    user: Id = 1000
    """The number of the user that tasks run as; 0 is refused where pods must be *restricted*."""
    group: Id = 1000
    host_network: bool = False
    """Tasks use the network of the node, as RDMA often needs: no *restricted* namespace has it."""
    see_others: bool = True
    """Close hosts while other pods use their GPUs: needs the right to list the pods of all."""
    timeout_s: Seconds = 15.0
    """For each answer of the API server."""


def scratch_of(options: KubernetesOptions) -> str:
    """Where a pod has a folder of its own, with the work folders.

    As plain as the paths of mounts: Kubernetes takes `/a/` and `/a` for two.
    """
    return plain_path(options.work or "/tmp")  # noqa: S108


def resource_of(options: KubernetesOptions, model: str) -> str:
    """What GPUs of a model are called in a pod's requests."""
    return options.resource.get(model) or options.resource.get("") or GPU


def namespace_of(options: KubernetesOptions, tenant: str, usual: str) -> str:
    """Where the pods of a tenant's jobs are made."""
    return options.namespace.get(tenant) or options.namespace.get("") or usual


def refuses_secret(options: KubernetesOptions, tenant: str, name: str) -> str:
    """Why the jobs of a tenant may not refer to a Secret; empty if they may."""
    given = options.secrets.get(tenant, "")
    if name in [text.strip() for text in given.split(",")]:
        return ""
    return (
        f"secrets: tenant {tenant} may not use the Secret {name} of this cluster "
        f"(its option secrets.{tenant} does not list it)"
    )


def namespaces_of(options: KubernetesOptions, usual: str) -> list[str]:
    """All namespaces with pods of this cluster."""
    return sorted({namespace_of(options, tenant, usual) for tenant in ("", *options.namespace)})


def tolerations_of(options: KubernetesOptions, resources: list[str]) -> list[dict[str, str]]:
    """The taints that pods tolerate, as Kubernetes writes it.

    Those of lost nodes among them, for any time: otherwise Kubernetes would delete the pods of a
    node that it lost sight of, although their tasks may run on.
    """
    found = [
        {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute"}
        for why in ("not-ready", "unreachable")
    ]
    found += [{"key": resource, "operator": "Exists"} for resource in resources]
    for text in filter(None, (part.strip() for part in options.tolerate.split(","))):
        name, _, effect = text.partition(":")
        key, has_value, value = name.partition("=")
        one = {"key": key, "operator": "Equal" if has_value else "Exists"}
        if has_value:
            one["value"] = value
        if effect:
            one["effect"] = effect
        found.append(one)
    return found


def is_tolerated(key: str, value: str, effect: str, tolerations: list[dict[str, str]]) -> bool:
    """Whether pods with these tolerations may be started in spite of a taint."""
    return any(
        one["key"] == key
        and one.get("effect", effect) == effect
        and (one["operator"] == "Exists" or one.get("value", "") == value)
        for one in tolerations
    )
