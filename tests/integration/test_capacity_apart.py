"""Capacity planned for a region whose placer is a process of its own: hosts change clusters there by messages."""

from __future__ import annotations

from pathlib import Path

from tests.integration.test_apart import running
from tests.support.live import eventually

FLEET = """
regions:
  east:
    clusters:
      big: {hosts: [{count: 3, gpu: H100, gpus: 2, name: big}]}
      small: {hosts: [{count: 1, gpu: H100, gpus: 2, name: small}]}
  west: {clusters: {west-a: {hosts: [{count: 1, gpu: A100, gpus: 2}]}}}
  home: {clusters: {home-a: {hosts: [{count: 1, gpu: L4, gpus: 2}]}}}
"""
PLANNED_S = 120.0
"""A plan waits for a machine that has other things to do."""


def test_hosts_of_a_region_apart_change_clusters(tmp_path: Path) -> None:
    """Gangs of two wait in the east, whose placer lives elsewhere: its idle host goes where they wait, and works there.
    Cut off, the region is said to be left out, and keeps its hosts.
    """
    with running(tmp_path, FLEET, 6, slow__plan_capacity_every_s="3") as apart:
        client = apart.client
        for i in range(3):
            client.submit({"name": f"gang{i}", "run": "sleep 600", "num_nodes": 2,
                           "resources": {"accelerators": "H100:2"}})  # fmt: skip

        def guest() -> bool:
            found = next(h for h in client.hosts() if h.name == "small-0")
            return found.cluster == "big" and bool(found.jobs)

        eventually(guest, "the idle host works for the other cluster", PLANNED_S)
        view = client.capacity_plan()
        rows = {row.cluster: row for row in view.clusters}
        assert (rows["big"].configured, rows["big"].gpus) == (6.0, 8.0)
        assert view.out_of_reach == ()
        apart.placers["east"].kill()
        eventually(
            lambda: client.capacity_plan().out_of_reach == ("east",), "it is left out", PLANNED_S
        )
        apart.placers["east"].start()
        eventually(lambda: client.capacity_plan().out_of_reach == (), "it is back", PLANNED_S)
        assert next(h for h in client.hosts() if h.name == "small-0").cluster == "big"
