"""Data planned while a real server runs: the planner in its process, copies by the mover, a planner that dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live import Server, eventually, live
from topmast import Client
from topmast.model.plan_views import DataPlanView

FLEET = """
regions:
  east:
    clusters: {east-1: {hosts: [{count: 1, gpu: H100, gpus: 2}]}}
  west:
    clusters: {west-1: {hosts: [{count: 1, gpu: H100, gpus: 2}]}}
links: [{from: east, to: west, gbps: 10}]
"""
TABLES = ("ns.a", "ns.b", "ns.c")
PLANNED_S = 300.0
"""A plan waits for kernels that are compiled the first time: minutes on a busy machine."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Client]]:
    """All data in the east, jobs that read it for far more GPUs than the east has, a plan every 3 s."""
    folder = tmp_path_factory.mktemp("plans")
    settings = {"on_demand_copies": "false", "slow.plan_data_every_s": "3", "slow.growth": "2"}
    with live(folder, FLEET, settings) as (server, client):
        for name in TABLES:
            source = folder / name
            source.mkdir()
            (source / "part-0").write_bytes(os.urandom(1_000))
            client.add_dataset(name, "east", source=source)
        for i in range(12):
            client.submit({"name": f"j{i}", "run": "sleep 600", "datasets": [TABLES[i % 3]],
                           "resources": {"accelerators": "H100:1"}})  # fmt: skip
        yield server, client


def _applied(client: Client, after: int = 0) -> DataPlanView:
    def newer() -> DataPlanView | None:
        view = client.data_plan()
        return view if view.number is not None and view.number > after else None

    return eventually(newer, f"a plan after number {after} is in force", PLANNED_S)


def test_a_plan_moves_data_and_jobs_follow(running: tuple[Server, Client]) -> None:
    """Jobs that wait in the east run in the west as soon as the plan's copies are there."""
    _, client = running
    view = _applied(client)
    assert view.figures["gap"] is not None
    assert view.trouble is None
    wests = eventually(
        lambda: [job for job in client.jobs() if job.region == "west"], "jobs run in the west"
    )
    table = wests[0].datasets[0]
    west = next(
        r for d in client.datasets() if d.name == table for r in d.replicas if r.region == "west"
    )
    assert west.state == "complete"
    assert west.why.startswith("planned")


def test_a_planner_that_dies_leaves_the_last_plan_and_says_so(
    running: tuple[Server, Client],
) -> None:
    """Its process is killed while the server decides; the next plan has a process of its own."""
    server, client = running
    before = _applied(client)

    def killed_while_it_plans() -> DataPlanView | None:
        for child in _planners(server.pid):
            os.kill(child, signal.SIGKILL)
        view = client.data_plan()
        return view if view.trouble else None

    view = eventually(killed_while_it_plans, "trouble is told", PLANNED_S)
    assert "died" in (view.trouble or "")
    assert view.number is not None
    assert view.number >= (before.number or 0)
    waits = next(job.id for job in client.jobs() if job.state == "PENDING")
    assert "no new plan" in client.explain(waits).warnings[0]
    again = _applied(client, view.number)
    assert again.trouble is None


def _planners(parent: int) -> list[int]:
    """Processes that the server spawned for plans."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[1]) == parent and b"spawn_main" in command:
            found.append(int(entry.name))
    return found
