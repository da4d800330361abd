"""How the server is found."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from topmast.adapters.engines.local import processes
from topmast.client import Client
from topmast.client.address import (
    default_state,
    find_server,
    is_loopback,
    written_server,
    written_url,
)
from topmast.model.errors import InvalidInput, TopmastError, Unavailable


def write_server(state: Path, url: object) -> Path:
    state.mkdir(parents=True, exist_ok=True)
    (state / "server.json").write_text(json.dumps({"url": url, "pid": 1}))
    return state


@dataclass(frozen=True)
class Case:
    story: str
    server: str | None
    state: str | None
    environment: str
    want: str


CASES = [
    Case("named by the caller", "http://a:1", None, "http://b:2", "http://a:1"),
    Case("a bare host and port", "localhost:1", None, "", "http://localhost:1"),
    Case("with a slash", "http://a:1/", None, "", "http://a:1"),
    Case("behind a path", "https://a/mast", None, "", "https://a/mast"),
    Case("the caller's folder goes before the environment", None, "s", "http://b:2", "http://s:3"),
    Case("the environment goes before the default", None, None, "http://b:2", "http://b:2"),
    Case("nothing is said", None, None, "", "http://default:4"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_finds_the_server(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the caller names goes before the environment, and that before the default folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOPMAST_SERVER", case.environment)
    write_server(tmp_path / "home" / "topmast", "http://default:4")
    write_server(tmp_path / "s", "http://s:3")
    state = tmp_path / case.state if case.state else None
    assert find_server(case.server, state) == case.want


@pytest.mark.parametrize(
    "text", ["http://", "ftp://a", "http://a:x", "a b", "http://a:0", "http://a/?q=1", "http://a\n"]
)
def test_refuses_what_is_no_address(text: str) -> None:
    """A URL that cannot be one is a mistake of the caller, not a server that is away."""
    with pytest.raises(InvalidInput, match="not the address of a server"):
        find_server(text)


def test_says_how_to_start_a_server(tmp_path: Path) -> None:
    """Without a server the error says what to do, and names the folder it looked into."""
    with pytest.raises(Unavailable, match=f"{tmp_path}; start one with `topmast up`"):
        find_server(None, tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 3}', '{"url": "ftp://a"}'])
def test_a_broken_note_is_an_error(text: str, tmp_path: Path) -> None:
    """Whatever stands in server.json, the error names the file."""
    (tmp_path / "server.json").write_text(text)
    with pytest.raises(TopmastError, match=r"server\.json"):
        find_server(None, tmp_path)


def test_a_relative_xdg_folder_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the XDG specification asks."""
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert default_state() == Path.home() / ".local" / "state" / "topmast"


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("http://127.0.0.1:1", True),
        ("http://localhost:1", True),
        ("http://[::1]:1", True),
        ("http://10.0.0.1:1", False),
    ],
)
def test_knows_loopback(url: str, want: bool) -> None:
    """No proxy stands before this machine."""
    assert is_loopback(url) is want


def _written(state: Path, **more: object) -> None:
    _tell(state / "server.json", more)


def _tell(file: Path, more: Mapping[str, object]) -> None:
    own = {**processes.identity(os.getpid()), "pid_namespace": processes.namespace()}
    file.write_text(json.dumps({"url": "http://127.0.0.1:1", **own, **more}))


@pytest.mark.parametrize(
    ("more", "want_alive"),
    [
        ({}, True),
        ({"start_ticks": 1}, False),
        ({"pid": 2**22 + 1}, False),
        ({"pid": 2**22 + 1, "boot": "another machine"}, True),
        ({"pid": 2**22 + 1, "pid_namespace": "pid:[1]"}, True),
    ],
    ids=["it lives", "another process has its number", "it is gone", "elsewhere", "in a container"],
)
def test_the_port_of_a_server_that_was_killed_is_not_asked(
    tmp_path: Path, more: dict[str, object], want_alive: bool
) -> None:
    """Any program may listen there by now."""
    _written(tmp_path, **more)
    if want_alive:
        assert written_url(tmp_path) == "http://127.0.0.1:1"
    else:
        with pytest.raises(Unavailable, match=r"no Topmast server runs on .* was killed"):
            written_url(tmp_path)


def test_a_server_that_is_starting_is_waited_for(tmp_path: Path) -> None:
    """After one that was killed, too; not if the start itself was killed."""
    _tell(tmp_path / "starting.1.json", {"start_ticks": 1})
    with pytest.raises(Unavailable, match="no Topmast server runs on"):
        written_url(tmp_path)
    own = tmp_path / f"starting.{os.getpid()}.json"
    before = {"boot": "before a restart of the machine"}
    for file, more in ((own, before), (tmp_path / "starting.2.json", {}), (own, {"pid": None})):
        _tell(file, more)
        with pytest.raises(Unavailable, match="no Topmast server runs on"):
            written_url(tmp_path)
        file.unlink()
    _tell(own, {})
    said = f"the Topmast server on {tmp_path} is starting; try again in some seconds"
    with pytest.raises(Unavailable, match=f"^{said}$"):
        written_url(tmp_path)
    _written(tmp_path, start_ticks=1)
    with pytest.raises(Unavailable, match=f"^{said}$"):
        written_url(tmp_path)
    _written(tmp_path)
    assert written_url(tmp_path) == "http://127.0.0.1:1"


def test_a_server_that_its_parent_has_not_buried_is_dead(tmp_path: Path) -> None:
    """Where nothing collects the children of others, as in many containers, a killed server stays in the list of processes."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        _written(tmp_path, **processes.identity(child.pid))
        assert written_url(tmp_path) == "http://127.0.0.1:1"
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and still there
        with pytest.raises(Unavailable, match="the last one was killed"):
            written_url(tmp_path)
    finally:
        child.kill()
        child.communicate()


def test_a_relative_folder_reads_like_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name could be any word."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unavailable, match=r"runs on \./state, which is not there; start one"):
        written_url(Path("state"))
    Path("state").write_text("")
    with pytest.raises(InvalidInput, match=r"\./state is not a folder"):
        written_url(Path("./state"))


def test_a_state_of_jobs_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``queue --state RUNING`` is meant otherwise: the option names the folder of a server."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unavailable, match=r"by --selector state=RUNNING$"):
        written_server(Path("RUNING"))
    with pytest.raises(Unavailable, match=r"--server URL$"):
        written_server(Path("elsewhere"))


def test_a_folder_may_be_a_text(tmp_path: Path) -> None:
    """As people write it; a server that is not there is told as such."""
    with pytest.raises(Unavailable, match="no Topmast server runs on"):
        Client(state=str(tmp_path)).health()
