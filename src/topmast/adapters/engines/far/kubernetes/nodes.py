"""What a node says of itself, and what others use of its GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from topmast.adapters.engines.far.kubernetes.options import is_tolerated
from topmast.adapters.engines.far.kubernetes.pods import Condition, Meta
from topmast.adapters.engines.far.launcher import Host

_LISTED = 3
_BINDING = ("NoSchedule", "NoExecute")


class Taint(Struct, frozen=True):
    """A reason for which a node takes only pods that tolerate it."""

    key: str
    effect: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


class NodeSpec(Struct, frozen=True):
    """What people and controllers want of a node."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeStatus(Struct, frozen=True):
    """What its kubelet says."""

    conditions: list[Condition] | None = None
    allocatable: dict[str, str] | None = None


class Node(Struct, frozen=True):
    """A node of the cluster."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def ready(self) -> Condition | None:
        """Whether its kubelet answers, as Kubernetes says."""
        found = [one for one in self.status.conditions or () if one.type == "Ready"]
        return found[0] if found else None

    def amount(self, resource: str) -> int:
        """How many of a resource that is counted in whole ones it offers."""
        text = (self.status.allocatable or {}).get(resource, "0")
        return int(text) if text.isdecimal() else 0


class Requirements(Struct, frozen=True):
    """What a container asks for."""

    limits: dict[str, str] | None = None
    """For GPUs, limits are what counts."""


class OtherContainer(Struct, frozen=True):
    """A container of any pod."""

    resources: Requirements = Requirements()


class OtherSpec(Struct, frozen=True, rename="camel"):
    """What of the wishes of any pod matters here."""

    node_name: str = ""
    containers: list[OtherContainer] | None = None
    init_containers: list[OtherContainer] | None = None


class OtherPod(Struct, frozen=True):
    """Any pod of the cluster."""

    metadata: Meta
    spec: OtherSpec

    def asks(self, resource: str) -> int:
        """How many of a resource it holds: those before the others begin end first."""

        def of(containers: list[OtherContainer] | None) -> list[int]:
            texts = [(one.resources.limits or {}).get(resource, "0") for one in containers or ()]
            return [int(text) if text.isdecimal() else 0 for text in texts]

        return max(sum(of(self.spec.containers)), *of(self.spec.init_containers), 0)


class Wanted(Struct, frozen=True):
    """What the fleet file says of a host."""

    resource: str
    gpus: int


def host_of(
    node: Node,
    name: str,
    wanted: Wanted | None,
    others: Mapping[str, str],
    tolerations: list[dict[str, str]],
) -> Host:
    """A host as Kubernetes knows it; ``others`` says by node what others use of its GPUs."""
    ready = node.ready()
    answers = ready is not None and ready.status == "True"
    closed = []
    if not answers:
        said = f": {ready.message}" if ready and ready.message else ""
        closed.append(f"not ready{said}")
    if node.spec.unschedulable:
        closed.append("cordoned")
    closed += [
        f"taint {taint}"
        for taint in node.spec.taints or ()
        if taint.effect in _BINDING
        and not taint.key.startswith("node.kubernetes.io/unschedulable")
        and not is_tolerated(taint.key, taint.value, taint.effect, tolerations)
    ]
    if wanted and wanted.gpus and node.amount(wanted.resource) < wanted.gpus:
        closed.append(
            f"offers {node.amount(wanted.resource)} {wanted.resource}, "
            f"and the fleet file says {wanted.gpus}"
        )
    if node.metadata.name in others:
        closed.append(others[node.metadata.name])
    return Host(name, answers, " ".join("; ".join(closed).split())[:500])


def used_by_others(
    pods: Iterable[OtherPod], resources: Iterable[str], is_ours: Mapping[str, str]
) -> dict[str, str]:
    """By node: how many GPUs pods hold that do not have our labels, and which pods these are."""
    kinds = sorted(dict.fromkeys(resources))
    held: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for pod in pods:
        labels = pod.metadata.labels or {}
        if not pod.spec.node_name or all(labels.get(k) == v for k, v in is_ours.items()):
            continue
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        for resource in kinds:
            if gpus := pod.asks(resource):
                held.setdefault((pod.spec.node_name, resource), []).append((name, gpus))
    said: dict[str, str] = {}
    for (node, resource), pods_there in held.items():
        total = sum(gpus for _, gpus in pods_there)
        names = [name for name, _ in sorted(pods_there)]
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        used = f"others use {total} {resource}: {', '.join(names[:_LISTED])}{more}"
        said[node] = f"{said[node]}; {used}" if node in said else used
    return said
