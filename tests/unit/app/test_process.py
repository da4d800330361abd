"""Messages to engines that are there no more."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.support.build import cluster, fleet
from topmast.adapters.link import Batch
from topmast.adapters.link.wire import decode_batch, encode_batch, encode_envelope
from topmast.app.control_plane import ControlPlane
from topmast.app.process import Outside
from topmast.app.region import RegionProcess
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import Conflict
from topmast.model.fleet import ClusterSpec
from topmast.policies.registry import load_profile

NOWHERE = "http://127.0.0.1:1"
FAILING = """
import threading
from topmast.adapters.store.errors import JournalFailure
from topmast.app.process import fail_stop
def run():
    try:
        raise {error}
    except Exception as error:
        fail_stop(error)
loop = threading.Thread(target=run)
loop.start()
loop.join()
"""
"""The end of a runtime in a thread of its own; whatever lives on after it ends with 0."""


def test_the_process_ends_although_its_log_cannot_be_written() -> None:
    """The log may be on the full disk that is the error; a process that lived on would answer nothing."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ended = subprocess.run(
            [sys.executable, "-c", FAILING.format(error="JournalFailure('full')")],
            stdout=full, stderr=full, timeout=60, check=False,
        )  # fmt: skip
    assert ended.returncode == 1


@pytest.mark.parametrize(
    ("error", "traced"), [("JournalFailure('the disk is full')", False), ("KeyError('x')", True)]
)
def test_only_an_error_that_is_not_expected_is_traced(error: str, traced: bool) -> None:
    """Where a full disk was met in the code helps no reader of the log."""
    ended = subprocess.run(
        [sys.executable, "-u", "-c", FAILING.format(error=error)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1
    assert "the runtime cannot go on" in said
    assert ("Traceback" in said) == traced
    assert traced or "the disk is full" in said


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


def test_the_last_change_of_a_region_is_the_last_that_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine may take long to open: what the queue said meanwhile must not be undone then."""
    region = RegionProcess("east", NOWHERE, tmp_path / "east", load_profile("mast"))
    old, new = cluster("east-1", hosts=1), cluster("east-1", hosts=2)
    told, opened = iter([(old,), (new,)]), []
    begun, go_on = threading.Event(), threading.Event()

    def equip(name: str, spec: ClusterSpec) -> None:
        begun.set()
        assert spec is new or go_on.wait(10.0)
        opened.append((name, len(spec.hosts)))

    monkeypatch.setattr(region, "_clusters", lambda: next(told))
    monkeypatch.setattr(region, "equip", equip)
    region.runtime.start()
    try:
        changes = [threading.Thread(target=region._equip_as_told) for _ in range(2)]
        changes[0].start()
        assert begun.wait(10.0)
        changes[1].start()
        changes[1].join(0.2)
        go_on.set()
        for change in changes:
            change.join(10.0)
    finally:
        region.close()
    assert opened == [("east", 1), ("east", 2)]


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


def test_a_region_refuses_a_leader_of_the_queue_that_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a restart; the same leader may go on, and the next one may take over."""
    received: list[int] = []

    def started() -> RegionProcess:
        region = RegionProcess("east", NOWHERE, tmp_path / "east", load_profile("mast"))
        monkeypatch.setattr(region.end, "receive", lambda batch: received.append(batch.leader))
        return region

    def batch(leader: int) -> Batch:
        return decode_batch(encode_batch("e", "q", 0, [], leader), for_queue=False)

    region = started()
    try:
        region.receive(batch(4))
        region.receive(batch(4))
        with pytest.raises(Conflict, match="a later leader of the queue is known \\(epoch 4\\)"):
            region.receive(batch(3))
    finally:
        region.journal.close()
    region = started()
    try:
        with pytest.raises(Conflict, match="epoch 4"):
            region.receive(batch(3))
        with pytest.raises(Conflict, match="epoch 4"):
            region.receive(batch(0))
        region.receive(batch(5))
        with pytest.raises(Conflict, match="epoch 5"):
            region.receive(batch(4))
    finally:
        region.journal.close()
    assert received == [4, 4, 5]


def test_what_the_queue_sends_carries_the_epoch_of_its_leader(tmp_path: Path) -> None:
    """An order without it would be obeyed by no region that knows a leader."""
    for epoch in (1, 2):
        whole = ControlPlane(
            tmp_path / "whole", load_profile("mast"), fleet(cluster("east-1")),
            apart={"east": NOWHERE},
        )  # fmt: skip
        try:
            assert whole.journal.epoch == epoch
            assert whole.ends["east"]._leader == epoch
        finally:
            whole.journal.close()


def test_machines_are_timed_by_the_stopwatch_from_outside(tmp_path: Path) -> None:
    """A benchmark gives one that tells CPU time; to this one no time passes."""
    outside = Outside(stopwatch=lambda: 0.0)
    system = ControlPlane(
        tmp_path / "state", load_profile("mast"), fleet(cluster("c")), outside=outside
    )
    system.open()
    system.close()
    queue = system.runtime.meter.handle_s.members["queue",]
    assert sum(queue.counts) > 0
    assert queue.sum == 0.0
