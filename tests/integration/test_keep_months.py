"""`topmast up --keep-months`: a server forgets what ended months ago, and says what it used."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import eventually, live

FLEET = """
regions: {east: {clusters: {east-a: {hosts: [{count: 1, gpu: H100, gpus: 2}]}}}}
"""
AGE_S = 100 * 86_400.0


def usage(state: Path, since: str) -> Any:
    command = [sys.executable, "-m", "topmast.app", "usage", "--json", "--since", since]
    words = [*command, "--state", str(state)]
    return json.loads(subprocess.run(words, capture_output=True, check=True).stdout)["usage"]


def test_a_job_of_months_ago_is_forgotten_and_its_use_is_not(tmp_path: Path) -> None:
    with live(tmp_path, FLEET) as (server, client):
        old, new = (
            client.submit({"run": "true", "resources": {"accelerators": "H100:1"}}).id
            for _ in range(2)
        )
        client.wait([old, new], timeout_s=60)
        assert server.stop() == 0
        with sqlite3.connect(server.state / "journal.sqlite") as connection:
            for table, column in (("finished_jobs", "finish_s"), ("attempts", "end_s")):
                change = f"UPDATE {table} SET {column} = {column} - {AGE_S} WHERE job = ?"
                assert connection.execute(change, (old,)).rowcount == 1
            connection.execute(f"UPDATE attempts SET start_s = end_s - 36000 WHERE job = '{old}'")
        connection.close()
        server.arguments = ("--keep-months", "2")
        server.start()
        server.wait_ready()
        files = server.state / "journal.sqlite"
        eventually(lambda: not lines(files, old), "the old job is forgotten")
        assert lines(files, new)
        (row,) = usage(server.state, "150d")
        assert row["attempts"] == 2
        assert row["held_gpu_h"] == pytest.approx(10.0, abs=0.1)
        server.stop()
        server.arguments = ()
        server.start()
        server.wait_ready()
        with sqlite3.connect(files) as connection:
            kept = connection.execute("SELECT value FROM options WHERE name = 'keep_months'")
            assert kept.fetchone() == ("2",)
        connection.close()


def lines(file: Path, job: str) -> int:
    """How many lines of history a job has."""
    with sqlite3.connect(file) as connection:
        found = connection.execute("SELECT count(*) FROM history WHERE job = ?", (job,))
        count = int(found.fetchone()[0])
    connection.close()
    return count
