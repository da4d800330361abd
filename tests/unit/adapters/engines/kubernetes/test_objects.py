"""What is sent to Kubernetes for a part."""

import json
from typing import Any

import pytest

from topmast.adapters.engines.far.kubernetes.objects import FINALIZER, pod_of, secret_of
from topmast.adapters.engines.far.kubernetes.options import (
    KubernetesOptions,
    namespace_of,
    namespaces_of,
    tolerations_of,
)
from topmast.adapters.engines.far.launcher import Part, Refused, Ticket

TICKET = Ticket("https://home:1", "CA", "t0p-secret", "tm-f-j1-1-0", 600.0, 7.2)


def part(**fields: Any) -> Part:
    given: dict[str, Any] = {
        "name": "tm-f-j1-1-0", "hosts": ("east-n",), "tasks": 2, "gpus": 2, "model": "H100",
        "cpus": 1.5, "memory_bytes": 1 << 30, "limit_s": 60.0, "tenant": "vision",
        "image": "r/i:1", "ticket": TICKET,
    }  # fmt: skip
    return Part(**{**given, **fields})


def pod(options: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return pod_of(part(**fields), "n", "ml", "f", "owner", KubernetesOptions(**(options or {})))


def test_a_pod_runs_once_on_its_node_and_is_never_ended_by_kubernetes_alone() -> None:
    made = pod()
    spec, meta = made["spec"], made["metadata"]
    assert spec["restartPolicy"] == "Never"
    assert "nodeName" not in spec
    assert "activeDeadlineSeconds" not in spec
    assert meta["finalizers"] == [FINALIZER]
    assert [owner["uid"] for owner in meta["ownerReferences"]] == ["owner"]
    lost = [one for one in spec["tolerations"] if one.get("effect") == "NoExecute"]
    assert len(lost) == 2
    assert not any("tolerationSeconds" in one for one in lost)
    assert spec["terminationGracePeriodSeconds"] == 18


def test_secrets_are_in_the_secret_alone() -> None:
    assert "t0p-secret" not in json.dumps(pod())
    secret = secret_of(part(), "ml", "f", "print('runner')")
    assert json.loads(secret["stringData"]["ticket.json"])["token"] == "t0p-secret"
    assert "t0p-secret" not in json.dumps(secret["metadata"])


def test_a_pod_keeps_the_restricted_standard() -> None:
    """Rules: https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted."""
    spec = pod({"mount": {"/data": "claim"}})["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    allowed = {
        "configMap",
        "downwardAPI",
        "emptyDir",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    assert all(set(volume) - {"name"} <= allowed for volume in spec["volumes"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert "ports" not in container


def test_the_secret_is_readable_by_its_user_and_claims_keep_their_owners() -> None:
    def mode(user: int) -> int:
        return int(pod({"user": user})["spec"]["volumes"][0]["secret"]["defaultMode"])

    assert (mode(0), mode(1000)) == (0o400, 0o444)
    assert "fsGroup" not in pod()["spec"]["securityContext"]
    assert pod({"user": 0})["spec"]["securityContext"]["runAsNonRoot"] is False


@pytest.mark.parametrize(
    ("fields", "options", "want_requests", "want_limits"),
    [
        ({}, {}, {"nvidia.com/gpu": "2", "memory": "1073741824", "cpu": "1500m"},
         {"nvidia.com/gpu": "2", "memory": "1073741824"}),
        ({"gpus": 0, "cpus": 0, "memory_bytes": 0}, {}, {}, {}),
        ({"cpus": 0, "memory_bytes": 0}, {"resource": {"": "amd.com/gpu"}}, {"amd.com/gpu": "2"},
         {"amd.com/gpu": "2"}),
        ({"cpus": 0, "memory_bytes": 0}, {"resource": {"": "a", "H100": "b"}}, {"b": "2"}, {"b": "2"}),
    ],
)  # fmt: skip
def test_what_is_asked_for(
    fields: dict[str, Any], options: dict[str, Any], want_requests: object, want_limits: object
) -> None:
    resources = pod(options, **fields)["spec"]["containers"][0]["resources"]
    assert resources == {"requests": want_requests, "limits": want_limits}


def test_options_reach_the_pod() -> None:
    spec = pod({
        "priority_class": "high", "runtime_class": "nvidia", "pull_secret": "regcred",
        "mount": {"/data": "sets", "/ckpt": "checks"}, "host_network": True, "work": "/scratch",
        "python": "/opt/py", "tolerate": "a=b:NoSchedule, c",
    })["spec"]  # fmt: skip
    assert (spec["priorityClassName"], spec["runtimeClassName"]) == ("high", "nvidia")
    assert spec["imagePullSecrets"] == [{"name": "regcred"}]
    assert spec["hostNetwork"] is True
    mounts = {one["mountPath"]: one["name"] for one in spec["containers"][0]["volumeMounts"]}
    claims = {one["name"]: one["persistentVolumeClaim"]["claimName"]
              for one in spec["volumes"] if "persistentVolumeClaim" in one}  # fmt: skip
    assert {path: claims[mounts[path]] for path in ("/data", "/ckpt")} == {
        "/data": "sets", "/ckpt": "checks",
    }  # fmt: skip
    assert "/scratch" in mounts
    assert spec["containers"][0]["command"][0] == "/opt/py"
    assert spec["tolerations"][-2:] == [
        {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
        {"key": "c", "operator": "Exists"},
    ]


@pytest.mark.parametrize(
    ("fields", "want"),
    [({"name": "tm-F"}, "no name of a pod"), ({"name": "x" * 64}, "no name of a pod"),
     ({"name": "a/../b"}, "no name of a pod"), ({"image": ""}, "no container image")],
)  # fmt: skip
def test_what_no_pod_can_be_made_of_is_refused(fields: dict[str, Any], want: str) -> None:
    with pytest.raises(Refused, match=want):
        pod(**fields)


def test_a_tenant_that_is_no_label_is_left_out_and_never_refused() -> None:
    assert pod(tenant="vision")["metadata"]["labels"]["topmast.dev/tenant"] == "vision"
    assert "topmast.dev/tenant" not in pod(tenant="a" * 64)["metadata"]["labels"]
    assert "topmast.dev/tenant" not in pod(tenant="ends-")["metadata"]["labels"]


def test_namespaces_by_tenant() -> None:
    options = KubernetesOptions(namespace={"vision": "v", "": "all"})
    assert namespace_of(options, "vision", "usual") == "v"
    assert namespace_of(options, "nlp", "usual") == "all"
    assert namespace_of(KubernetesOptions(), "nlp", "usual") == "usual"
    assert namespaces_of(options, "usual") == ["all", "v"]
    assert namespaces_of(KubernetesOptions(namespace={"vision": "v"}), "u") == ["u", "v"]


def test_lost_nodes_are_always_tolerated() -> None:
    keys = [one["key"] for one in tolerations_of(KubernetesOptions(), ["gpu"])]
    assert keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "gpu"]


def test_a_secret_is_handed_over_by_the_kubelet_to_tenants_that_may_use_it() -> None:
    """The pod names it; without the option no job can name one, least of all our own tickets."""
    mine = {"KEY": ("team", "s3")}
    (container,) = pod({"secrets": {"vision": "other, team"}}, secrets=mine)["spec"]["containers"]
    wanted = {"secretKeyRef": {"name": "team", "key": "s3", "optional": False}}
    assert container["env"][1:] == [{"name": "TOPMAST_SECRET_KEY", "valueFrom": wanted}]
    for options, tenant in (
        ({}, "vision"), ({"secrets": {"vision": "other"}}, "vision"),
        ({"secrets": {"vision": "team"}}, "vision2"), ({"secrets": {"": "team"}}, "vision"),
    ):  # fmt: skip
        with pytest.raises(Refused, match=f"tenant {tenant} may not use the Secret team"):
            pod(options, secrets=mine, tenant=tenant)
