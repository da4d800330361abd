"""Which fleet a start takes up when people have changed it since the last one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from topmast.app.control_plane import ControlPlane
from topmast.app.fleet_choice import fleet_of_start
from topmast.app.process import Outside
from topmast.bench.fake_engine import FakeEngine
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.fleet import Fleet
from topmast.model.fleet_changes import fleet_version, with_what_stays
from topmast.policies.registry import load_profile


def fleet_with(quota: int, hosts: int = 1) -> Fleet:
    """A fleet file with a quota of GPUs, on hosts of two."""
    document: dict[str, Any] = {
        "regions": {
            "east": {"clusters": {"e": {"hosts": [{"count": hosts, "gpu": "H100", "gpus": 2}]}}}
        },
        "tenants": {"vision": {"quota": {"H100": quota}}},
    }
    return parse_fleet(document)


@contextmanager
def server(folder: Path, file: Fleet | None, *, replaces: bool = False) -> Iterator[ControlPlane]:
    """A server while it runs."""
    system = ControlPlane(
        folder, load_profile("mast"), file, fleet_replaces=replaces,
        outside=Outside(engines={"local": FakeEngine}),
    )  # fmt: skip
    system.open()
    try:
        yield system
    finally:
        system.close()


def started(
    folder: Path, file: Fleet | None, change: Fleet | None = None, *, replaces: bool = False
) -> tuple[float, int]:
    """Quota and hosts of a server after a start with a file, and a change of its fleet."""
    with server(folder, file, replaces=replaces) as system:
        queue = system.machines.queue
        if change is not None:
            base = fleet_version(queue.fleet)
            event = m.ConfigureFleet(with_what_stays(change, queue.fleet), base=base)
            system.runtime.call(ids.QUEUE, event).result()
        (tenant,) = queue.fleet.tenants
        assert tenant.quota is not None
        return tenant.quota["H100"], sum(len(c.hosts) for c in queue.fleet.regions[0].clusters)


def test_a_file_that_was_read_before_does_not_undo_what_was_changed_since(tmp_path: Path) -> None:
    """Every restart of a service reads the same file."""
    assert started(tmp_path, fleet_with(2), change=fleet_with(4)) == (4, 1)
    assert started(tmp_path, fleet_with(2)) == (4, 1)
    assert started(tmp_path, None) == (4, 1)
    assert started(tmp_path, fleet_with(2)) == (4, 1)


def test_another_file_that_undoes_it_is_refused_unless_it_replaces(tmp_path: Path) -> None:
    """It was edited by a person that may not know of the change."""
    started(tmp_path, fleet_with(2), change=fleet_with(4))
    undone = r"tenant vision: quota \{H100: 4\} -> \{H100: 2\}"
    with server(tmp_path, None) as system, pytest.raises(InvalidInput, match=undone) as told:
        fleet_of_start(fleet_with(2, hosts=2), system.machines.queue, replaces=False)
    assert "--fleet-replaces" in str(told.value.remedy)
    assert started(tmp_path, None) == (4, 1)
    assert started(tmp_path, fleet_with(2, hosts=2), replaces=True) == (2, 2)
    assert started(tmp_path, fleet_with(3, hosts=2)) == (3, 2), "nothing was changed since"


def test_a_file_that_has_the_change_is_the_file_from_then_on(tmp_path: Path) -> None:
    """People apply the file that they edit."""
    started(tmp_path, fleet_with(2), change=fleet_with(4))
    assert started(tmp_path, fleet_with(4)) == (4, 1)
    assert started(tmp_path, fleet_with(2)) == (2, 1)
