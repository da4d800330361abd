"""`down`, against a process that stands for a server."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Call
from tests.unit.client.fake import FakeServer
from topmast.adapters.engines.local import processes
from topmast.model.account_views import WhoAmI
from topmast.model.views import JobPage

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def announced(
    state: Path, url: str, code: str = "", role: str = "", file: str = "server.json"
) -> subprocess.Popen[bytes]:
    """A process that is known to be the server of a state folder."""
    program = f"import time\n{code}print(flush=True)\ntime.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    state.mkdir(exist_ok=True)
    known = {**processes.identity(process.pid), "pid_namespace": processes.namespace()}
    told = {"url": url, "role": role, "state": str(state.resolve()), **known}
    (state / file).write_text(json.dumps(told))
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
    none = f"no Topmast server runs on {tmp_path / 's'}: the last one was killed"
    assert again.error == f"topmast: {none}; there is nothing to stop"


def test_down_where_no_server_runs_says_just_that(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the option that names what was meant, unless that was given; and not to start one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    usual = tmp_path / "topmast"
    usual.mkdir()
    nothing, url = "there is nothing to stop", "http://127.0.0.1:9"
    by_state = "`down` ends a process of this machine: name its state folder by --state"
    for arguments, want in (
        (["--state", tmp_path], f"{tmp_path}; {nothing}"),
        (["--state", tmp_path, "--server", url], f"{tmp_path}; {nothing}"),
        (["--state", tmp_path / "no"], f"{tmp_path}/no, which is not there; {nothing}"),
        ([], f"{usual}; {nothing} (--state names another folder)"),
        (["--server", url], f"{usual}; {by_state}"),
    ):
        called = call("down", *arguments)
        assert (called.code, called.error) == (1, f"topmast: no Topmast server runs on {want}")


@pytest.mark.parametrize("login", [False, True])
def test_what_down_advises_can_be_done(
    server: FakeServer, call: Call, tmp_path: Path, login: bool
) -> None:
    """What has had a login does not start without one."""
    server.on("GET", "/jobs", JobPage((), None, {"RUNNING": 1}))
    server.on("GET", "/whoami", WhoAmI("user:ann", "token ...abcd", (), login=login))
    announced(tmp_path, server.url)
    out = call("down", "--state", tmp_path).out
    up = f"topmast up --state {tmp_path}{' --accounts FILE' if login else ''}"
    assert f"`{up}` goes on with them." in out
    assert f"To end them: `{up}`, " in out
    assert ("with the role of an operator" in out) is login


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
    assert (
        f"process {process.pid}, was told to stop, and still runs after 0.1 s; run this again with a longer --timeout"
        in called.error
    )
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


def test_down_of_a_copied_folder_stops_no_server(call: Call, tmp_path: Path) -> None:
    """A copy has the file of the server of the first folder, which goes on."""
    process = announced(tmp_path / "s", "http://127.0.0.1:9")
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    called = call("down", "--state", tmp_path / "copy")
    assert called.code == 1
    assert f"process {process.pid} serves {tmp_path / 's'}, and {tmp_path / 'copy'} is a copy" in (
        called.error
    )
    assert process.poll() is None
    process.kill()
    process.wait()


def test_down_stops_no_process_that_another_user_named(call: Call, tmp_path: Path) -> None:
    """Who may write into a folder could name any process there, and have its reader stop it."""
    process = announced(tmp_path, "http://127.0.0.1:9")
    file = tmp_path / "server.json"
    if os.geteuid() == 0:
        os.chown(file, 65_534, 65_534)
    else:  # of the superuser, whose file it is not
        known = json.loads(file.read_bytes()) | processes.identity(1)
        file.write_text(json.dumps(known))
    called = call("down", "--state", tmp_path)
    assert called.code == 1
    assert "belongs to another user than the file: it is not stopped" in called.error
    assert process.poll() is None
    process.kill()
    process.wait()


@pytest.mark.parametrize("command", ["down", "queue"])
def test_what_is_no_file_of_a_server_is_not_waited_for(
    call: Call, tmp_path: Path, command: str
) -> None:
    """A pipe has no end, nor has a device."""
    os.mkfifo(tmp_path / "server.json")
    assert "it is no regular file" in call(command, "--state", tmp_path).error
    (tmp_path / "server.json").unlink()
    (tmp_path / "server.json").symlink_to("/dev/zero")
    assert "it is no regular file" in call(command, "--state", tmp_path).error


def test_a_password_in_an_address_is_refused_and_not_shown(call: Call) -> None:
    """Addresses are printed, in errors too."""
    called = call("queue", "--server", "http://u:hunter2@127.0.0.1:9")
    assert "has no name or password in it" in called.error
    assert "hunter2" not in called.error + called.out


LED, STOOD_BY = "http://127.0.0.1:9", "http://127.0.0.1:19"


@contextmanager
def leader_and_standby(folder: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Two servers of one folder, by role."""
    both = {
        "leader": announced(folder, LED, role="leader"),
        "standby": announced(folder, STOOD_BY, role="standby", file="standby.1.json"),
    }
    try:
        yield both
    finally:
        for process in both.values():
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("named", "want"),
    [(LED, "leader"), (STOOD_BY, "standby"), ("localhost:19", "standby")],
)
def test_down_stops_the_one_that_is_named(
    call: Call, tmp_path: Path, named: str, want: str
) -> None:
    """And says which it was; the other one goes on."""
    with leader_and_standby(tmp_path) as both:
        called = call("down", "--state", tmp_path, "--server", named)
        assert called.code == 0, called.error
        stopped = both.pop(want)
        assert stopped.wait(10) == -15
        assert f"The {want} of {tmp_path}, process {stopped.pid}, has stopped." in called.out
        assert [other.poll() for other in both.values()] == [None]


def test_down_of_several_servers_asks_which(call: Call, tmp_path: Path) -> None:
    """None is stopped: a standby would lead on, and people meant the whole."""
    with leader_and_standby(tmp_path) as both:
        called = call("down", "--state", tmp_path)
        assert called.code != 0
        for role, url in (("leader", LED), ("standby", STOOD_BY)):
            assert f"a {role} at {url} (process {both[role].pid})" in called.error
        assert "--server" in called.error
        assert [process.poll() for process in both.values()] == [None, None]


def test_down_of_a_standby_alone(call: Call, tmp_path: Path) -> None:
    """Its folder names no leader, and it is stopped; of one that was killed nothing is left."""
    process = announced(tmp_path, STOOD_BY, role="standby", file="standby.1.json")
    called = call("down", "--state", tmp_path, "--json")
    assert process.wait(10) == -15
    assert json.loads(called.out)["role"] == "standby"
    assert "no Topmast server runs on" in call("down", "--state", tmp_path).error


@pytest.mark.parametrize("by_environment", [False, True])
def test_down_stops_no_other_than_the_one_that_is_named(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_environment: bool
) -> None:
    """A URL is no folder: it is refused, and says what would do."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    process = announced(tmp_path / "topmast", LED)
    there = "https://gpus.example.org"
    if by_environment:
        monkeypatch.setenv("TOPMAST_SERVER", there)
    called = call("down", *([] if by_environment else ["--server", there]))
    assert called.code != 0
    where = "TOPMAST_SERVER" if by_environment else "--server"
    assert f"{where}: no server of {tmp_path / 'topmast'} is at {there}" in called.error
    assert "name its state folder by --state" in called.error
    assert process.poll() is None
    process.kill()
    process.wait()
