"""The manifests of `deploy/kubernetes`, applied as they are, and the rights that they give."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import REPO
from tests.contract.kubernetes.launched import Launched
from tests.support.helm import CHART, PLAIN, render
from tests.support.kubelab.lab import Lab
from tests.support.kubelab.programs import until
from topmast.adapters.engines.far.launcher import State

FOLDER = REPO / "deploy" / "kubernetes"
FILES = ("namespaces.yaml", "rbac.yaml", "placer.yaml")


@pytest.fixture(scope="module")
def applied(lab: Lab) -> Iterator[Lab]:
    for name in FILES:
        lab.kubectl("apply", "-f", str(FOLDER / name))
    yield lab
    for name in reversed(FILES):
        lab.kubectl("delete", "--wait=false", "-f", str(FOLDER / name))


def test_all_manifests_are_tested() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted((*FILES, PLAIN.name))


@pytest.mark.parametrize(
    "values",
    [{}, {"store": "postgresql://topmast@db1/topmast", "replicas": 2}],
    ids=["alone", "pair"],
)
def test_the_api_server_takes_the_queue(
    applied: Lab, tmp_path: Path, values: dict[str, Any]
) -> None:
    """A field that it does not know, or a value of another type, is refused."""
    (tmp_path / "queue.yaml").write_text(render(CHART, values, "queue", "topmast"))
    said = applied.kubectl("apply", "--dry-run=server", "-f", str(tmp_path / "queue.yaml"))
    assert {line.split("/")[0] for line in said.splitlines()} == {
        "configmap", "service", "statefulset.apps",
    }  # fmt: skip


@pytest.fixture
def placer(applied: Lab, tmp_path: Path) -> Path:
    """A kubeconfig of the placer's own service account."""
    token = applied.account_token("topmast", "placer")
    return applied.login(tmp_path / "config", namespace="topmast-jobs", token=token)


def test_the_placer_s_account_can_do_all_that_a_launcher_does(
    launched: Launched, placer: Path
) -> None:
    launcher = launched.launcher = launched.other(kubeconfig=str(placer))
    accounts = ("get", "serviceaccounts", "-n", "topmast-jobs", "-o", "name")
    launched.wait(lambda: "default" in launched.lab.kubectl(*accounts), "an account for pods")
    assert {host.name for host in launcher.hosts()} == {"h0", "h1"}
    part = launched.part(lasts_s=0.1)
    launcher.submit(part)
    launcher.submit(part)
    launcher.cancel(launched.until(part.name, State.ENDED), 1.0)
    launcher.forget(launched.until(part.name, State.ENDED))
    launched.wait(lambda: launched.seen(part.name) is None, "the pod to be gone")


@pytest.mark.parametrize(
    "what",
    [
        ("list", "secrets", "topmast-jobs"),
        ("get", "secrets", "topmast"),
        ("get", "secrets", "kube-system"),
        ("create", "pods", "topmast"),
        ("create", "pods --subresource=exec", "topmast-jobs"),
        ("delete", "pods", "default"),
        ("patch", "nodes", ""),
        ("create", "rolebindings", "topmast-jobs"),
    ],
    ids=" ".join,
)
def test_the_placer_s_account_can_do_nothing_else(applied: Lab, what: tuple[str, ...]) -> None:
    verb, resource, namespace = what
    account = "--as=system:serviceaccount:topmast:placer"
    scope = ("-n", namespace) if namespace else ()
    said = applied.kubectl("auth", "can-i", verb, *resource.split(), account, *scope, check=False)
    assert said.strip().splitlines()[-1] == "no"


def test_the_deployment_makes_a_pod_with_the_account_of_the_placer(applied: Lab) -> None:
    pods: list[dict[str, Any]] = []

    def made() -> bool:
        pods[:] = applied.get("pods", "-n", "topmast")["items"]
        return bool(pods)

    until(made, 60.0, "the placer's pod")
    assert pods[0]["spec"]["serviceAccountName"] == "placer"


def test_what_the_guide_says_of_options_is_what_the_service_offers() -> None:
    text = (FOLDER / "placer.yaml").read_text(encoding="utf-8")
    service = next(one for one in yaml.safe_load_all(text) if one["kind"] == "Service")
    ports = [port["port"] for port in service["spec"]["ports"]]
    assert "0.0.0.0:7443" in text
    assert ports == [7001, 7443]
