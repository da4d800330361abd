"""Real processes on the same GPUs at the same time, because a round of the queue has them there as a pair."""

import json
import time
from pathlib import Path

from tests.support.held import Held
from tests.support.live import Server, eventually, is_alive
from topmast import Client

FLEET = """
regions:
  east:
    clusters:
      east-a: {hosts: [{count: 1, gpu: V100, gpus: 2}]}
"""
SPEEDS = {
    "v100": {
        "('first', 2)": {"null": 10.0, "('second', 2)": [9.0, 8.0]},
        "('second', 2)": {"null": 10.0, "('first', 2)": [8.0, 9.0]},
    }
}
ROUND_S = 1.0


def kinds(client: Client, job: str) -> list[str]:
    """What happened to a job, in order."""
    return [row.kind for row in client.story(job).history]


def test_two_gangs_have_the_same_gpus_at_the_same_time(tmp_path: Path) -> None:
    """Both processes run, on one server's GPUs, through several rounds and a crash; then who is left is alone."""
    two_gangs_as_a_pair(tmp_path, FLEET)


def two_gangs_as_a_pair(folder: Path, fleet: str) -> None:
    """Both on a host of two V100s, whose processes this machine sees."""
    file, table = folder / "fleet.yaml", folder / "speeds.json"
    file.write_text(fleet, encoding="utf-8")
    table.write_text(json.dumps(SPEEDS), encoding="utf-8")
    server = Server(
        folder / "state", file, {"shares.round_s": repr(ROUND_S)},
        arguments=["--profile", "gavel-max-min-fairness-packed", "--throughputs", str(table)],
    )  # fmt: skip
    try:
        with server.up() as client:
            jobs = [Held(client, folder, "V100", 2, name=n, work=n) for n in ("first", "second")]
            pids = [job.started().pid for job in jobs]
            for job in jobs:
                job.until("RUNNING")
            time.sleep(3 * ROUND_S)
            assert all(is_alive(pid) for pid in pids), "nobody was stopped for the other"
            server.kill()
        with server.up() as client:
            for job in jobs:
                job.client = client
                job.until("RUNNING")
            assert all(is_alive(pid) for pid in pids)
            assert [len(job.starts()) for job in jobs] == [1, 1]
            assert jobs[0].end().state == "SUCCEEDED"
            eventually(lambda: "unpacked" in kinds(client, jobs[1].id), "it is alone")
            assert "packed" in kinds(client, jobs[1].id)
            assert jobs[1].end().state == "SUCCEEDED"
    finally:
        server.end()
