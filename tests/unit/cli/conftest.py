"""Calling the command line in this process, against a fake server."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.program import ROOT
from tests.unit.client.fake import FakeServer
from topmast.adapters.kernels import load_kernels
from topmast.cli import main

REPO = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Called:
    """How a call ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line on stderr."""
        assert self.err.count("\n") == 1, self.err
        return self.err.rstrip("\n")

    @property
    def problem(self) -> Any:
        """The error that --json writes to stderr, in the form of REST."""
        return json.loads(self.error)["error"]


Call = Callable[..., Called]


def nothing_is_sent(server: FakeServer) -> bool:
    """Whether a server was asked at most what it finds wrong with a job that has errors."""
    return all(request.path == "/api/v1/jobs/dry-run" for request in server.requests)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A server that answers as it is told."""
    with FakeServer() as fake:
        yield fake


@pytest.fixture(autouse=True)
def surroundings(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake server, if the test has one, is the one that is found; else there is none."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("TOPMAST_DEBUG", raising=False)
    monkeypatch.delenv("TOPMAST_SERVER", raising=False)
    if "server" in request.fixturenames:
        monkeypatch.setenv("TOPMAST_SERVER", request.getfixturevalue("server").url)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Call the command line."""

    def run(*arguments: object) -> Called:
        capsys.readouterr()
        code = main(ROOT, [str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Called(code, captured.out, captured.err)

    return run


def program(*arguments: str) -> list[str]:
    """The command line as a process of its own."""
    return [sys.executable, "-m", "tests.unit.cli.program", *arguments]


@dataclass(frozen=True)
class Screen:
    """What a terminal received, and how the program ended."""

    code: int
    text: str


@pytest.fixture
def terminal() -> Callable[..., Screen]:
    """Call the command line on a terminal of its own."""

    def run(
        *arguments: str, columns: int = 120, interrupt_at: str = "", **variables: str
    ) -> Screen:
        ours, theirs = pty.openpty()
        environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm-256color"}
        environment.pop("NO_COLOR", None)
        environment |= variables
        process = subprocess.Popen(
            program(*arguments), cwd=REPO, stdin=theirs, stdout=theirs, stderr=theirs,
            env=environment,
        )  # fmt: skip
        os.close(theirs)
        pieces = []
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            pieces.append(piece)
            if interrupt_at and interrupt_at in b"".join(pieces).decode(errors="replace"):
                process.send_signal(signal.SIGINT)
                interrupt_at = ""
        os.close(ours)
        return Screen(process.wait(timeout=30), b"".join(pieces).decode())

    return run


@pytest.fixture(scope="session", autouse=True)
def compiled_kernels() -> None:
    """A first start, which compiles, would say so in a line more."""
    load_kernels()
