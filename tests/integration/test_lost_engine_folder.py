"""The folder of a far engine is lost while its jobs run: nothing starts beside them unasked."""

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.crash.far import environments
from tests.support.live import eventually
from tests.support.processlauncher import ProcessEngine
from topmast.app.control_plane import ControlPlane
from topmast.app.process import Outside
from topmast.model.access import local_caller
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import parse_fleet
from topmast.policies.registry import load_profile

ANN = local_caller("ann")


@pytest.fixture(autouse=True)
def ended(tmp_path: Path) -> Iterator[None]:
    """A runner of which the engine knows nothing any more tells its end for an hour: end it here."""
    yield
    mark = f"RIG={tmp_path / 'parts'}".encode()
    for pid, env in environments():
        if mark in env:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def server(folder: Path) -> Iterator[ControlPlane]:
    """A server with a far cluster, whose runners are processes of this machine."""
    options = {"folder": os.fspath(folder / "parts"), "poll_s": 0.2, "lease_s": 10.0}
    host = {"hosts": [{"count": 1, "gpu": "H100", "gpus": 2}]}
    cluster = {**host, "engine": "far", "options": options}
    fleet = parse_fleet({"regions": {"east": {"clusters": {"lab": cluster}}}})
    outside = Outside(engines={"far": ProcessEngine})
    profile = load_profile("mast", {"backoff_s": "0.2", "suspect_s": "1"})
    system = ControlPlane(folder / "state", profile, fleet, outside=outside)
    try:
        system.open()
        yield system
    finally:
        system.close()


def state_of(system: ControlPlane, job: str) -> str:
    """The state of a job."""
    return asyncio.run(system.service.job(ANN, job)).state


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_old", [False, True], ids=["lost", "an old copy"])
def test_a_server_does_not_begin_where_it_cannot_know_what_runs(
    tmp_path: Path, is_old: bool
) -> None:
    """A person says that nothing runs any more, and the job starts again."""
    engine, began = tmp_path / "state" / "engines" / "lab", tmp_path / "began"
    run = f"echo >> {began}; while [ $(wc -l < {began}) = 1 ]; do sleep 0.1; done"
    with server(tmp_path) as system:
        if is_old:
            shutil.copytree(engine, tmp_path / "old", ignore=shutil.ignore_patterns("*.sock"))
        job = asyncio.run(system.service.submit(ANN, {"run": run}, "ann", "", "")).id
        eventually(began.exists, "it runs")
        eventually(lambda: state_of(system, job) == "RUNNING", "that is known")
    with server(tmp_path) as system:
        assert state_of(system, job) == "RUNNING", "with its folder it goes on"
    shutil.rmtree(engine)
    if is_old:
        shutil.move(tmp_path / "old", engine)

    refusal = f"engines/lab knows nothing of .* for {job}"
    with pytest.raises(InvalidInput, match=refusal) as told, server(tmp_path):
        pass
    assert began.read_text() == "\n"
    assert f"make the file {engine / 'lost'}" in told.value.remedy

    engine.mkdir(exist_ok=True)
    (engine / "lost").touch()
    with server(tmp_path) as system:
        eventually(lambda: state_of(system, job) == "SUCCEEDED", "it has run again")
    assert began.read_text() == "\n\n"
    with server(tmp_path):
        assert not (engine / "lost").exists(), "the next loss is told again"
