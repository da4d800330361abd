"""Messages to engines that are there no more."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.support.build import cluster, fleet
from topmast.adapters.link import Batch
from topmast.adapters.link.wire import decode_batch, encode_batch, encode_envelope
from topmast.app.control_plane import ControlPlane
from topmast.app.region import RegionProcess
from topmast.model import ids
from topmast.model import messages as m
from topmast.policies.registry import load_profile

NOWHERE = "http://127.0.0.1:1"


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


def test_what_a_start_waits_for_goes_to_the_queue_and_may_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region in a process of its own shows nothing itself; neither side writes it down."""
    news = m.TaskPreparing("j1", 1, 0, "pulling image")
    whole = ControlPlane(
        tmp_path / "whole", load_profile("mast"), fleet(cluster("east-1")), apart={"east": NOWHERE}
    )
    region = RegionProcess("east", NOWHERE, tmp_path / "east", load_profile("mast"))
    carried: list[m.Forward] = []
    received: list[Batch] = []
    monkeypatch.setattr(region.end, "carry", carried.append)
    monkeypatch.setattr(whole.ends["east"], "receive", received.append)
    try:
        assert region._show(news)
        assert carried == [m.Forward(0, news)]
        sent = encode_batch("e", "q", 0, [encode_envelope(0, news)])
        whole.receive("east", decode_batch(sent, for_queue=True))
        assert [batch.envelopes for batch in received] == [()]
        steps = whole.live_progress.of_job("j1", 1)
        assert steps is not None
        assert steps.preparing_text() == "pulling image"
    finally:
        whole.journal.close()
        region.journal.close()
