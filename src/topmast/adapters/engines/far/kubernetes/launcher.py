"""The launcher of Kubernetes: pods are made, listed, deleted and let go."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from msgspec import Struct

from topmast.adapters.engines.far import runner as runners
from topmast.adapters.engines.far.kubernetes import nodes, pods
from topmast.adapters.engines.far.kubernetes.api import Api, Refusal
from topmast.adapters.engines.far.kubernetes.kubeconfig import read_login
from topmast.adapters.engines.far.kubernetes.objects import (
    FINALIZER,
    FLEET,
    pod_of,
    secret_of,
)
from topmast.adapters.engines.far.kubernetes.options import (
    KubernetesOptions,
    namespace_of,
    namespaces_of,
    resource_of,
    tolerations_of,
)
from topmast.adapters.engines.far.launcher import (
    Host,
    Launcher,
    Listed,
    Part,
    Refused,
    Unreachable,
)
from topmast.model.fleet import ClusterSpec, HostSpec

OTHERS_S = 15.0
"""How often all pods of the cluster are listed, to see which GPUs others use."""
_REMEDIES = (
    ("denied", "a policy of the site: change what the job asks for, or ask its people"),
    ("exceeded quota", "raise the ResourceQuota of the namespace, or give the tenant another one"),
    ("must specify", "the namespace has a ResourceQuota: give jobs cpus and memory"),
    ("usage per", "the namespace has a LimitRange: ask for what it allows"),
    ("podsecurity", "the namespace allows less than the cluster's options ask for: see `user`"),
    ("priorityclass", "make the class, or correct options.priority_class"),
    ("priority class", "make the class, or correct options.priority_class"),
    ("cannot", "give the placer's user the rights of deploy/kubernetes/rbac.yaml"),
)
"""By a word of the refusal: the first that occurs."""
_SAME_FOR_ALL = re.compile(
    r'(\S+ ("\S*" )?is forbidden: )?(user ".*?" cannot |violates podsecurity |no priorityclass )'
)
"""How refusals begin that have nothing to do with what a job asks for. Any of these words may also
stand in what a policy of the site says of one image.
"""
_GONE = (404, 409, 422)
"""Not found, or another one by now: a uid that is not the object's is a conflict, or invalid."""


class _Any(Struct):
    """An object of which no field matters."""


class _Owned(Struct):
    metadata: pods.Meta


