"""`topmast doctor` on this machine."""

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import postgresql
from topmast.adapters.store import open_journal

FLEET = """
regions:
  east:
    clusters:
      here: {hosts: [{count: 2, gpu: H100, gpus: 8}]}
      slurm: {engine: slurm, options: {bin: /nowhere}, hosts: [{names: [n1], gpu: H100, gpus: 8}]}
      kube:
        engine: kubernetes
        options: {kubeconfig: /nowhere}
        hosts: [{names: [k1], gpu: H100, gpus: 8}]
      odd: {engine: odd, hosts: [{names: [o1], gpu: H100, gpus: 8}]}
"""


def doctor(*arguments: str, state: Path) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, the findings, and what was said beside them."""
    done = subprocess.run(
        [sys.executable, "-m", "topmast.app", "doctor", "--json", "--state", state, *arguments],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)["findings"], done.stderr


def test_this_machine_is_fit(tmp_path: Path) -> None:
    """A folder that is not there yet will be made below one that is, and is not made now."""
    code, findings, error = doctor(state=tmp_path / "a/b")
    assert (code, error) == (0, "")
    assert [found["what"] for found in findings] == [
        "python", "packages", "state folder", "open files",
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_a_folder_where_nothing_can_be_kept_is_a_fault() -> None:
    """The rights of `/proc` say that its owner may write there."""
    code, findings, _ = doctor(state=Path("/proc/topmast"))
    (fault,) = [found for found in findings if found["level"] == "fault"]
    assert (code, fault["what"]) == (1, "state folder")


def test_a_state_folder_that_a_server_refuses_is_a_fault(tmp_path: Path) -> None:
    """Open to others and not its own; damaged; of a later version. Nothing of it is changed."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    (home / "thesis.txt").write_text("mine")
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    journal = state / "journal.sqlite"
    open_journal(journal).close()
    assert doctor(state=state)[0] == 0
    shared = tmp_path / "shared"
    shutil.copytree(state, shared)
    shared.chmod(0o755)
    code, findings, _ = doctor(state=shared)
    (told,) = [found for found in findings if found["level"] != "ok"]
    assert (code, told["level"], told["what"]) == (0, "warning", "rights")
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755
    later = tmp_path / "later"
    shutil.copytree(state, later)
    with sqlite3.connect(later / "journal.sqlite") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    journal.write_bytes(b"no database" * 1_000)
    for folder, what, detail in (
        (home, "rights", "is open to other users"),
        (state, "journal", "journal.sqlite"),
        (later, "journal", "newer"),
    ):
        code, findings, _ = doctor(state=folder)
        (fault,) = [found for found in findings if found["level"] == "fault"]
        assert (code, fault["what"]) == (1, what)
        assert detail in fault["detail"]
        assert fault["remedy"]
    assert stat.S_IMODE(home.stat().st_mode) == 0o755


def test_each_cluster_says_what_it_lacks(tmp_path: Path) -> None:
    """All at once, each with a reason; one that is well hides none that is not."""
    (tmp_path / "fleet.yaml").write_text(FLEET)
    code, findings, error = doctor("--fleet", str(tmp_path / "fleet.yaml"), state=tmp_path)
    assert (code, error) == (1, "")
    faults = {found["where"]: found["detail"] for found in findings if found["level"] == "fault"}
    odd = f"{tmp_path}/fleet.yaml:11"
    assert faults.keys() == {"cluster slurm", "cluster kube", odd}
    assert "/nowhere/sbatch" in faults["cluster slurm"]
    assert "kubeconfig cannot be read" in faults["cluster kube"]
    assert "engine 'odd' is not available" in faults[odd]


def test_errors_of_a_fleet_file_are_all_named(tmp_path: Path) -> None:
    """As `topmast up` would name them."""
    path = tmp_path / "fleet.yaml"
    path.write_text(
        "regions:\n  east: {clustrs: {}}\n  west:\n    clusters:\n      w:\n        engine: ssh\n"
        "        options: {usr: topmast}\n        hosts: [{count: 1, gpu: H100, gpus: 8}]\n"
        "tenant: {}\n"
    )
    code, findings, _ = doctor("--fleet", str(path), state=tmp_path)
    faults = {found["where"]: found for found in findings if found["level"] == "fault"}
    assert code == 1
    assert faults.keys() == {f"{path}:{line}" for line in (2, 7, 9)}
    assert faults[f"{path}:7"]["remedy"] == "did you mean 'user'?"


def test_a_database_is_asked_for_its_clock(tmp_path: Path) -> None:
    """A real one; and one that is not there, and a URL with a password."""
    with postgresql.server() as url:
        if url is None:
            pytest.skip("no PostgreSQL here")
        code, findings, _ = doctor("--store", url, state=tmp_path)
        said = {found["what"]: found for found in findings if found["where"] == "database"}
        assert code == 0
        assert said["reach it"]["detail"].startswith("PostgreSQL ")
        assert said["clock"]["level"] == "ok"
    code, findings, _ = doctor("--store", url, state=tmp_path)
    assert (code, findings[-1]["where"], findings[-1]["level"]) == (1, "database", "fault")
    code, findings, _ = doctor("--store", "postgresql://a:secret@db/x", state=tmp_path)
    assert code == 1
    assert "secret" not in json.dumps(findings)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_a_fault(tmp_path: Path) -> None:
    """Before the server says so."""
    tmp_path.chmod(0o500)
    code, findings, _ = doctor(state=tmp_path / "state")
    assert code == 1
    assert [f["what"] for f in findings if f["level"] == "fault"] == ["state folder"]
