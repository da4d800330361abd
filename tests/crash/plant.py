"""The servers of a crash test and the hosts below them, and how each of them is hurt."""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.crash.plan import Fault, Nemesis
from tests.crash.verdict import Hurt
from tests.crash.workload import FLEET, SETTINGS
from tests.support.live import Server, Tuning, end_agents, free_ports, hosts, tasks
from topmast.adapters.engines.local import files, processes

START_PATIENCE_S = 120.0
"""On a machine that others use as well."""
SNAPSHOT_RECORDS = 400
"""A snapshot every few seconds, so that recovery from one is tested too."""
HOST_RETURN_S = 2.0
HOSTS = "engines/*/hosts/*"
FULL_MARGIN_S = 5.0
DISK_MIB = 256
FILLER_BYTES = 1 << 20
ONE, APART = ("server",), ("queue", "east", "west")
"""The servers of each topology; clients talk to the first."""


@dataclass(frozen=True)
class Agent:
    """The process that is a host, and what it has forked."""

    host: str
    pid: int

    @property
    def supervisors(self) -> list[int]:
        """One for each task."""
        return processes.children(self.pid)

    @property
    def tasks(self) -> list[int]:
        """All processes of the tasks."""
        return [pid for parent in self.supervisors for pid in processes.descendants(parent)]


class Disk:
    """A small disk in memory for what servers write, that can be filled; without the right to mount, a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        command = [
            "mount",
            "-t",
            "tmpfs",
            "-o",
            f"size={DISK_MIB}m,mode=0700",
            "tmpfs",
            str(folder),
        ]
        self.mounted = os.geteuid() == 0 and not subprocess.run(
            command, capture_output=True, check=False
        ).returncode  # fmt: skip
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave no byte; again and again, for others remove files."""
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while file.write(bytes(FILLER_BYTES)):
                pass

    def clear(self) -> None:
        """There is room again."""
        self._filler.unlink()

    def unmount(self) -> None:
        """Keep what is on it, for those who look for what went wrong, in a folder beside."""
        if self.mounted:
            shutil.copytree(
                self.folder, self.folder.with_name("kept"), symlinks=True, ignore=_sockets
            )
            subprocess.run(["umount", "-l", self.folder], check=True)
            self.mounted = False


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_socket()]


