"""Messages to engines that are there no more."""

from pathlib import Path

from structlog.testing import capture_logs

from topmast.app.control_plane import ControlPlane
from topmast.app.region import RegionProcess
from topmast.model import ids
from topmast.model import messages as m
from topmast.policies.registry import load_profile


def test_a_cluster_that_left_the_fleet_is_not_told_of_every_minute(tmp_path: Path) -> None:
    """Nobody answers what runs there; but an order that reaches no engine is told of."""
    whole = ControlPlane(tmp_path / "whole", load_profile("mast"), None)
    region = RegionProcess("east", "http://127.0.0.1:1", tmp_path / "east", load_profile("mast"))
    try:
        for system in (whole, region):
            with capture_logs() as logs:
                system._release(m.Send(ids.engine("gone"), m.ListTasks()))
                assert logs == []
                system._release(m.Send(ids.engine("gone"), m.StopTasks("j1", 1, 0.0)))
            assert [row["event"] for row in logs] == ["no engine for a message"]
    finally:
        whole.journal.close()
        region.journal.close()
