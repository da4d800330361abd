"""What is made for a part: a Secret that the runner reads, and a pod that belongs to it."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from topmast.adapters.engines.far.kubernetes.options import (
    KubernetesOptions,
    refuses_secret,
    resource_of,
    scratch_of,
    tolerations_of,
)
from topmast.adapters.engines.far.kubernetes.pods import RUNNER
from topmast.adapters.engines.far.launcher import Part, Refused
from topmast.adapters.engines.far.runner.references import HANDED

FINALIZER = "topmast.dev/truth"
"""Keeps a pod listed until its end is recorded."""
FLEET = "topmast.dev/fleet"
TENANT = "topmast.dev/tenant"
MANAGED = {"app.kubernetes.io/managed-by": "topmast"}
_FOLDER = "/var/run/topmast"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LATER_S = 10
"""After its grace a runner still tells what became of its tasks, before Kubernetes kills it."""


def secret_of(part: Part, namespace: str, fleet: str, runner: str) -> dict[str, Any]:
    """The Secret of a part: nothing in it is told by names, labels, arguments or the pod.

    It owns the pod. A pod that comes into being after it was deleted, because a request took
    long, has no files to start with, and Kubernetes deletes it as an orphan.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _meta(part, namespace, fleet),
        "type": "topmast.dev/ticket",
        "immutable": True,
        "stringData": {
            "ticket.json": msgspec.json.encode(part.ticket).decode(),
            "runner.py": runner,
        },
    }


def pod_of(
    part: Part, node: str, namespace: str, fleet: str, owner: str, options: KubernetesOptions
) -> dict[str, Any]:
    """The pod of a part on ``node``; ``owner`` is the uid of its Secret.

    Raises Refused for a part that no pod can be made of.
    """
    if not _NAME.fullmatch(part.name):
        raise Refused(f"'{part.name}' is no name of a pod: lower-case letters, digits and '-'")
    for name, _ in part.secrets.values():
        if why := refuses_secret(options, part.tenant, name):
            raise Refused(why)
    meta = _meta(part, namespace, fleet)
    meta["finalizers"] = [FINALIZER]
    meta["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Secret", "name": part.name, "uid": owner}
    ]
    resource = resource_of(options, part.model)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": math.ceil(part.ticket.grace_s) + _LATER_S,
            "affinity": _on_node(node),
            "tolerations": tolerations_of(options, [resource]),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": _pod_security(options),
            "containers": [_container(part, resource, options)],
            "volumes": _volumes(part, options),
            **_optional(options),
        },
    }


def _meta(part: Part, namespace: str, fleet: str) -> dict[str, Any]:
    labels = {**MANAGED, FLEET: fleet}
    if part.tenant and _LABEL.fullmatch(part.tenant):
        labels[TENANT] = part.tenant
    return {"name": part.name, "namespace": namespace, "labels": labels}


def _on_node(node: str) -> dict[str, Any]:
    """Exactly that node, by way of the scheduler: it knows whether the node takes work.

    A pod with ``nodeName`` runs on a cordoned node too, and there without its GPUs.
    """
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _pod_security(options: KubernetesOptions) -> dict[str, Any]:
    return {
        "runAsUser": options.user,
        "runAsGroup": options.group,
        "runAsNonRoot": options.user != 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _container(part: Part, resource: str, options: KubernetesOptions) -> dict[str, Any]:
    if not part.image:
        raise Refused("no container image: name one in the job file, or for the cluster (image)")
    return {
        "name": RUNNER,
        "image": part.image,
        "command": [
            options.python, "-I", "-S", f"{_FOLDER}/runner.py", f"{_FOLDER}/ticket.json",
            part.hosts[0],
        ],
        # A user without an entry in the image's /etc/passwd has `/` as its home.
        "env": [{"name": "HOME", "value": scratch_of(options)}, *_handed(part)],
        "resources": _resources(part, resource),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "topmast", "mountPath": _FOLDER, "readOnly": True},
            {"name": "scratch", "mountPath": scratch_of(options)},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
            *(
                {"name": f"claim-{index}", "mountPath": path}
                for index, path in enumerate(sorted(options.mount))
            ),
        ],
    }  # fmt: skip


def _handed(part: Part) -> list[dict[str, Any]]:
    """Variables that the kubelet fills in; the runner gives them to the tasks under their names."""
    return [
        {
            "name": f"{HANDED}{variable}",
            "valueFrom": {"secretKeyRef": {"name": name, "key": key, "optional": False}},
        }
        for variable, (name, key) in sorted(part.secrets.items())
    ]


def _resources(part: Part, resource: str) -> dict[str, Any]:
    """GPUs and memory are limits too, CPUs are not: idle ones of the node are there for all."""
    requests: dict[str, str] = {}
    if part.gpus:
        requests[resource] = str(part.gpus)
    if part.memory_bytes:
        requests["memory"] = str(part.memory_bytes)
    limits = dict(requests)
    if part.cpus:
        requests["cpu"] = f"{math.ceil(part.cpus * 1000)}m"
    return {"requests": requests, "limits": limits}


def _volumes(part: Part, options: KubernetesOptions) -> list[dict[str, Any]]:
    # The files belong to root. Another user may read them only by mode: a group for the pod's
    # volumes (fsGroup) would also change the owners of what the site's claims hold.
    mode = 0o400 if options.user == 0 else 0o444
    return [
        {"name": "topmast", "secret": {"secretName": part.name, "defaultMode": mode}},
        {"name": "scratch", "emptyDir": {}},
        # By default a container has 64 MB of shared memory, and data loaders use more.
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        *(
            {
                "name": f"claim-{index}",
                "persistentVolumeClaim": {"claimName": options.mount[path]},
            }
            for index, path in enumerate(sorted(options.mount))
        ),
    ]


def _scratch(options: KubernetesOptions) -> str:
    return options.work or "/tmp"  # noqa: S108


def _optional(options: KubernetesOptions) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if options.priority_class:
        found["priorityClassName"] = options.priority_class
    if options.runtime_class:
        found["runtimeClassName"] = options.runtime_class
    if options.pull_secret:
        found["imagePullSecrets"] = [{"name": options.pull_secret}]
    if options.host_network:
        found["hostNetwork"] = True
        found["dnsPolicy"] = "ClusterFirstWithHostNet"
    return found