class Plant:
    """Everything that runs, in one folder."""

    def __init__(self, folder: Path, topology: Sequence[str]) -> None:
        self.tuning = Tuning(SNAPSHOT_RECORDS, 0.0, HOST_RETURN_S)
        self.disk = Disk(folder / "disk")
        self.servers = _servers(folder, self.disk.folder, topology, self.tuning)
        self.front = self.servers[topology[0]]
        self.hurts: list[Hurt] = []
        self.whole = False
        """Whether nothing is dead or frozen, as far as the test has a hand in it."""
        self.filled_at_s = -FULL_MARGIN_S
        self._thaws: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to start the servers that do not run."""
        for server in self.servers.values():
            if not server.running:
                server.start()

    def wait_ready(self) -> None:
        """All servers answer."""
        for server in self.servers.values():
            if not server.url:
                server.wait_ready(START_PATIENCE_S)
        self.whole = not any(thaw.is_alive() for thaw in self._thaws)

    def kill(self, names: Sequence[str]) -> None:
        """SIGKILL to some servers at once."""
        self.whole = False
        for name in names:
            self.servers[name].kill()

    def ended_by_themselves(self, expected: Sequence[str]) -> list[str]:
        """Words about servers that are not there, though nobody told them to go."""
        return [
            f"{name} ended by itself:\n{server.log_tail()}"
            for name, server in self.servers.items()
            if not server.running and name not in expected and not self.was_full
        ]

    def end(self) -> None:
        """Leave nothing running."""
        for thaw in self._thaws:
            thaw.join()
        try:
            for server in self.servers.values():
                if server.running:
                    server.kill()
            for server in self.servers.values():
                end_agents(server.state)
        finally:
            self.disk.unmount()

    def left_running(self) -> list[int]:
        """Processes of tasks."""
        return [pid for server in self.servers.values() for pid in tasks(server.state)]

    def agents(self) -> list[Agent]:
        """The hosts that are up, by name."""
        found = []
        for server in self.servers.values():
            alive = set(hosts(server.state))
            for file in server.state.glob("engines/*/hosts/*/agent.json"):
                pid = (files.read_json(file) or {}).get("pid")
                if pid in alive:
                    found.append(Agent(file.parent.name, pid))
        return sorted(found, key=lambda agent: agent.host)

    # --- faults -------------------------------------------------------------------------------------

    def strike(self, nemesis: Nemesis) -> bool:
        """Do what the nemesis says to whatever is there; whether there was anything."""
        if nemesis.fault is Fault.FREEZE_SERVER:
            running = [server.pid for server in self.servers.values() if server.running]
            pids = running[int(nemesis.pick * len(running)) :][:1]
            return self._freeze(pids, nemesis.for_s)
        if nemesis.fault is Fault.FILL_DISK:
            return self._fill_disk(nemesis.for_s)
        agents = self.agents()
        if not agents:
            return False
        chosen = [agents[int(nemesis.pick * len(agents))]]
        if nemesis.fault is Fault.EVERYTHING:
            chosen = agents
        victims = [pid for agent in chosen for pid in _victims(nemesis.fault, agent)]
        if nemesis.fault in (Fault.FREEZE_AGENTS, Fault.FREEZE_SUPERVISORS):
            return self._freeze(victims, nemesis.for_s)
        for agent in chosen:
            self.hurts.append(Hurt(agent.host, time.monotonic()))
        processes.send(victims, signal.SIGKILL)
        return bool(victims)

    def _freeze(self, pids: Sequence[int], for_s: float) -> bool:
        """SIGSTOP now, SIGCONT later, to the same processes and to none that has their numbers then."""
        self.whole = False
        handles = []
        for pid in pids:
            with suppress(OSError):
                handles.append(os.pidfd_open(pid))
        for handle in handles:
            with suppress(OSError):
                signal.pidfd_send_signal(handle, signal.SIGSTOP)

        def thaw() -> None:
            time.sleep(for_s)
            for handle in handles:
                with suppress(OSError):
                    signal.pidfd_send_signal(handle, signal.SIGCONT)
                os.close(handle)

        self._thaws.append(threading.Thread(target=thaw))
        self._thaws[-1].start()
        return bool(handles)

    def _fill_disk(self, for_s: float) -> bool:
        """For a while nothing can be written: servers end by themselves, and launches fail."""
        if not self.disk.mounted:
            return False
        self.whole = False
        hosts = [file.name for s in self.servers.values() for file in s.state.glob(HOSTS)]
        until_s = time.monotonic() + for_s
        while time.monotonic() < until_s:
            self.filled_at_s = time.monotonic()
            self.disk.fill()
            self.hurts += [Hurt(host, time.monotonic(), disk=True) for host in hosts]
            time.sleep(0.1)
        self.disk.clear()
        self.hurts += [Hurt(host, time.monotonic(), disk=True) for host in hosts]
        self.filled_at_s = time.monotonic()
        return True

    @property
    def was_full(self) -> bool:
        """Whether servers and clients may still suffer from a full disk."""
        return time.monotonic() < self.filled_at_s + FULL_MARGIN_S

    def thaw(self) -> None:
        """Wait until nothing is frozen any more."""
        for thaw in self._thaws:
            thaw.join()
        self._thaws.clear()

    def killer(self) -> Callable[[], None]:
        """What kills the server that clients talk to now, and never a later one."""
        kill = self.front.killer()

        def act() -> None:
            self.whole = False
            kill()

        return act


def _victims(fault: Fault, agent: Agent) -> list[int]:
    """Who of a host is meant."""
    match fault:
        case Fault.AGENT | Fault.EVERYTHING | Fault.FREEZE_AGENTS:
            return [agent.pid]
        case Fault.SUPERVISORS | Fault.FREEZE_SUPERVISORS:
            return agent.supervisors
        case Fault.TASKS:
            return agent.tasks
    return [agent.pid, *agent.supervisors, *agent.tasks]


def _servers(
    folder: Path, disk: Path, topology: Sequence[str], tuning: Tuning
) -> dict[str, Server]:
    fleet = folder / "fleet.yaml"
    fleet.write_text(FLEET, encoding="utf-8")
    shared = ["--checkpoints", str(folder / "checkpoints")]
    if len(topology) == 1:
        return {topology[0]: Server(disk / topology[0], fleet, SETTINGS, tuning, shared)}
    ports = dict(zip(topology, free_ports(len(topology)), strict=True))
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    queue, *regions = topology
    names = [f"--placer={region}={urls[region]}" for region in regions]
    servers = {
        queue: Server(
            disk / queue, fleet, SETTINGS, tuning, ["--role", "queue", *names, *shared],
            ports[queue],
        )
    }  # fmt: skip
    for region in regions:
        arguments = ["--role", "placer", "--region", region, "--queue", urls[queue], *shared]
        servers[region] = Server(disk / region, None, SETTINGS, tuning, arguments, ports[region])
    return servers
