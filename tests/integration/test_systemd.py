"""The unit file, and what a server tells systemd."""

import configparser
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.live import live

UNIT = Path(__file__).parents[2] / "deploy/systemd/topmast.service"
FLEET = "regions: {east: {clusters: {a: {hosts: [{count: 1, gpu: H100, gpus: 1}]}}}}\n"


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_a_server_is_ready_when_it_answers_and_says_when_it_stops(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit that depends on it is started then, and not before."""
    name = f"@topmast-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name[1:]}" if abstract else name)
        manager.settimeout(120)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        with live(tmp_path, FLEET) as (server, _):
            assert manager.recv(100) == b"READY=1"
            assert httpx.get(f"{server.url}/readyz", timeout=10).status_code == 200
            assert server.stop() == 0
            assert manager.recv(100) == b"STOPPING=1"


def test_a_socket_that_is_not_there_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that a person starts may have the variable from elsewhere."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    with live(tmp_path, FLEET) as (server, _):
        assert httpx.get(f"{server.url}/livez", timeout=10).status_code == 200


def test_the_unit_leaves_jobs_alone_when_it_stops() -> None:
    """systemd's default would kill them all at each restart."""
    service = _unit()["Service"]
    assert (service["KillMode"], service["Type"]) == ("process", "notify")
    assert "topmast up" in service["ExecStart"]


def _unit() -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(UNIT.read_text("utf-8"))
    return unit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """Each line of it is one that this version knows."""
    program = str(Path(sys.executable).with_name("topmast"))
    copy = tmp_path / "topmast.service"
    copy.write_text(UNIT.read_text("utf-8").replace("/opt/topmast/bin/topmast", program))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_starts_it_until_its_database_answers_and_leaves_mistakes_to_people(
    tmp_path: Path,
) -> None:
    """A database that comes late must not leave a unit that failed for good."""
    unit = _unit()
    assert unit["Unit"]["StartLimitIntervalSec"] == "0", "else a few starts are all it gets"
    assert float(unit["Service"]["RestartSec"]) >= 5, "it may go on for hours"
    given_up = {int(code) for code in unit["Service"]["RestartPreventExitStatus"].split()}
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(FLEET)
    late = _ended(tmp_path, "--fleet", str(fleet), "--store", _nobody())
    assert late not in given_up | {0}
    assert _ended(tmp_path, "--fleet", str(tmp_path / "none.yaml")) in given_up


def _ended(folder: Path, *options: str) -> int:
    """How a server ends that cannot start."""
    words = ["-m", "topmast.app", "up", "--state", str(folder / "state"), *options]
    return subprocess.run([sys.executable, *words], timeout=120, check=False).returncode


def _nobody() -> str:
    """The URL of a database on a port where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"postgresql://topmast@127.0.0.1:{taken.getsockname()[1]}/none"
