"""`down`, against a process that stands for a server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Call
from tests.unit.client.fake import FakeServer
from topmast.adapters.engines.local import processes
from topmast.model.views import JobPage

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def announced(state: Path, url: str, code: str = "") -> subprocess.Popen[bytes]:
    """A process that is known to be the server of a state folder."""
    program = f"import time\n{code}print(flush=True)\ntime.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    state.mkdir(exist_ok=True)
    known = {**processes.identity(process.pid), "pid_namespace": processes.namespace()}
    (state / "server.json").write_text(json.dumps({"url": url, **known}))
    return process


def test_down_stops_the_server_of_a_folder(server: FakeServer, call: Call, tmp_path: Path) -> None:
    """And no other; it says what goes on."""
    server.on("GET", "/jobs", JobPage((), None, {"RUNNING": 1, "PENDING": 2, "SUCCEEDED": 9}))
    process = announced(tmp_path / "s", server.url)
    called = call("down", "--state", tmp_path / "s")
    assert process.wait(10) == -15
    assert called.code == 0
    first, second, third = called.out.splitlines()
    assert first == f"The server of {tmp_path / 's'}, process {process.pid}, has stopped."
    where = f"--state {tmp_path / 's'}"
    assert second == f"1 job runs on, 2 wait; `topmast up {where}` goes on with them."
    assert f"`topmast cancel {where} --selector 'name=*'`, `topmast down {where}`" in third
    again = call("down", "--state", tmp_path / "s")
    assert again.code == 1
    assert "no Topmast server runs on" in again.error


@pytest.mark.parametrize(
    ("counts", "want"),
    [
        pytest.param({}, ["No job runs or waits."], id="never had a job"),
        pytest.param({"SUCCEEDED": 3}, ["No job runs or waits."], id="all have ended"),
        pytest.param(
            {"PENDING": 1},
            ["No job runs, 1 waits; `topmast up{where}` goes on with them."],
            id="waiting",
        ),
        pytest.param(None, [], id="the server did not say"),
    ],
)
def test_down_says_of_no_job_that_it_goes_on(
    server: FakeServer, call: Call, tmp_path: Path, counts: dict[str, int] | None, want: list[str]
) -> None:
    """Where none does, or where that is not known."""
    if counts is not None:
        server.on("GET", "/jobs", JobPage((), None, counts))
    url = "http://127.0.0.1:9" if counts is None else server.url
    process = announced(tmp_path / "s", url)
    called = call("down", "--state", tmp_path / "s")
    assert process.wait(10) == -15
    where = f" --state {tmp_path / 's'}"
    assert called.out.splitlines()[1:] == [line.format(where=where) for line in want]


def test_down_of_a_server_that_hangs(call: Call, tmp_path: Path) -> None:
    """It is not killed; nothing answers, and that does not matter."""
    process = announced(tmp_path / "s", "http://127.0.0.1:9", STUBBORN)
    called = call("down", "--state", tmp_path / "s", "--timeout", "100ms", "--json")
    assert called.code == 1
    assert f"process {process.pid}, was told to stop, and still runs after 100ms" in called.error
    assert process.poll() is None
    process.kill()
    process.wait()


@pytest.mark.parametrize("known", [{"boot": "another"}, {"pid_namespace": "pid:[1]"}])
def test_down_of_a_server_elsewhere(call: Call, tmp_path: Path, known: dict[str, str]) -> None:
    """Its number means nothing here."""
    process = announced(tmp_path, "http://127.0.0.1:9")
    file = tmp_path / "server.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | known))
    called = call("down", "--state", tmp_path)
    assert "runs on another machine, or in a container" in called.error
    assert process.poll() is None
    process.kill()
    process.wait()