class KubernetesLauncher(Launcher):
    """Bare pods, pinned to their node; the name of a pod is the lock on its part."""

    options_type = KubernetesOptions
    many_hosts = False
    exact_gpus = False
    images = True

    def __init__(
        self,
        cluster: ClusterSpec,
        fleet: str,
        options: KubernetesOptions,
        runner: Path | None = None,
        transport: httpx.BaseTransport | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is read or asked before the first call; a ``transport`` replaces the net."""
        super().__init__(cluster, fleet, options)
        self._settings = options
        self._runner = runner.read_text(encoding="utf-8") if runner else runners.text()
        self._now_s = now_s
        self._others: tuple[float, dict[str, str]] = (-math.inf, {})
        self.set_hosts(cluster.hosts)
        self._api = Api(
            lambda: read_login(options.kubeconfig, options.context), options.timeout_s, transport
        )

    def set_hosts(self, hosts: tuple[HostSpec, ...]) -> None:
        """The hosts of the fleet file: nodes are compared with them."""
        self._hosts = {host.name: host for host in hosts}
        self._resources = sorted({resource_of(self._settings, host.model) for host in hosts})

    def submit(self, part: Part) -> str:
        """Make the Secret, then the pod. A name that is there already is left as it is."""
        namespace = namespace_of(self._settings, part.tenant, self._usual())
        node = part.hosts[0].removeprefix(self._settings.host_prefix)
        path = f"/api/v1/namespaces/{namespace}"
        # What no pod can be made of is refused before anything is made.
        pod_of(part, node, namespace, self._fleet, "", self._settings)
        owner = self._made_secret(part, namespace)
        pod = pod_of(part, node, namespace, self._fleet, owner, self._settings)
        try:
            self._api.create(_Any, f"{path}/pods", pod)
        except Refusal as refusal:
            # An earlier request may have made it, whatever the answer is now: quotas are checked
            # before names.
            if refusal.reason == "AlreadyExists" or self._exists(f"{path}/pods/{part.name}"):
                return ""
            with suppress(Refusal, Unreachable):
                self._api.delete(f"{path}/secrets/{part.name}", _only(owner))
            raise _refused(refusal, namespace, everyone=self._of_everyone(part)) from None
        return ""

    def _of_everyone(self, part: Part) -> bool:
        """Whether the namespace of a part is that of all tenants with none of their own."""
        return part.tenant not in self._settings.namespace

    def _made_secret(self, part: Part, namespace: str) -> str:
        """The uid of the part's Secret, which is made if it is not there."""
        path = f"/api/v1/namespaces/{namespace}/secrets"
        try:
            body = secret_of(part, namespace, self._fleet, self._runner)
            return self._api.create(_Owned, path, body).metadata.uid
        except Refusal as refusal:
            if refusal.reason != "AlreadyExists":
                raise _refused(refusal, namespace, everyone=self._of_everyone(part)) from None
        try:
            return self._api.get(_Owned, f"{path}/{part.name}").metadata.uid
        except Refusal as refusal:
            raise Unreachable(f"the Secret of {part.name} is lost: {refusal.message}") from None

    def _exists(self, path: str) -> bool:
        try:
            self._api.get(_Any, path)
        except Refusal as refusal:
            if refusal.code == 404:
                return False
            raise Unreachable(refusal.message) from None
        return True

    def release(self, listed: Sequence[Listed]) -> None:
        """A pod is never held: its name is the lock."""

    def cancel(self, listed: Listed, grace_s: float) -> None:
        """Delete the pod, with a grace of one second at least.

        Without any, Kubernetes would forget the pod while its processes live.
        """
        path, uid = _place(listed)
        body = {**_only(uid), "gracePeriodSeconds": max(1, math.ceil(grace_s))}
        self._ask(lambda: self._api.delete(path, body), listed)

    def forget(self, listed: Listed) -> None:
        """Delete what is left of a part: the Secret first, so that no late pod can start."""
        path, uid = _place(listed)
        secret = path.replace("/pods/", "/secrets/")
        owner = self._ask(lambda: self._owner(path, uid), listed)
        if owner is None:  # a pod that was deleted by force leaves its Secret
            owner = self._ask(lambda: self._own(secret), listed)
        if owner:
            self._ask(lambda: self._api.delete(secret, _only(owner)), listed)
        self.cancel(listed, 1.0)
        freed = {"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
        self._ask(lambda: self._api.patch(path, freed), listed)

    def _owner(self, path: str, uid: str) -> str:
        """The uid of the Secret of a pod."""
        meta = self._api.get(_Owned, path).metadata
        owners = meta.owner_references or []
        return next((one.uid for one in owners if one.kind == "Secret" and meta.uid == uid), "")

    def _own(self, path: str) -> str:
        """The uid of an object, if it has the label of this fleet."""
        meta = self._api.get(_Owned, path).metadata
        return meta.uid if (meta.labels or {}).get(FLEET) == self._fleet else ""

    def _ask(self, call: Callable[[], Any], listed: Listed) -> Any:
        """The answer to what is harmless when the object is gone, or is another one by now."""
        try:
            return call()
        except Refusal as refusal:
            if refusal.code in _GONE:
                return None
            raise Unreachable(f"{listed.name}: {_with_remedy(refusal)}") from None

    def list(self) -> tuple[Listed, ...]:
        """All pods with the label of this fleet, namespace by namespace."""
        found: list[Listed] = []
        for namespace in namespaces_of(self._settings, self._usual()):
            path = f"/api/v1/namespaces/{namespace}/pods"
            ours = self._all(pods.Pod, path, labelSelector=f"{FLEET}={self._fleet}")
            found += [pods.listed(pod) for pod in ours]
        return tuple(found)

    def hosts(self) -> tuple[Host, ...]:
        """All nodes, those that the fleet file does not name included."""
        found = self._all(nodes.Node, "/api/v1/nodes")
        others = self._used_by_others() if self._settings.see_others else {}
        tolerations = tolerations_of(self._settings, self._resources)
        told = []
        for node in found:
            name = f"{self._settings.host_prefix}{node.metadata.name}"
            spec = self._hosts.get(name)
            wanted = (
                nodes.Wanted(resource_of(self._settings, spec.model), spec.gpus) if spec else None
            )
            told.append(nodes.host_of(node, name, wanted, others, tolerations))
        return tuple(told)

    def _used_by_others(self) -> dict[str, str]:
        looked_s, found = self._others
        if self._now_s() - looked_s > OTHERS_S:
            running = "status.phase!=Succeeded,status.phase!=Failed"
            everything = self._all(nodes.OtherPod, "/api/v1/pods", fieldSelector=running)
            found = nodes.used_by_others(everything, self._resources, {FLEET: self._fleet})
            self._others = (self._now_s(), found)
        return found

    def _all(self, kind: type[Any], path: str, **params: str) -> Sequence[Any]:
        try:
            return self._api.all(kind, path, **params)
        except Refusal as refusal:
            raise Unreachable(_with_remedy(refusal)) from None

    def _usual(self) -> str:
        return self._settings.namespace.get("") or self._api.namespace()

    def close(self) -> None:
        """Close the connections; pods go on."""
        self._api.close()


def _place(listed: Listed) -> tuple[str, str]:
    """Where a pod is, and its uid."""
    namespace, _, uid = listed.id.partition("/")
    return f"/api/v1/namespaces/{namespace}/pods/{listed.name}", uid


def _only(uid: str) -> dict[str, Any]:
    """Delete that object, and no later one of the same name."""
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}


def _refused(refusal: Refusal, namespace: str, *, everyone: bool) -> Exception:
    """A refusal for good, or one that says that another try may succeed.

    ``everyone``: the namespace is not that of one tenant.
    """
    if refusal.code == 409:
        return Unreachable(f"another request was in the way: {refusal.message}")
    if refusal.code == 404:
        return Refused(
            f"{refusal.message} (make the namespace '{namespace}', or correct options.namespace)",
            everyone=everyone,
        )
    text = refusal.message.lower()
    same = refusal.code == 401 or _SAME_FOR_ALL.match(text) is not None
    return Refused(_with_remedy(refusal), everyone=everyone and same)


def _with_remedy(refusal: Refusal) -> str:
    if refusal.code == 401:
        return f"{refusal.message} (renew the credentials of the kubeconfig)"
    text = refusal.message.lower()
    remedy = next((remedy for word, remedy in _REMEDIES if word in text), "")
    return f"{refusal.message} ({remedy})" if remedy else refusal.message
