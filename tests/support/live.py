"""A real server in a process of its own, for tests that kill it, and everything it leaves behind."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from topmast import Client
from topmast.adapters.engines.local import processes
from topmast.model.states import TERMINAL
from topmast.model.views import JobView

T = TypeVar("T")
PATIENCE_S = 120.0
"""For what takes a second or two on a machine that is not busy."""
LOG_TAIL_BYTES = 20_000  # a traceback of many frames, and the line before it
BELOW_OUTGOING_PORTS = range(20_000, 32_000)
SLOW_COMMIT = """
import time
from msgspec.structs import replace
from topmast.adapters.engines.local.engine import LocalEngine
from topmast.adapters.store.journal import SqlJournal
from topmast.runtime import loop

def append(journal, records, audit, commit=SqlJournal.append):
    time.sleep({commit_s})
    commit(journal, records, audit)

SqlJournal.append = append
loop.SNAPSHOT_RECORDS = {snapshot_records}

def set_up(self, cluster, folder, site, options, init=LocalEngine.__init__):
    init(self, cluster, folder, site, replace(options, host_return_s={host_return_s}))

LocalEngine.__init__ = set_up
from topmast.app import main
main()
"""


@dataclass
class Tuning:
    """What a server is given that a test wants otherwise than people do.

    ``commit_s``: how long each commit takes at least, so that a kill may well come before or in one.
    """

    snapshot_records: int = 50_000
    commit_s: float = 0.0
    host_return_s: float = 10.0

    @property
    def program(self) -> str:
        """The server's main program."""
        return SLOW_COMMIT.format(**asdict(self))


