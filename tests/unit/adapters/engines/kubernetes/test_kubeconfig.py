"""Which server and which credentials a kubeconfig means, and what is wrong with one."""

import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from topmast.adapters.engines.far.kubernetes.credentials import obtain
from topmast.adapters.engines.far.kubernetes.kubeconfig import Login, read_login
from topmast.model.errors import InvalidInput

NOW_S = 1_700_000_000.0


def document(user: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "current-context": "blue",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443"}}],
        "users": [{"name": "u", "user": {"token": "t0"} if user is None else user}],
        "contexts": [
            {"name": "blue", "context": {"cluster": "c", "user": "u", "namespace": "ml"}},
            {"name": "red", "context": {"cluster": "c", "user": "u"}},
        ],
        **more,
    }


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_the_named_file_and_context_go_before_the_environment(tmp_path: Path) -> None:
    one = written(tmp_path / "one", document())
    two = written(tmp_path / "two", document({"token": "t2"}))
    both = {"KUBECONFIG": str(two), "HOME": str(tmp_path)}
    assert read_login(str(one), "", both).user.token == "t0"
    assert read_login("", "", both).user.token == "t2"
    assert read_login("", "", both).namespace == "ml"
    assert read_login("", "red", both).namespace == "default"


def test_of_several_files_the_first_that_defines_a_name_counts(tmp_path: Path) -> None:
    one = written(tmp_path / "one", {"users": [{"name": "u", "user": {"token": "first"}}]})
    two = written(tmp_path / "two", document())
    joined = os.pathsep.join([str(one), str(tmp_path / "missing"), str(two)])
    assert read_login("", "", {"KUBECONFIG": joined}).user.token == "first"


def test_without_a_file_the_pod_s_own_service_account_is_used(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("placers\n")
    (tmp_path / "token").write_text("of-the-pod\n")
    inside = {
        "HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443",
    }  # fmt: skip
    login = read_login("", "", inside, tmp_path)
    assert login.server.server == "https://[fd00::1]:443"
    assert login.server.certificate_authority == str(tmp_path / "ca.crt")
    assert login.namespace == "placers"
    credentials = obtain(login, NOW_S)
    assert credentials.token == "of-the-pod"
    assert NOW_S < credentials.until_s <= NOW_S + 300, "Kubernetes writes new tokens into the file"


@pytest.mark.parametrize(
    ("content", "want"),
    [
        ("{", "this is no kubeconfig"),
        ("[]", "this is no kubeconfig"),
        ({"clusters": {}}, "this is no kubeconfig"),
        ({}, "names no current context"),
        (document(contexts=[]), "no context 'blue'.*there is: none"),
        (document(clusters=[]), "no cluster 'c'"),
        (document(users=[]), "no user 'u'"),
        (document(clusters=[{"name": "c", "cluster": {}}]), "no URL as its server"),
        (
            document(clusters=[{"name": "c", "cluster": {"server": "https://[::bad"}}]),
            "no URL as its server",
        ),
        (
            document(clusters=[{"name": "c", "cluster": {"server": "https://h:99999999"}}]),
            "no URL as its server",
        ),
        (document({"auth-provider": {"name": "gcp"}}), "'auth-provider', which is not supported"),
        (document({"username": "x", "password": "y"}), "'username', which is not supported"),
        (document({"token": "t", "as": "root"}), "'as', which is not supported"),
        (document({"client-certificate-data": "%%"}), "client-certificate-data: this is no Base64"),
        (document({"exec": {"command": "x", "interactiveMode": "Always"}}), "asks a person"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_says_why(tmp_path: Path, content: Any, want: str) -> None:
    path = written(tmp_path / "config", content)
    with pytest.raises(InvalidInput, match=want) as raised:
        read_login(str(path))
    assert str(path) in str(raised.value)
    assert raised.value.remedy


def test_a_missing_file_and_none_at_all_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        read_login(str(tmp_path / "none"))
    with pytest.raises(InvalidInput, match=r"there is no kubeconfig.*name the file"):
        read_login("", "", {"HOME": str(tmp_path)})


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match=r"the kubeconfig is a pipe \(name a file\)"):
        read_login(str(tmp_path / "pipe"))


def test_files_are_looked_for_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-the-file")
    path = written(tmp_path / "config", document({"tokenFile": "token"}))
    assert obtain(read_login(str(path)), NOW_S).token == "from-the-file"


def plugin(folder: Path, script: str, **fields: Any) -> Login:
    """A login whose credentials a script prints."""
    path = folder / "plugin.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    version = "client.authentication.k8s.io/v1"
    run = {"command": str(path), "apiVersion": version, "interactiveMode": "Never", **fields}
    return read_login(str(written(folder / "config", document({"exec": run}))))


def printed(**status: Any) -> str:
    return json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "status": status})


def test_a_plugin_prints_a_token_that_ends(tmp_path: Path) -> None:
    answer = printed(token="$A-$1", expirationTimestamp="2030-01-01T00:00:00Z").replace('"', '\\"')
    login = plugin(tmp_path, f'echo "{answer}"', args=["b"], env=[{"name": "A", "value": "a"}])
    credentials = obtain(login, time.time())
    assert credentials.token == "a-b"
    assert credentials.until_s == 1_893_456_000.0


def test_a_plugin_is_told_which_cluster_is_meant(tmp_path: Path) -> None:
    script = 'echo "$KUBERNETES_EXEC_INFO" >&2; exit 3'
    with pytest.raises(InvalidInput, match=r"10\.0\.0\.1:6443"):
        obtain(plugin(tmp_path, script, provideClusterInfo=True), NOW_S)


@pytest.mark.parametrize(
    ("script", "fields", "want"),
    [
        ("echo no network >&2; exit 4", {}, "exit code 4: no network"),
        ("echo hello", {}, "printed no credentials"),
        (f"echo '{printed()}'", {}, "printed no credentials"),
        (f"""printf '%s' '{printed(token="a b" + chr(0x7f))}'""", {}, "characters that no token has"),
        ("true", {"apiVersion": "v9"}, "speaks 'v9'"),
        ("true", {"command": "/none", "installHint": "install it"}, "cannot be run.*install it"),
    ],
)  # fmt: skip
def test_a_plugin_that_fails_says_how(
    tmp_path: Path, script: str, fields: dict[str, Any], want: str
) -> None:
    with pytest.raises(InvalidInput, match=want):
        obtain(plugin(tmp_path, script, **fields), NOW_S)
