"""What Kubernetes says of a fleet file, before a server uses it."""

import json
from pathlib import Path
from typing import Any

import httpx

from tests.unit.adapters.engines.kubernetes.replies import kubeconfig_in, replying
from topmast.adapters.engines.far.kubernetes.examine import RIGHTS, examine
from topmast.adapters.engines.far.kubernetes.options import KubernetesOptions
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.ports import Finding, Level

NODE: dict[str, Any] = {
    "metadata": {"name": "k1", "uid": "1", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100"}},
    "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1Ti"}},
}
CLUSTER = ClusterSpec("k", (HostSpec("k1", "H100", 8),), "kubernetes")


def look(
    folder: Path, *refused: tuple[str, str, str], node: dict[str, Any] = NODE
) -> tuple[Finding, ...]:
    """What is found where the account may do all but what is ``refused``."""

    def review(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)["spec"]["resourceAttributes"]
        key = (asked["namespace"], asked["verb"], asked["resource"])
        return httpx.Response(201, json={"status": {"allowed": key not in refused}})

    nodes = {"metadata": {}, "items": [node]}
    transport = replying({
        "/api/v1/nodes": lambda _: httpx.Response(200, json=nodes),
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": review,
    })  # fmt: skip
    options = KubernetesOptions(
        kubeconfig=str(kubeconfig_in(folder)), namespace={"": "jobs", "vision": "vision-jobs"}
    )
    return examine(CLUSTER, options, transport)


def test_an_account_with_all_rights_is_well(tmp_path: Path) -> None:
    """One line for each namespace."""
    findings = look(tmp_path)
    assert {found.level for found in findings} == {Level.OK}
    assert [found.what for found in findings[2:]] == [
        "permissions in namespace jobs", "permissions in namespace vision-jobs",
    ]  # fmt: skip


def test_of_a_node_that_tells_no_model_the_fleet_file_is_believed(tmp_path: Path) -> None:
    """Not of how many GPUs it has. The name of the maker is no model."""
    for gpus, faults in ("8", []), ("7", ["k1 has 7 GPUs, not 8"]):
        status = {"allocatable": {**NODE["status"]["allocatable"], "nvidia.com/gpu": gpus}}
        found = look(tmp_path, node={"metadata": {"name": "k1", "uid": "1"}, "status": status})
        assert [one.detail for one in found if one.level is Level.FAULT] == faults
        (warning,) = [one for one in found if one.level is Level.WARNING]
        assert (
            warning.detail == "k1: no label tells the model of the GPUs; the fleet file is believed"
        )


def test_rights_that_lack_are_named(tmp_path: Path) -> None:
    """Pods could be made there, and not be removed."""
    lacking = [("vision-jobs", "delete", "pods"), ("vision-jobs", "create", "secrets")]
    (fault,) = [one for one in look(tmp_path, *lacking) if one.level is Level.FAULT]
    assert fault.what == "permissions in namespace vision-jobs"
    assert fault.detail == "may not: delete pods, create secrets"
    assert "rbac.yaml" in fault.remedy


def test_a_view_of_others_is_wished_for(tmp_path: Path) -> None:
    """The engine works without it."""
    (warning,) = [one for one in look(tmp_path, ("", "list", "pods")) if one.level is not Level.OK]
    assert (warning.level, warning.what) == (Level.WARNING, "see others")


def test_the_rights_are_those_of_the_manifest() -> None:
    """Who applies it must not be told afterwards that something lacks."""
    manifest = (Path(__file__).parents[5] / "deploy/kubernetes/rbac.yaml").read_text("utf-8")
    for resource, verbs in RIGHTS.items():
        assert f"resources: [{resource}]\n    verbs: [{', '.join(verbs)}]" in manifest
