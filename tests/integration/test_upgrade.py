"""A server of an older commit is stopped while jobs run, and this one starts on its folder."""

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.held import Held
from tests.support.live import Server, is_alive, until_state
from topmast import Client
from topmast.adapters.store import examined

REPO = Path(__file__).resolve().parents[2]
OLDER = "c75c038933c7"
"""A commit with the second version of the database, before there were leaders."""
FLEET = """
regions: {east: {clusters: {east-a: {hosts: [{count: 1, gpu: H100, gpus: 3}]}}}}
"""
SETTINGS = {"min_runtime_s": "0", "restart_cost_s": "1", "backoff_s": "0.2"}
FIRST_START_S = 300.0
"""The older program compiles its kernels."""


class OlderServer(Server):
    """A server of the older source."""

    source = Path()

    @property
    def command(self) -> list[str]:
        """The same command, of the other program."""
        return ["env", f"PYTHONPATH={self.source}", *super().command]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The older source, out of the history of this repository."""
    words = ["git", "-C", str(REPO), "archive", OLDER, "src"]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("the history of the repository is not here: a shallow clone?")
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


@pytest.fixture
def older(source: Path, tmp_path: Path) -> Iterator[OlderServer]:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET)
    server = OlderServer(tmp_path / "state", file, SETTINGS)
    server.source = source
    yield server
    server.end()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", ["stopped", "killed", "backup"])
def test_jobs_of_the_older_version_run_on(tmp_path: Path, older: OlderServer, how: str) -> None:
    """Nothing that it acknowledged is lost, nothing starts twice; a backup before is good after."""
    older.start()
    older.wait_ready(FIRST_START_S)
    with Client(older.url) as client:
        done = client.submit({"run": "echo done"})
        client.wait(done.id, timeout_s=60)
        held = Held(client, tmp_path, "H100", 2)
        pid = held.started().pid
        held.until("RUNNING")
        workdir = tmp_path / "workdir"
        workdir.mkdir()
        (workdir / "words").write_text("kept")
        waits = client.submit(
            {"run": "cat words", "resources": {"accelerators": "H100:2"}}, workdir=workdir
        )
    ends: dict[str, Callable[[], object]] = {"killed": older.kill}
    ends.get(how, older.stop)()
    state = older.state
    assert examined(state / "journal.sqlite").schema == "0002"
    if how == "backup":
        file = tmp_path / "before.backup"
        command(["backup", str(file), "--state", str(state)])
        command(["db", "upgrade", "--state", str(state)])
        restored = tmp_path / "restored"
        command(["restore", str(file), "--state", str(restored)])
        assert counts(restored) == counts(state) == {"SUCCEEDED": 1, "RUNNING": 1, "PENDING": 1}
    server = Server(state, older.fleet, SETTINGS)
    try:
        with server.up() as client:
            assert is_alive(pid)
            held.client = client
            view = held.until("RUNNING")
            assert (view.attempts, len(held.starts())) == (1, 1)
            assert client.job(done.id).state == "SUCCEEDED"
            held.end()
            until_state(client, waits.id, "SUCCEEDED")
            assert "".join(chunk.text for chunk in client.logs(waits.id)) == "kept"
        report = examined(state / "journal.sqlite")
        assert (report.current, report.faults) == (True, ())
    finally:
        server.end()


def counts(state: Path) -> dict[str, int]:
    """How many jobs are in each state, by the journal of a folder."""
    said = command(["replay", "--state", str(state), "--json"])
    found: dict[str, int] = json.loads(said)["counts"]
    return found


def command(words: list[str]) -> str:
    """What a command of this version says."""
    full = [sys.executable, "-m", "topmast.app", *words]
    done = subprocess.run(full, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
