"""The agents of a local engine's hosts: found, launched, heard, and cleared up after.

An agent is the process that is a host. It outlives the engine, so that a start finds agents with
tasks; one that dies takes the host down, until nothing that it ran can be alive.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from functools import partial

from topmast.adapters.engines.local.files import Json, Layout
from topmast.adapters.engines.local.hosts import AgentState, Host, launch_agents
from topmast.adapters.engines.local.memory import Memory
from topmast.adapters.engines.local.options import LocalOptions
from topmast.adapters.engines.local.room import Room
from topmast.adapters.engines.local.stops import Stops
from topmast.adapters.engines.local.tasks import Tasks
from topmast.model.errors import InvalidInput
from topmast.model.messages import HostDown, HostUp
from topmast.ports import Clock, Post

LOOK_S = 0.05
REAP_S = 0.02
FORGET_EVERY = 100


class Agents:
    """The hosts of one engine, and what their agents tell. Belongs to the engine's thread."""

    def __init__(
        self, layout: Layout, options: LocalOptions, clock: Clock, post: Post,
        selector: selectors.BaseSelector, tasks: Tasks, stops: Stops, memory: Memory, room: Room,
    ) -> None:  # fmt: skip
        self.hosts: dict[str, Host] = {}
        """Those of the cluster, and others that left agents or tasks here."""
        self._layout = layout
        self._options = options
        self._clock = clock
        self._post = post
        self._selector = selector
        """What it registers has a method of this object as its data."""
        self._tasks = tasks
        self._stops = stops
        self._memory = memory
        self._room = room
        self.configured: frozenset[str] = frozenset()
        """The hosts of the cluster as it is now."""
        self._to_launch: list[Host] = []
        self._ends = 0

    # --- which hosts there are --------------------------------------------------------------

    def adopt(self, names: Sequence[str]) -> None:
        """Find the agents and tasks of earlier runs; start agents if the cluster is small.

        Raises InvalidInput for a folder that was moved while tasks run.
        """
        left = sorted(folder.name for folder in self._layout.hosts.iterdir())
        for name in left:
            old = Host(name, self._layout).old_root(self._layout.root)
            if old is not None:
                raise InvalidInput(
                    f"host {name} runs, and writes to {old}, where this folder was",
                    field=str(self._layout.root),
                    remedy="put it back there, or end what runs first",
                )  # fmt: skip
        self.configured = frozenset(names)
        self.hosts = {name: Host(name, self._layout) for name in (*names, *left)}
        eager = len(names) <= self._options.eager_hosts
        for host in self.hosts.values():
            if host.recorded or host.alive:
                self._set(host, AgentState.CONNECTING, 0.0)
            elif self._tasks.alive_on(host.name):
                self._reap(host, "its agent was gone")
            elif eager and host.name in self.configured:
                self._want(host)
            elif host.name in self.configured:
                self._post(HostUp(host.name))

    def set_hosts(self, names: Sequence[str]) -> None:
        """Have these hosts from now on; agents of those that went end by themselves."""
        new = [name for name in names if name not in self.configured]
        self.configured = frozenset(names)
        for host in self.hosts.values():
            if host.name not in self.configured and host.state is AgentState.DOWN:
                self._set(host, AgentState.IDLE, None)
        for name in new:
            host = self.hosts.setdefault(name, Host(name, self._layout))
            if host.state is AgentState.UP:
                self._post(HostUp(name))
            elif host.state is AgentState.IDLE and len(names) <= self._options.eager_hosts:
                self._want(host)
            elif host.state is AgentState.IDLE:
                self._post(HostUp(name))

    def _set(self, host: Host, state: AgentState, wake_in_s: float | None) -> None:
        host.state = state
        host.wake_s = None if wake_in_s is None else time.monotonic() + wake_in_s

    def disconnect(self) -> None:
        """Let go of all agents; they run on."""
        for host in self.hosts.values():
            host.disconnect()

    # --- agents: found, launched, heard -----------------------------------------------------

    def tick(self) -> None:
        """Take the next step with each host that is due, and launch what is wanted."""
        now_s = time.monotonic()
        for host in self.hosts.values():
            if host.wake_s is not None and host.wake_s <= now_s:
                host.wake_s = None
                self._attend(host)
        self._launch()

    @property
    def next_s(self) -> float | None:
        """When a host wants to be looked at next, by the monotonic clock."""
        times = (host.wake_s for host in self.hosts.values() if host.wake_s is not None)
        return min(times, default=None)

    def ask_when_up(self, host: Host, attempt: str, ranks: list[int]) -> None:
        """Have tasks started, now if the agent is there; otherwise `_meet` asks for what lacks."""
        if host.state == AgentState.UP:
            self._ask(host, attempt, ranks)
        elif host.state == AgentState.IDLE:
            self._want(host)

    def poke(self, hosts: Iterable[str], attempt: str) -> None:
        """Have agents look at the orders about an attempt."""
        for host in hosts:
            if host in self.hosts:
                self.hosts[host].tell({"op": "poke", "attempt": attempt})

    @property
    def in_doubt(self) -> bool:
        """Whether it is not known of some host which tasks live there."""
        unsettled = (AgentState.CONNECTING, AgentState.REAPING)
        return any(host.state in unsettled for host in self.hosts.values())

    @property
    def down(self) -> tuple[str, ...]:
        """Hosts of the cluster that are down."""
        names = (host.name for host in self.hosts.values() if host.state is AgentState.DOWN)
        return tuple(name for name in names if name in self.configured)

    def _want(self, host: Host) -> None:
        """Have an agent launched at the end of this turn, together with others."""
        self._set(host, AgentState.CONNECTING, None)
        self._to_launch.append(host)

    def _launch(self) -> None:
        hosts, self._to_launch = self._to_launch, []
        if not hosts:
            return
        names = [host.name for host in hosts]
        try:
            launcher = launch_agents(self._layout, names, sys.executable, self._options.linger_s)
            fd = os.pidfd_open(launcher.pid)
        except OSError as error:
            self._room.failed(error)
            for host in hosts:
                host.return_s = self._options.host_return_s
                self._set_down(host, f"its agent cannot be started: {error}")
            return
        self._selector.register(
            fd, selectors.EVENT_READ, partial(self._launched, fd, launcher, hosts)
        )

    def _launched(self, fd: int, launcher: subprocess.Popen[bytes], hosts: list[Host]) -> None:
        self._selector.unregister(fd)
        os.close(fd)
        failed = launcher.wait() != 0
        for host in hosts:
            if self._connect(host):
                continue
            if failed and not host.alive:
                self._room.look()
                host.return_s = self._options.host_return_s
                why = self._room.why or "agents.log says why"
                self._set_down(host, f"its agent cannot be started; {why}")
            else:
                self._attend(host)

    def _connect(self, host: Host) -> bool:
        if not host.connect():
            return False
        assert host.connection is not None
        self._set(host, AgentState.CONNECTING, None)
        self._selector.register(host.connection, selectors.EVENT_READ, partial(self._hear, host))
        return True

    def _attend(self, host: Host) -> None:
        """Take the next step with a host that is not up."""
        match host.state:
            case AgentState.CONNECTING if not self._connect(host):
                if host.alive:
                    host.ring()
                    host.wake_s = time.monotonic() + LOOK_S  # it is about to listen, or to end
                elif host.recorded:
                    self._reap(host, "its agent died")
                elif self._tasks.alive_on(host.name):
                    self._want(host)  # it left for want of work just when work came
                else:
                    self._set(host, AgentState.IDLE, None)
            case AgentState.REAPING:
                self._reap_step(host)
            case AgentState.DOWN:
                self._want(host)

    def _hear(self, host: Host) -> None:
        news = host.receive()
        if news is None:
            assert host.connection is not None
            self._selector.unregister(host.connection)
            host.disconnect()
            self._set(host, AgentState.CONNECTING, 0.0)
            return
        for message in news:
            self._learn(host, message)

    def _learn(self, host: Host, message: Json) -> None:
        if message["op"] == "tasks":
            self._meet(host, message["tasks"])
            return
        task = self._tasks.know(message["task"], host.name)
        if message["op"] == "started":
            self._tasks.started(task, message["at_s"])
        elif message["op"] == "gone":
            if why := message.get("error", ""):  # an agent of an earlier version says none
                self._room.look()
            self._tasks.finish(task, why or "its supervisor ended without a record")
            self._ends += 1
            if self._ends % FORGET_EVERY == 0:
                self._memory.forget_old(self._tasks)

    def _meet(self, host: Host, alive: dict[str, float | None]) -> None:
        """An agent reported its tasks: note them, and launch those that it lacks."""
        self._set(host, AgentState.UP, None)
        host.return_s = self._options.host_return_s
        if host.name in self.configured:
            self._post(HostUp(host.name))
        for name, started_s in alive.items():
            task = self._tasks.know(name, host.name)
            if started_s is not None:
                self._tasks.started(task, started_s)
        missing: dict[str, list[int]] = {}
        for task in self._tasks.alive_on(host.name):
            if task.name in alive:
                missing.setdefault(task.attempt, [])
            elif self._tasks.claimed(task):
                self._tasks.finish(task, "it ended without a record")
            else:
                missing.setdefault(task.attempt, []).append(task.key[2])
        for attempt, ranks in missing.items():
            self._ask(host, attempt, ranks)
            host.tell({"op": "poke", "attempt": attempt})  # orders given while the agent slept

    def _ask(self, host: Host, attempt: str, ranks: list[int]) -> None:
        if ranks:
            host.tell({"op": "start", "attempt": attempt, "ranks": ranks})

    # --- the death of a host -------------------------------------------------------------------

    def _reap(self, host: Host, error: str) -> None:
        host.error = error
        host.since_s = time.monotonic()
        self._set(host, AgentState.REAPING, 0.0)

    def _reap_step(self, host: Host) -> None:
        if self._stops.none_left(host, self._clock.now()):
            self._set_down(host, host.error)
        else:
            host.wake_s = time.monotonic() + REAP_S

    def _set_down(self, host: Host, error: str) -> None:
        host.error = error
        if host.name in self.configured:
            self._set(host, AgentState.DOWN, host.return_s)
            self._post(HostDown(host.name, error))
        else:
            self._set(host, AgentState.IDLE, None)
        for task in self._tasks.alive_on(host.name):
            self._tasks.finish(task, error)
