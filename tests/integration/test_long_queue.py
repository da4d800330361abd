"""A queue of more jobs than a page holds, with the real command line against a real server."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.support.live import Server, eventually, live
from topmast import Client

FLEET = """
regions:
  east: {clusters: {east-1: {hosts: [{count: 1, gpu: H100, gpus: 8}]}}}
tenants: {vision: {}, speech: {}}
"""
RUNNING, WAITING, CANCELLED = 3, 2300, 40
BANDS = ("low", "normal", "high")
RANK = {band: place for place, band in enumerate(reversed(BANDS))}


def job(number: int, **fields: Any) -> dict[str, Any]:
    """A job that stays: bands and tenants take turns."""
    return {
        "name": f"long-{number}", "tenant": ("vision", "speech")[number % 2],
        "priority": BANDS[number % 3], "run": "exec sleep 600",
        "resources": {"accelerators": "H100:8"}, "preemptible": False, **fields,
    }  # fmt: skip


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Client]]:
    """A few jobs run, many wait for the same GPUs, some were cancelled."""
    with live(tmp_path_factory.mktemp("crowd"), FLEET) as (server, client):
        small = {"accelerators": "H100:2"}
        first = [job(n, priority="low", resources=small) for n in range(RUNNING)]
        client.submit_many(first)
        eventually(
            lambda: len(list(client.jobs(states="RUNNING"))) == RUNNING, "the first jobs run"
        )
        client.submit_many([job(n) for n in range(WAITING)])
        for one in client.submit_many([job(n) for n in range(CANCELLED)]).ids:
            client.cancel(one)
        yield server, client
        for view in list(client.jobs(states="RUNNING")):
            client.cancel(view.id)


def queue(server: Server, *options: str) -> tuple[dict[str, Any], str]:
    """The document that `topmast queue` prints, and what it says beside it."""
    command = [sys.executable, "-m", "topmast.app", "queue", "--json", "--state", str(server.state)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def in_order(jobs: Sequence[dict[str, Any]]) -> bool:
    """Whether jobs that run come first, and those that wait go by band and then by age."""
    keys = [
        (one["state"] == "PENDING", RANK[one["band"]] if one["state"] == "PENDING" else 0)
        for one in jobs
    ]
    return keys == sorted(keys)


@pytest.mark.parametrize(
    "options", [(), ("--only", "PENDING,RUNNING"), ("-n", "1500"), ("-n", "0")]
)
def test_what_runs_comes_first_then_what_waits_by_rank(
    crowded: tuple[Server, Client], options: tuple[str, ...]
) -> None:
    """On the first page and on all that follow, each job once."""
    page, said = queue(crowded[0], *options)
    want = {"1500": 1500, "0": RUNNING + WAITING}.get(options[-1] if options else "", 1000)
    found = [one["id"] for one in page["jobs"]]
    assert len(found) == len(set(found)) == want
    assert [one["state"] for one in page["jobs"][: RUNNING + 1]] == ["RUNNING"] * RUNNING + [
        "PENDING"
    ]
    assert in_order(page["jobs"])
    total = RUNNING + WAITING
    footer = "" if want == total else f"showing {want:,} of {total:,} jobs: --limit 0 shows all\n"
    assert said == footer
    assert page["total"] == total


def test_a_queue_of_one_state_and_tenant_is_whole_and_by_rank(
    crowded: tuple[Server, Client],
) -> None:
    """The head of the list is the next in line, as in the whole queue."""
    server, client = crowded
    page, _ = queue(server, "-n", "0", "--only", "pending", "--tenant", "vision")
    assert {one["tenant"] for one in page["jobs"]} == {"vision"}
    assert len(page["jobs"]) == page["total"] == WAITING / 2
    everything = [view.id for view in client.jobs(states="active", order="queue")]
    ours = {one["id"] for one in page["jobs"]}
    assert [one["id"] for one in page["jobs"]] == [one for one in everything if one in ours]


def test_all_jobs_come_newest_first(crowded: tuple[Server, Client]) -> None:
    """Those that have ended among them, and counted."""
    page, said = queue(crowded[0], "--all")
    total = RUNNING + WAITING + CANCELLED
    assert [one["state"] for one in page["jobs"][:CANCELLED]] == ["CANCELLED"] * CANCELLED
    assert page["counts"] == {"RUNNING": RUNNING, "PENDING": WAITING, "CANCELLED": CANCELLED}
    assert said == f"showing 1,000 of {total:,} jobs: --limit 0 shows all\n"
    whole, _ = queue(crowded[0], "--all", "-n", "0")
    assert len({one["id"] for one in whole["jobs"]}) == len(whole["jobs"]) == total
