"""Servers on one database: what the second one says when it starts, and which one `down` stops."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.support import postgresql
from tests.support.live import Server, eventually, free_ports
from topmast.adapters.store import Claim, open_journal
from topmast.client.address import written_beside, written_server

FLEET = """
regions: {east: {clusters: {east-a: {hosts: [{count: 1, gpu: H100, gpus: 1}]}}}}
tenants: {default: {quota: {H100: 1}}}
"""


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The URL of a database."""
    with postgresql.server() as url:
        if url is None:
            pytest.skip("PostgreSQL is not installed")
        yield url


def _server(folder: Path, state: Path, name: str, store: str) -> Server:
    """One that may stand by; its log is beside the folder ``name``."""
    (folder / name).mkdir()
    fleet = folder / name / "fleet.yaml"
    fleet.write_text(FLEET)
    (port,) = free_ports(1)
    return Server(state, fleet, arguments=["--store", store, "--standby"], port=port)


def _down(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "topmast.app", "down", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _said(server: Server, part: str) -> None:
    eventually(lambda: part in server.log_tail() or not server.running, part)
    assert part in server.log_tail()


def test_down_stops_the_one_of_two_servers_that_is_named(store: str, tmp_path: Path) -> None:
    """Leader and standby on one folder: both are listed, and each is stopped by its URL."""
    state = tmp_path / "state"
    leader = _server(tmp_path, state, "leader", store)
    second = _server(tmp_path, state, "second", store)
    second.log = tmp_path / "second.log"
    try:
        leader.start()
        leader.wait_ready()
        second.start()
        _said(second, "Topmast stands by at")
        first, *_ = [line for line in second.log_tail().splitlines() if "this process" in line]
        assert "this process stands by" in first
        assert f"pid {leader.pid} at {leader.url}" in first
        assert "stop it first" not in second.log_tail()
        (standby,) = written_beside(state)
        assert (standby["pid"], standby["role"]) == (second.pid, "standby")
        refused = _down("--state", str(state))
        assert refused.returncode != 0
        assert f"a standby at {standby['url']} (process {second.pid})" in refused.stderr
        stopped = _down("--state", str(state), "--server", standby["url"])
        assert f"The standby of {state}, process {second.pid}, has stopped" in stopped.stdout
        assert not second.running
        assert leader.running
        assert written_beside(state) == []
        second.start()
        eventually(lambda: written_beside(state), "it stands by again")
        led = _down("--state", str(state), "--server", leader.url)
        assert f"The leader of {state}, process {leader.pid}, has stopped" in led.stdout, led.stderr
        _said(second, "Topmast is up at")
        said = second.log_tail()
        assert said.index("this process takes over") < said.index("leads and answers from now on")
        assert httpx.get(f"http://127.0.0.1:{second.port}/api/v1/jobs").status_code == 200
        told = written_server(state)
        assert (told["pid"], told["role"]) == (second.pid, "leader")
        assert written_beside(state) == []
    finally:
        leader.end()
        second.end()


def test_a_file_that_is_not_used_is_warned_of(store: str, tmp_path: Path) -> None:
    """The journal has a fleet: the file of a standby counts neither at its start nor when it leads."""
    state = tmp_path / "state"
    leader = _server(tmp_path, state, "leader", store)
    second = _server(tmp_path, state, "second", store)
    second.log = tmp_path / "second.log"
    (tmp_path / "second" / "fleet.yaml").write_text(FLEET.replace("H100", "H200"))
    unused, differs = "the file of --fleet is not used", "model H100 -> H200"
    try:
        leader.start()
        leader.wait_ready()
        assert unused not in leader.log_tail()
        second.start()
        _said(second, "Topmast stands by at")
        assert second.log_tail().count(unused) == 1
        assert differs in second.log_tail()
        assert "topmast fleet apply FILE" in second.log_tail()
        leader.end()
        _said(second, "Topmast is up at")
        assert second.log_tail().count(unused) == 2
        assert "H100" in httpx.get(f"http://127.0.0.1:{second.port}/api/v1/hosts").text
    finally:
        leader.end()
        second.end()


def test_a_standby_that_is_refused_says_so_first_and_leaves_nothing(
    store: str, tmp_path: Path
) -> None:
    """The tasks of the leader's own cluster are out of its reach."""
    leader = _server(tmp_path, tmp_path / "state", "leader", store)
    far = _server(tmp_path, tmp_path / "far", "elsewhere", store)
    try:
        leader.start()
        leader.wait_ready()
        far.start()
        assert far.ended() == 2, far.log_tail()
        said = far.log_tail()
        assert "are not within reach" in said
        assert "stands by" not in said
        assert "Traceback" not in said
        assert not far.state.exists()
    finally:
        leader.end()
        far.end()


def test_the_fleet_of_a_file_counts_until_a_leader_has_written_one(
    store: str, tmp_path: Path
) -> None:
    """A leader that was refused as it began leaves a database that knows no fleet."""
    with psycopg.connect(store, autocommit=True) as connection:
        connection.execute("CREATE DATABASE begun")
    begun = store.replace("/postgres?", "/begun?")
    with closing(open_journal(begun, claim=Claim("ada:1"))) as journal:
        assert journal.epoch == 1
    server = _server(tmp_path, tmp_path / "state", "first", begun)
    try:
        server.start()
        server.wait_ready()
        clusters = httpx.get(f"{server.url}/api/v1/clusters").json()
        assert "east-a" in str(clusters)
    finally:
        server.end()
