"""Capacity planned while a real server runs: hosts change clusters, gangs run on them, the planner dies, the server too."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_data_plans import _planners
from tests.support.live import Server, eventually, live
from topmast import Client
from topmast.model.plan_views import CapacityPlanView
from topmast.model.views import HostView

FLEET = """
regions:
  east:
    clusters:
      big: {hosts: [{count: 3, gpu: H100, gpus: 2, name: big}]}
      small: {hosts: [{count: 1, gpu: H100, gpus: 2, name: small}]}
"""
PLANNED_S = 90.0
"""A plan waits for a machine that has other things to do."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Client]]:
    """Gangs of two hosts, which only one cluster can hold; the other one's host is idle; a plan every 3 s."""
    folder = tmp_path_factory.mktemp("capacity")
    with live(folder, FLEET, {"slow.plan_capacity_every_s": "3"}) as (server, client):
        for i in range(3):
            client.submit({"name": f"gang{i}", "run": "sleep 600", "num_nodes": 2,
                           "resources": {"accelerators": "H100:2"}})  # fmt: skip
        yield server, client


def _guest(client: Client) -> HostView | None:
    """The small cluster's host, once it belongs to the big one and works there."""
    return next(
        (h for h in client.hosts() if h.name == "small-0" and h.cluster == "big" and h.jobs), None
    )


def test_an_idle_host_goes_where_gangs_wait_and_works_there(running: tuple[Server, Client]) -> None:
    """Three hosts hold one gang, four hold two: tasks run under the engine of the other cluster."""
    server, client = running
    host = eventually(
        lambda: _guest(client), "the idle host works for the other cluster", PLANNED_S
    )
    job = client.job(host.jobs[0])
    assert (job.cluster, "small-0" in job.hosts) == ("big", True)
    agent = server.state / "engines" / "big" / "hosts" / "small-0" / "agent.json"
    eventually(agent.exists, "an agent of the new cluster stands for the host")
    view = client.capacity_plan()
    rows = {row.cluster: row for row in view.clusters}
    assert (rows["big"].configured, rows["small"].configured) == (6.0, 2.0)
    assert rows["big"].requested > 6.0
    assert view.trouble is None
    assert "host-moved" in {row.kind for row in client.host_story("small-0").history}


def test_a_planner_that_dies_leaves_hosts_where_they_are_and_says_so(
    running: tuple[Server, Client],
) -> None:
    """Its process is killed while it plans; the next plan has a process of its own."""
    server, client = running
    eventually(lambda: _guest(client), "the host has moved", PLANNED_S)
    before = client.capacity_plan().number

    def killed_while_it_plans() -> CapacityPlanView | None:
        for child in _planners(server.pid):
            os.kill(child, signal.SIGKILL)
        view = client.capacity_plan()
        return view if view.trouble else None

    view = eventually(killed_while_it_plans, "trouble is told", PLANNED_S)
    assert "died" in (view.trouble or "")
    assert view.number is not None
    assert view.number >= (before or 0)
    assert _guest(client)
    waits = next(job.id for job in client.jobs() if job.state == "PENDING")
    assert any(
        "no new plan of which hosts belong to which clusters" in w
        for w in client.explain(waits).warnings
    )


def test_hosts_stay_where_they_went_when_the_server_is_killed(
    running: tuple[Server, Client],
) -> None:
    """The fleet file still has the host at home; its task never noticed anything."""
    server, client = running
    job = eventually(lambda: _guest(client), "the host has moved", PLANNED_S).jobs[0]
    server.kill()
    server.start()
    again = Client(server.wait_ready(), user="ann")
    host = eventually(lambda: _guest(again), "the host is still there", PLANNED_S)
    assert host.jobs == (job,)
    assert (again.job(job).state, again.job(job).attempts) == ("RUNNING", 1)


WIDE = """
regions:
  east:
    clusters:
      one: {hosts: [{count: 4, gpu: H100, gpus: 2, name: one}]}
      two: {hosts: [{count: 4, gpu: H100, gpus: 2, name: two}]}
"""
QUARTER = {
    "slow.plan_capacity_every_s": "2", "slow.capacity_gain": "0", "slow.buffer_fraction": "0.25",
}  # fmt: skip


def test_a_buffer_works_where_it_is_and_makes_up_for_lost_hosts(tmp_path: Path) -> None:
    """A quarter of 16 GPUs is nobody's to count on. A gang uses it all the same; a cluster that loses two hosts has
    the one lent to it back, and gets that of the other cluster, when the gang there is done.
    """
    with live(tmp_path, WIDE, QUARTER) as (_, client):
        view = eventually(
            lambda: client.capacity_plan() if client.capacity_plan().buffer else None,
            "the first plan", PLANNED_S,
        )  # fmt: skip
        assert [(row.requested, row.lent, row.gpus) for row in view.clusters] == [(8, 2, 8)] * 2
        client.submit({"name": "gang", "run": "sleep 600", "num_nodes": 4,
                       "resources": {"accelerators": "H100:2"}})  # fmt: skip
        gang = eventually(
            lambda: next((j for j in client.jobs() if j.state == "RUNNING"), None), "it runs"
        )
        assert set(gang.hosts) & set(view.buffer)
        own = [h.name for h in client.hosts() if h.name not in (*gang.hosts, *view.buffer)]
        for host in own[:2]:
            client.cordon(host)
        plan = eventually(
            lambda: None if client.capacity_plan().buffer else client.capacity_plan(),
            "the buffer is used up", PLANNED_S,
        )  # fmt: skip
        (move,) = plan.leaving
        assert move.host in set(gang.hosts) & set(view.buffer)
        assert (move.cluster, plan.trouble) == (gang.cluster, None)
