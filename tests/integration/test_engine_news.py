"""What an engine tells of a start and of its hosts, as people see it; the engine is made up."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.live import eventually
from topmast.app.control_plane import ControlPlane
from topmast.app.process import Outside
from topmast.bench.fake_engine import FakeEngine
from topmast.model import messages as m
from topmast.model.access import local_caller
from topmast.policies.registry import load_profile

T = TypeVar("T")
ANN = local_caller("ann")


class Slow(FakeEngine):
    """An engine that pulls an image first, and gives orders only to those that listen."""

    heard: list[int]

    def start_gang(self, gang: m.StartGang) -> None:
        """It waits for something."""
        self.gang = gang
        self._post(m.TaskPreparing(gang.job, gang.epoch, 0, "pulling image"))

    def order(self, message: m.Message, leader: int = 0) -> None:
        """Note of which leader."""
        self.heard = [*getattr(self, "heard", []), leader]
        super().order(message, leader)


def ask(question: Coroutine[Any, Any, T]) -> T:
    """An answer of the service."""
    return asyncio.run(question)


@pytest.mark.timeout(300)
def test_news_of_an_engine_reach_people_and_not_the_journal(tmp_path: Path) -> None:
    """What a start waits for is in status and explain while it waits, and nowhere durable."""
    outside = Outside(engines={"local": Slow})
    system = ControlPlane(tmp_path, load_profile("mast"), None, outside=outside)
    system.leader = 3
    system.open()
    try:
        service = system.service
        engine = system.engines["local"]
        assert isinstance(engine, Slow)
        job = ask(service.submit(ANN, {"run": "true"}, "ann", "", "")).id
        eventually(lambda: ask(service.job(ANN, job)).preparing == "pulling image", "it is told")
        assert ask(service.explain(ANN, job)).summary.endswith("; its tasks wait: pulling image")
        engine._post(m.TaskStarted(job, 1, 0, 0.0))
        eventually(lambda: ask(service.job(ANN, job)).state == "RUNNING", "it runs")
        assert ask(service.job(ANN, job)).preparing == ""
        engine._post(m.HostClosed("local-0", "drained"))
        eventually(lambda: ask(service.list(ANN, "hosts"))[0].closed == "drained", "it is closed")
        assert ask(service.job(ANN, job)).state == "RUNNING"
        (cluster,) = ask(service.list(ANN, "clusters"))
        assert (cluster.state, cluster.closed) == ("closed", "drained")
        engine._post(m.TaskEvicted(job, 1, 0, "preempted"))
        eventually(lambda: ask(service.job(ANN, job)).state == "PENDING", "it waits again")
        assert (ask(service.job(ANN, job)).preemptions, ask(service.job(ANN, job)).restarts) == (
            1,
            0,
        )
        assert engine.heard
        assert all(leader == 3 for leader in engine.heard)
        events = [record.event for record in system.journal.records()]
        assert any(b'"HostClosed"' in event for event in events)
        assert not any(b"TaskPreparing" in event for event in events)
    finally:
        system.close()
