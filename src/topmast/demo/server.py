"""The server of the demo: `topmast up` as a child process, and everything it leaves behind."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from topmast.model.errors import Unavailable

START_S = 600.0
"""Generous: a slow machine that is busy with other things takes minutes."""
STOP_S = 10.0
GONE_S = 10.0
LOG = "server.log"


class Server:
    """One server on a state folder of its own."""

    def __init__(
        self, state: Path, fleet: Path, settings: dict[str, str], profile: str | None = None
    ) -> None:
        self.state = state
        self.log = state / LOG
        options = [word for key in settings for word in ("--set", f"{key}={settings[key]}")]
        options += [] if profile is None else ["--profile", profile]
        self._command = [
            sys.executable, "-m", "topmast.app", "up", "--fleet", str(fleet),
            "--state", str(state), "--port", "0", "--json", *options,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start it, and wait until it answers; its URL. Raises Unavailable."""
        environment = {k: v for k, v in os.environ.items() if k != "TOPMAST_SERVER"}
        with self.log.open("ab") as log:
            # In a session of its own: Ctrl-C is for the demo, which then ends the server.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                env=environment, start_new_session=True,
            )  # fmt: skip
        line = self._first_line(self._process)
        try:
            return str(json.loads(line)["url"])
        except (ValueError, KeyError, TypeError):
            self.stop()
            raise Unavailable(f"the server did not start: {self._last_words()}") from None

    def _first_line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        said, deadline_s = b"", time.monotonic() + START_S
        while b"\n" not in said and time.monotonic() < deadline_s:
            if select.select([process.stdout], [], [], 0.5)[0]:
                piece = os.read(process.stdout.fileno(), 4096)
                if not piece:
                    break
                said += piece
        return said

    def _last_words(self) -> str:
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "its log is empty"

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def kill_host(self, agent: int) -> None:
        """SIGKILL the process that stands for a host: all that runs there dies with it."""
        for process in self._agents():
            if process.pid == agent:
                process.kill()
                return
        raise Unavailable(f"process {agent} is not a host of this demo")

    def stop(self) -> None:
        """End the server, then all hosts and whatever runs on them; returns when all are gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
        deadline_s = time.monotonic() + GONE_S
        while time.monotonic() < deadline_s:
            left = [*self._agents(), *self._tasks()]
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
            if not left:
                return
            psutil.wait_procs(left, timeout=0.2)

    def _agents(self) -> Iterator[psutil.Process]:
        """Hosts of this state folder, and the supervisors that they fork."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                command = process.cmdline()
                ours = any(word.startswith(f"{self.state}{os.sep}") for word in command[5:])
                if command[1:4] == ["-I", "-S", "-c"] and ours:
                    yield process

    def _tasks(self) -> Iterator[psutil.Process]:
        """What jobs of this state folder started."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                reports = process.environ().get("TOPMAST_PROGRESS_FILE", "")
                if reports.startswith(f"{self.state}{os.sep}"):
                    yield process
