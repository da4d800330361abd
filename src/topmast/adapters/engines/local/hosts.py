"""The engine's end of a host: finding its agent, talking to it, launching agents."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import topmast
from topmast.adapters.engines.local import files, processes
from topmast.adapters.engines.local.files import Json, Layout
from topmast.adapters.lines import Lines

LAUNCH = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    "from topmast.adapters.engines.local.agent import main; sys.exit(main(sys.argv[1:]))"
)


class AgentState(StrEnum):
    """Where a host is between its agent's lives."""

    IDLE = "idle"
    """No agent, and no need of one so far."""
    CONNECTING = "connecting"
    """An agent was launched or found; it has not told its tasks yet."""
    UP = "up"
    REAPING = "reaping"
    """The agent died; what it ran is being made sure of."""
    DOWN = "down"
    """Waiting to be launched again."""


class Host:
    """One host as the engine sees it."""

    def __init__(self, name: str, layout: Layout) -> None:
        self.name = name
        self.folder = layout.host(name)
        self.state = AgentState.IDLE
        self.connection: socket.socket | None = None
        self.wake_s: float | None = None
        """When to look at it again, by the monotonic clock."""
        self.since_s = 0.0
        """When its state began, by the monotonic clock."""
        self.return_s = 0.0
        """How long it stays down; not at all if it died before we looked."""
        self.error = ""
        self._lines = Lines()

    def connect(self) -> bool:
        """Try to reach the agent; True when connected."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            fd = os.open(self.folder, os.O_PATH | os.O_DIRECTORY)
            try:
                # By way of the descriptor: a socket's path has at most 107 bytes.
                connection.connect(f"/proc/self/fd/{fd}/agent.sock")
            finally:
                os.close(fd)
        except OSError:
            connection.close()
            return False
        connection.settimeout(5.0)  # for sending; receiving happens only when there is something
        self.connection = connection
        self._lines = Lines()
        return True

    def disconnect(self) -> None:
        """Let go of the connection."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def tell(self, order: Json) -> None:
        """Send an order; if that fails, receiving does too, and there it is noticed."""
        if self.connection is None:
            return
        try:
            self.connection.sendall(json.dumps(order).encode() + b"\n")
        except OSError:
            # Half an order may be on its way: nothing more can be said here.
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def receive(self) -> list[Json] | None:
        """What the agent said; None when the connection has ended."""
        if self.connection is None:
            return None
        try:
            received = self.connection.recv(1 << 20)
        except OSError:
            return None
        if not received:
            return None
        return [json.loads(line) for line in self._lines.feed(received)]

    def ring(self) -> None:
        """Let a running agent check whether it can be reached: its socket may have been removed."""
        agent = files.read_json(self.folder / "agent.json") or {}
        processes.send_if_same(agent, signal.SIGHUP)

    @property
    def recorded(self) -> bool:
        """Whether there is, or was until it died, an agent."""
        return (self.folder / "agent.json").exists()

    @property
    def alive(self) -> bool:
        """Whether an agent has the host's lock."""
        return files.is_locked(self.folder / "agent.lock")

    def old_root(self, root: Path) -> Path | None:
        """Where an agent that is alive has the folder of its engine; None: at ``root``, as it is.

        Agents, and what they start, write by the path that they were given.
        """
        found = self.process
        command = [] if found is None else processes.command_of(found[0])
        place = command.index("-c") + 3 if "-c" in command else len(command)
        if place >= len(command):
            return None
        old = Path(command[place])
        is_here = old.exists() and root.exists() and old.samefile(root)
        return None if is_here else old

    @property
    def process(self) -> tuple[int, bool] | None:
        """The agent's process while it is alive, and whether it was halted."""
        if not self.alive:
            return None
        agent = files.read_json(self.folder / "agent.json") or {}
        pid = processes.pid_of(agent)
        return (pid, processes.is_stopped(agent)) if pid is not None else None


TASK_UMASK = "TOPMAST_TASK_UMASK"
"""Variable with the mask (octal) of agents and tasks, where it is not that of this process."""


def launch_agents(
    layout: Layout, hosts: Sequence[str], python: str, linger_s: float
) -> subprocess.Popen[bytes]:
    """Start agents, all by one interpreter; it ends with 0 when they can be connected to."""
    files.make_folder(layout.hosts)
    source = Path(topmast.__file__).resolve().parents[1]
    log = os.open(layout.root / "agents.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            [python, "-I", "-S", "-c", LAUNCH, source, layout.root, str(linger_s), *hosts],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={},  # no secret of ours is of use to an agent
            start_new_session=True,
            umask=int(os.environ.get(TASK_UMASK, "-1"), 8),
        )
    finally:
        os.close(log)
