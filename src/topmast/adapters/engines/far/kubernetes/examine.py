"""Whether a Kubernetes cluster has the hosts of a fleet file, and grants what the engine does."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
from msgspec import Struct

from topmast.adapters.engines.far.examine import calls_home, examined
from topmast.adapters.engines.far.kubernetes.api import Api, Refusal
from topmast.adapters.engines.far.kubernetes.discover import discover
from topmast.adapters.engines.far.kubernetes.kubeconfig import read_login
from topmast.adapters.engines.far.kubernetes.options import KubernetesOptions, namespaces_of
from topmast.adapters.engines.far.launcher import Unreachable
from topmast.model.fleet import ClusterSpec
from topmast.ports import Finding, Level

RIGHTS = {
    "pods": ("create", "get", "list", "patch", "delete"),
    "secrets": ("create", "get", "delete"),
}
"""What the engine does in a namespace, as in deploy/kubernetes/rbac.yaml."""
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class _Status(Struct):
    allowed: bool = False


class _Review(Struct):
    status: _Status


def examine(
    cluster: ClusterSpec, options: KubernetesOptions, transport: httpx.BaseTransport | None = None
) -> tuple[Finding, ...]:
    """Ask the API server; no object is made. A ``transport`` replaces the net."""
    found = examined(cluster, lambda: discover(options, transport))
    if found[0].level is Level.FAULT:
        return found
    login = read_login(options.kubeconfig, options.context)
    api = Api(lambda: login, options.timeout_s, transport)
    try:
        return (*found, *_permissions(api, options), *calls_home(options))
    except (Refusal, Unreachable) as error:
        return (*found, Finding(Level.FAULT, "permissions", str(error)))
    finally:
        api.close()


def _permissions(api: Api, options: KubernetesOptions) -> Iterator[Finding]:
    for namespace in namespaces_of(options, api.namespace()):
        lacking = [
            f"{verb} {resource}"
            for resource, verbs in RIGHTS.items()
            for verb in verbs
            if not _may(api, namespace, verb, resource)
        ]
        what = f"permissions in namespace {namespace}"
        if lacking:
            yield Finding(
                Level.FAULT, what, f"may not: {', '.join(lacking)}",
                "apply deploy/kubernetes/rbac.yaml for this account",
            )  # fmt: skip
        else:
            yield Finding(Level.OK, what, "pods and secrets may be made and deleted")
    if options.see_others and not _may(api, "", "list", "pods"):
        yield Finding(
            Level.WARNING, "see others", "may not list the pods of all namespaces",
            "grant it, or set option `see_others: false`",
        )  # fmt: skip


def _may(api: Api, namespace: str, verb: str, resource: str) -> bool:
    asked = {"namespace": namespace, "verb": verb, "resource": resource}
    body = {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }  # fmt: skip
    return api.create(_Review, _REVIEWS, body).status.allowed
