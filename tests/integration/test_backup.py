"""Backups of a server that runs, and another database for one that is stopped: nothing is lost."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import postgresql
from tests.support.held import Held
from tests.support.live import Server, eventually, is_alive, live, until_state

FLEET = """
regions: {east: {clusters: {east-a: {hosts: [{count: 1, gpu: H100, gpus: 2}]}}}}
"""
OBEDIENT = """
trap 'touch "$FOLDER/told"; until [ -e "$FOLDER/end" ]; do sleep 0.05 || true; done; exit $STATUS' TERM
touch "$FOLDER/starts.$TOPMAST_EPOCH"
until [ -e "$FOLDER/go" ]; do sleep 0.05 || true; done
"""
"""When it is told to stop it says so, and ends with a status as soon as the test lets it."""
SETTINGS = {"min_runtime_s": "0", "restart_cost_s": "1", "backoff_s": "0.2", "suspect_s": "1"}


def run(*arguments: object, code: int = 0) -> Any:
    """What a command says as JSON; of one that fails, its one line."""
    command = [sys.executable, "-m", "topmast.app", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    if code and not done.stdout:
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr.strip()
    return json.loads(done.stdout)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Server]:
    """A server on another state folder."""
    server = Server(tmp_path / "other", None, SETTINGS)
    yield server
    server.end()


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgresql.server() as url:
        if url is None:
            pytest.skip("PostgreSQL is not installed")
        yield url


def test_a_backup_of_a_running_server_starts_another_one(tmp_path: Path, other: Server) -> None:
    """The machine with the state folder is lost: what the backup knows goes on elsewhere."""
    workdir = tmp_path / "workdir"
    workdir.mkdir()
    (workdir / "words").write_text("from the work folder")
    file, state = tmp_path / "topmast.backup", tmp_path / "other"
    with live(tmp_path, FLEET, SETTINGS) as (server, client):
        ended = client.submit({"run": "echo done"})
        client.wait(ended.id, timeout_s=60)
        held = Held(client, tmp_path, "H100", 2)
        held.started()
        held.until("RUNNING")
        reads = client.submit(
            {"run": "cat words", "resources": {"accelerators": "H100:1"}}, workdir=workdir
        )
        made = run("backup", file, "--state", server.state)
        assert made["work_folders"] == 1
        later = client.submit({"run": "true"})
        drill = run("restore", file, "--verify")
        assert drill["jobs"] == {"SUCCEEDED": 1, "RUNNING": 1, "PENDING": 1}
        assert "in use by another process" in run("restore", file, "--state", server.state, code=1)
    run("restore", file, "--state", state)
    assert (state / "role").read_text() == "the queue\n"
    restored = [path for path in state.rglob("*") if path.is_file()]
    assert all(path.stat().st_mode & 0o077 == 0 for path in restored), restored
    assert "has a journal already" in run("restore", file, "--state", state, code=1)
    with other.up() as client:
        assert client.job(ended.id).state == "SUCCEEDED"
        assert held.started(2).epoch == 2
        assert client.job(held.id).state in ("STARTING", "RUNNING")
        held.client = client
        held.end()
        client.wait(reads.id, timeout_s=60)
        assert "".join(chunk.text for chunk in client.logs(reads.id)) == "from the work folder"
        assert client.submit({"run": "true"}).id == later.id, "which the backup knows nothing of"
    assert run("db", "check", "--state", state)["faults"] == []


@pytest.mark.parametrize("is_down", [False, True], ids=["a server hears", "no server hears"])
def test_what_was_stopped_since_the_backup_is_done_once_more(tmp_path: Path, is_down: bool) -> None:
    """Restored as the guide says, a server knows of no stop: the task's status is no word on its work."""
    file, old, restored = tmp_path / "b.backup", tmp_path / "old", tmp_path / "restored"
    with live(tmp_path, FLEET, SETTINGS) as (server, client):
        jobs = {}
        for status in ("0", "1"):
            folder = tmp_path / status
            folder.mkdir()
            jobs[client.submit({
                "run": OBEDIENT, "envs": {"FOLDER": str(folder), "STATUS": status}, "max_restarts": 0,
                "resources": {"accelerators": "H100:1"}, "checkpoint": {"grace": 60},
            }).id] = folder  # fmt: skip
        for job, folder in jobs.items():
            eventually((folder / "starts.1").exists, f"{job} begins")
            until_state(client, job, "RUNNING")
        run("backup", file, "--state", server.state)
        client.suspend(list(jobs))
        for job, folder in jobs.items():  # the order is on the disk before the task hears of it
            eventually((folder / "told").exists, f"{job} is told to stop")
        if is_down:
            server.kill()
        for folder in jobs.values():
            (folder / "end").touch()
        if not is_down:
            for job in jobs:
                until_state(client, job, "PENDING")
            assert server.stop() == 0
        engines = server.state / "engines"
        eventually(lambda: len(list(engines.rglob("*.end"))) == len(jobs), "their tasks end")
        run("restore", file, "--state", restored)
        old.mkdir()
        for path in list(server.state.iterdir()):
            if path.name not in ("engines", "checkpoints"):
                path.rename(old / path.name)
        for path in list(restored.iterdir()):
            path.rename(server.state / path.name)
        with server.up() as again:
            for job, folder in jobs.items():
                told = f"{job} runs again, and is {again.job(job).state}"
                eventually((folder / "starts.2").exists, told, 30)
                (folder / "go").touch()
                until_state(again, job, "SUCCEEDED")
                outcomes = [attempt.outcome for attempt in again.story(job).attempts]
                assert outcomes == ["preempted", "succeeded"]