class Server:
    """`topmast up` on the folder ``state``; may be started again and again.

    What it prints goes to ``server.log`` beside the state folder.
    """

    def __init__(
        self,
        state: Path,
        fleet: Path | None,
        settings: Mapping[str, str] | None = None,
        tuning: Tuning | None = None,
        arguments: Sequence[str] = (),
        port: int = 0,
        open_files: int | None = None,
    ) -> None:
        """``tuning`` may be changed between two starts.

        ``arguments``: more of them for `up`, for a process that is only a part of the system.
        ``open_files``: how many it may have, as by `ulimit -n`.
        """
        self.open_files = open_files
        self.umask = -1
        self.arguments = tuple(arguments)
        self.port = port
        self.state = state
        self.fleet = fleet
        self.settings = dict(settings or {})
        self.tuning = tuning
        self.log = state.with_name(f"{state.name}.server.log")
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process that runs, or ran last."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def command(self) -> list[str]:
        """What is run to start it."""
        program = ["-m", "topmast.app"] if self.tuning is None else ["-c", self.tuning.program]
        command = [sys.executable, *program, "up", "--state", str(self.state)]
        command += ["--port", str(self.port), *self.arguments]
        if self.fleet is not None:
            command += ["--fleet", str(self.fleet)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def start(self) -> None:
        """Begin to start; `wait_ready` tells when it answers."""
        assert not self.running
        self.url = ""
        command = self.command
        if self.open_files is not None:
            command = ["prlimit", f"--nofile={self.open_files}:{self.open_files}", *command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, umask=self.umask
            )

    def wait_ready(self, patience_s: float = PATIENCE_S) -> str:
        """The URL, as soon as there is an answer to be had."""
        deadline_s = time.monotonic() + patience_s
        while time.monotonic() < deadline_s:
            with suppress(OSError, ValueError):
                written = json.loads((self.state / "server.json").read_bytes())
                if written["pid"] == self.pid:
                    self.url = written["url"]
                    return self.url
            if not self.running:
                raise AssertionError(f"the server ended by itself:\n{self.log_tail()}")
            time.sleep(0.005)
        self.kill()
        raise AssertionError(f"the server is not up after {patience_s:g} s:\n{self.log_tail()}")

    def up(self) -> Client:
        """Start it, and a client that speaks to it."""
        self.start()
        return Client(self.wait_ready(), user="ann")

    def kill(self) -> None:
        """SIGKILL, to the server and to nothing else."""
        self.killer()()

    def killer(self) -> Callable[[], None]:
        """What kills the process that runs now, and never a later one."""
        process = self._process
        assert process is not None

        def kill() -> None:
            process.kill()
            process.wait()

        return kill

    def terminate(self) -> None:
        """SIGTERM: it shall shut down, and let what runs run."""
        assert self._process is not None
        self._process.terminate()

    def stop(self, patience_s: float = PATIENCE_S) -> int:
        """SIGTERM, and its exit status."""
        self.terminate()
        return self.ended(patience_s)

    def ended(self, patience_s: float = PATIENCE_S) -> int:
        """Its exit status, once it has ended."""
        assert self._process is not None
        return self._process.wait(patience_s)

    def log_tail(self) -> str:
        """The end of what it printed."""
        with suppress(OSError):
            return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        return ""

    def end(self) -> None:
        """End the server, its agents and their tasks, whatever they are doing."""
        if self.running:
            self.kill()
        end_agents(self.state)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, and that no outgoing connection is given while a server is away."""
    found: list[int] = []
    with ExitStack() as stack:
        for port in random.sample(BELOW_OUTGOING_PORTS, len(BELOW_OUTGOING_PORTS)):
            probe = stack.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                break
    return found


def tasks(state: Path) -> list[int]:
    """The processes of all tasks of a state folder: each bears the mark of its engine."""
    return _marked("environ", f"{processes.MARK}={state.absolute()}/")


def hosts(state: Path) -> list[int]:
    """Agents, their launchers and supervisors: the arguments of each name its cluster's folder."""
    return _marked("cmdline", f"{state.absolute()}/engines/")


def _marked(file: str, prefix: str) -> list[int]:
    """Processes with an entry that begins so in a file of their folder of /proc."""
    mark = b"\0" + prefix.encode()
    found = []
    for pid in processes.numbers(processes.PROC):
        with suppress(OSError):
            if mark in b"\0" + (processes.PROC / str(pid) / file).read_bytes() and is_alive(pid):
                found.append(pid)
    return found


def end_agents(state: Path) -> None:
    """Kill all agents and tasks of a state folder; returns when none is left."""
    deadline_s = time.monotonic() + PATIENCE_S
    while left := [*hosts(state), *tasks(state)]:
        processes.send(left, signal.SIGKILL)
        assert time.monotonic() < deadline_s, f"cannot be killed: {left}"
        time.sleep(0.02)


@contextmanager
def live(
    folder: Path,
    fleet: str,
    settings: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> Iterator[tuple[Server, Client]]:
    """A server on ``fleet`` (the text of a fleet file), and a client; afterwards nothing is left."""
    file = folder / "fleet.yaml"
    file.write_text(fleet, encoding="utf-8")
    server = Server(folder / "state", file, settings, arguments=arguments)
    try:
        with server.up() as client:
            yield server, client
    finally:
        server.end()


def eventually(what: Callable[[], T | None], story: str, patience_s: float = PATIENCE_S) -> T:
    """What ``what`` returns, once it is true; ``story`` says what did not come."""
    deadline_s = time.monotonic() + patience_s
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < deadline_s, f"not within {patience_s:g} s: {story}"
        time.sleep(0.02)


def until_state(client: Client, job: str, *states: str, patience_s: float = PATIENCE_S) -> JobView:
    """The job, once it is in one of ``states``; fails when it ends in another."""
    deadline_s = time.monotonic() + patience_s
    while True:
        view = client.job(job)
        if view.state in states:
            return view
        story = f"{job} is {view.state} ({view.reason or view.cause}), not {' or '.join(states)}"
        assert view.state not in TERMINAL, story
        assert time.monotonic() < deadline_s, story
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    with suppress(OSError):
        stat = (processes.PROC / str(pid) / "stat").read_bytes()
        return stat[stat.rindex(b")") + 2 :][:1] not in (b"Z", b"X")
    return False


def kill(pid: int) -> None:
    """SIGKILL one process, and wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_alive(pid), f"process {pid} is gone")
