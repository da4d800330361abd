"""The chart of `deploy/helm`, the plain manifests that are made of it, and the container file."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import REPO
from tests.support.helm import CHART, HEAD, PLAIN, by_helm, render
from tests.unit.cli.program import ROOT
from topmast.cli import main
from topmast.model.files.accountsfile import read_accounts
from topmast.model.files.fleetfile import read_fleet

PAIR = {
    "store": "postgresql://topmast@db1/topmast",
    "replicas": 2,
    "extraArgs": ["--set", "defragment=true"],
}


def manifests(**values: Any) -> dict[str, dict[str, Any]]:
    """What the chart gives with these values, by kind."""
    text = render(CHART, values, "queue", "topmast")
    found = [one for one in yaml.safe_load_all(text) if one]
    assert len({one["kind"] for one in found}) == len(found)
    return {one["kind"]: one for one in found}


def command(found: dict[str, dict[str, Any]]) -> list[str]:
    """The words of the container's command."""
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    words: list[str] = container["command"]
    return words


def test_the_plain_manifests_are_those_of_the_chart() -> None:
    """One source: `make manifests` writes them."""
    wanted = HEAD + "---\n" + render(CHART, {}, "queue", "topmast")
    assert PLAIN.read_text(encoding="utf-8") == wanted


@pytest.mark.parametrize("values", [{}, PAIR], ids=["alone", "pair"])
def test_helm_has_no_complaint_and_makes_the_same(values: dict[str, Any]) -> None:
    """Where it is installed; our own reader knows only the part of its language that is used."""
    made = by_helm(CHART, values, "queue", "topmast")
    if made is None:
        pytest.skip("no Helm (run `make helm-tools`)")
    found = [one for one in yaml.safe_load_all(made) if one]
    assert {one["kind"]: one for one in found} == manifests(**values)


@pytest.mark.parametrize("values", [{}, PAIR], ids=["alone", "pair"])
def test_the_command_is_one_that_topmast_takes(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No option is misspelt, and all files that it names are mounted."""
    given: list[Any] = []

    def serve(options: Any) -> int:
        given.append(options)
        return 0

    found = manifests(**values)
    program, *words = command(found)
    assert program == "topmast"
    monkeypatch.setenv("TOPMAST_TOKEN", "a" * 64)
    assert main(replace(ROOT, serve=serve), words) == 0
    (options,) = given
    assert options.placers == {"REGION": "http://placer.topmast:7001"}
    assert options.standby == bool(values)
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    for file in (options.fleet, options.accounts, options.tls_cert, options.tls_key):
        assert str(file.parent) in mounted
    assert "/" + options.state.parts[1] in mounted


def test_the_files_in_it_are_good(tmp_path: Path) -> None:
    """A fleet file and one about logins, as the server reads them."""
    data = manifests()["ConfigMap"]["data"]
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    assert [region.name for region in read_fleet(tmp_path / "fleet.yaml").regions] == ["REGION"]
    assert read_accounts(tmp_path / "accounts.yaml").limits["submit"].burst == 500


def test_a_pod_has_no_more_rights_than_it_needs() -> None:
    """The strictest standard for pods, and no token of the cluster."""
    pod = manifests()["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_no_secret_is_in_a_manifest_or_a_command() -> None:
    """Passwords and tokens come from Secrets."""
    found = manifests(**PAIR)
    assert "Secret" not in found
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    secret = {one["name"] for one in container["env"] if "valueFrom" in one}
    assert secret == {"TOPMAST_TOKEN", "PGPASSWORD"}


def test_the_container_file_copies_what_there_is() -> None:
    """Its stages name each other, and its files are in the repository."""
    text = (REPO / "deploy" / "Containerfile").read_text(encoding="utf-8")
    stages = re.findall(r"^FROM \S+(?: AS (\w+))?$", text, re.MULTILINE)
    assert stages == ["build", ""]
    for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE):
        if line.startswith("--from="):
            assert line.startswith("--from=build ")
            continue
        *sources, _ = line.split()
        assert all((REPO / source).exists() for source in sources), line
    assert re.search(r"^USER 1000:1000$", text, re.MULTILINE)