def test_a_stopped_server_moves_into_postgresql_while_its_job_runs(
    tmp_path: Path, postgres: str
) -> None:
    with live(tmp_path, FLEET, SETTINGS) as (server, client):
        state = server.state
        held = Held(client, tmp_path, "H100", 2)
        pid = held.started().pid
        held.until("RUNNING")
        waits = client.submit({"run": "true", "resources": {"accelerators": "H100:2"}})
        to = ("--to", postgres, "--switch")
        assert "stop it first" in run("db", "copy", *to, "--state", state, code=1)
        assert server.stop() == 0
        copied = run("db", "copy", *to, "--state", state)
        assert copied["switched"]
        assert not (state / "journal.sqlite").exists()
        same = run("db", "copy", "--to", postgres, "--state", state, code=2)
        assert "the copy is the database itself" in same
        mistyped = tmp_path / "bakcups" / "journal.sqlite"
        told = run("db", "copy", "--to", mistyped, "--state", state, code=2)
        assert f"there is no folder {mistyped.parent}" in told
        assert "name a file in a folder that is there, or make it first" in told
        assert not mistyped.parent.exists()
        with server.up() as again:
            assert is_alive(pid)
            held.client = again
            assert again.job(held.id).state == "RUNNING"
            assert run("replay", "--state", state)["counts"] == {"RUNNING": 1, "PENDING": 1}
            file = tmp_path / "of-postgresql.backup"
            run("backup", file, "--state", state)
            assert run("restore", file, "--verify")["jobs"] == {"RUNNING": 1, "PENDING": 1}
            held.end()
            until_state(again, waits.id, "SUCCEEDED")
            assert server.stop() == 0
        back = ("--to", state / "journal.sqlite", "--switch")
        run("db", "copy", *back, "--state", state)
        with server.up() as again:
            assert {view.state for view in again.jobs()} == {"SUCCEEDED"}
            assert (state / "journal.sqlite").exists()
            assert not (state / "store").exists()


def test_a_damaged_journal_is_told_of_line_by_line(tmp_path: Path) -> None:
    with live(tmp_path, FLEET, SETTINGS) as (server, client):
        client.wait(client.submit({"run": "true"}).id, timeout_s=60)
        server.kill()
        with sqlite3.connect(server.state / "journal.sqlite") as connection:
            connection.execute("UPDATE journal SET facts = CAST('x' AS BLOB) WHERE seq IN (3, 5)")
        connection.close()
        found = run("db", "check", "--state", server.state, code=1)
        assert found["faults"] == ["record 3 is damaged", "record 5 is damaged"]
        file = tmp_path / "b.backup"
        said = run("backup", file, "--state", server.state, code=1)
        assert "record 3 is damaged" in said
        assert not file.exists()
        eventually(lambda: not server.running, "it was killed")
