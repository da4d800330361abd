"""A server with an engine that is not there: refused, whichever process has the cluster."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.build import cluster, fleet
from topmast.app.control_plane import ControlPlane
from topmast.app.region import RegionProcess
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import InvalidInput
from topmast.model.fleet import Fleet
from topmast.policies.registry import load_profile

NOWHERE = "http://127.0.0.1:9"


def _fleet(engine: str = "local", **options: str) -> Fleet:
    spec = replace(cluster("east-1"), engine=engine, options=options)
    return fleet(spec, cluster("west-1"))


@pytest.mark.parametrize("apart", [{}, {"east": NOWHERE}])
@pytest.mark.parametrize(
    ("bad", "want_field"), [(_fleet("nomad"), "engine"), (_fleet(account="a"), "options.account")]
)
def test_a_server_does_not_start_with_an_engine_that_is_not_there(
    tmp_path: Path, bad: Fleet, want_field: str, apart: dict[str, str]
) -> None:
    """Neither where the region is placed by the server itself, nor where it has a process of its own."""
    with pytest.raises(InvalidInput) as caught:
        ControlPlane(tmp_path, load_profile("mast"), bad, apart=apart)
    assert caught.value.field == f"regions.east.clusters.east-1.{want_field}"


@pytest.mark.parametrize("bad", [_fleet("nomad"), _fleet(account="a")])
def test_the_process_of_a_region_runs_nothing_for_an_engine_that_it_has_not(
    tmp_path: Path, bad: Fleet
) -> None:
    """Told of such a cluster by a queue of another version, it has no engine for it, and goes on."""
    region = bad.regions[0]
    system = RegionProcess("east", NOWHERE, tmp_path, load_profile("mast"))
    system.runtime.start()
    system.runtime.post(ids.placer("east"), m.ConfigureRegion(region))
    try:
        assert system.runtime.ask(lambda: system._clusters()).result() == region.clusters
        system._equip_as_told()
        assert system.engines == {}
        assert not (tmp_path / "engines").exists()
        with pytest.raises(InvalidInput, match=r"nomad|account"):
            system.open()
    finally:
        system.runtime.stop()
        system.journal.close()


def test_an_order_waits_for_an_engine_that_is_being_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region apart may use a new cluster's hosts before its engine is there: nothing is lost."""
    ordered: list[m.Message] = []
    system = RegionProcess("east", NOWHERE, tmp_path, load_profile("mast"))
    monkeypatch.setattr(system, "_order", lambda engine, message: ordered.append(message))
    first, second = m.StopTasks("j1", 1, 0.0), m.StopTasks("j2", 1, 0.0)
    system.runtime.start()
    system.runtime.post(ids.placer("east"), m.ConfigureRegion(_fleet().regions[0]))
    told = m.Send(ids.engine("east-1"), first)
    try:
        system.runtime.ask(lambda: system._release(told)).result()
        assert ordered == []
        system._equip_as_told()
        system.runtime.ask(lambda: system._release(m.Send(told.to, second))).result()
        kept = [message for message in ordered if isinstance(message, m.StopTasks)]
        assert kept == [first, second]
    finally:
        system.close()
