"""A database, and two servers that share it, each behind a cable of its own that can be cut."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from tests.support import postgresql
from tests.support.live import end_agents

NAMES = ("a", "b")
DATABASE = "10.77.0.1"
"""Its address, and that of the region apart, for both servers."""
LINK_PORT = 6279
HOSTS = 3
CLONE_NEWNET = 0x40000000
PATIENCE_S = 90.0
_libc = ctypes.CDLL(None, use_errno=True)


def sh(*words: str) -> None:
    """Run a command that has to succeed."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"


class Server:
    """One server: at most one process at a time, in a network namespace of its own."""

    def __init__(self, system: "System", name: str, port: int, mutant: str) -> None:
        self.name = name
        self.port = port
        self.log = system.folder / f"{name}.log"
        self.space = f"tmf{os.getpid()}{name}"
        self.cable = f"tmf{os.getpid() % 10_000}{name}"
        self.frozen = False
        self._system = system
        self._mutant = mutant
        self._process: subprocess.Popen[bytes] | None = None
        number = NAMES.index(name) + 1
        self.near, self.far = f"10.77.{number}.1", f"10.77.{number}.2"
        self.link = f"{self.far}:{LINK_PORT}"
        self.callers = ThreadPoolExecutor(8, initializer=self._enter)

    def plug_in(self) -> None:
        """Make the namespace and its cable."""
        sh("ip", "netns", "add", self.space)
        sh(
            "ip",
            "link",
            "add",
            self.cable,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            self.space,
        )
        for address in (f"{self.near}/24", f"{DATABASE}/32"):
            sh("ip", "addr", "add", address, "dev", self.cable)
        sh("ip", "link", "set", self.cable, "up")
        for words in (
            ("addr", "add", f"{self.far}/24", "dev", "eth0"), ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"), ("route", "add", "default", "via", self.near),
        ):  # fmt: skip
            sh("ip", "-n", self.space, *words)

    def unplug(self) -> None:
        """Remove them."""
        self.callers.shutdown(wait=False, cancel_futures=True)
        subprocess.run(["ip", "link", "del", self.cable], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", self.space], capture_output=True, check=False)

    def cut(self, *, near: bool) -> None:
        """Take the cable out, at its near or its far end."""
        words = [self.cable] if near else ["eth0"]
        sh("ip", *([] if near else ["-n", self.space]), "link", "set", *words, "down")

    def mend(self) -> None:
        """Put it back."""
        sh("ip", "link", "set", self.cable, "up")
        sh("ip", "-n", self.space, "link", "set", "eth0", "up")
        sh("ip", "-n", self.space, "route", "replace", "default", "via", self.near)

    def _enter(self) -> None:
        with Path(f"/run/netns/{self.space}").open("rb") as file:
            assert _libc.setns(file.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())

    # --- its process ----------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The process that runs, or ran last."""
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Begin to start."""
        system = self._system
        words = [
            "ip", "netns", "exec", self.space, sys.executable, "-m", "tests.failover.program",
            str(system.folder), self._mutant or "-", "up", "--standby", "--role", "queue",
            "--store", system.database.url_for(DATABASE), "--state", str(system.state),
            "--fleet", str(system.fleet), "--port", str(self.port), "--link", self.link,
            "--placer", f"west=http://{system.placer}", "--token-file", str(system.token),
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """SIGKILL; a halted process ends too."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.frozen = False

    def freeze(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)
        self.frozen = True

    def is_halted(self) -> bool:
        """Whether it was stopped, by whatever."""
        text = Path(f"/proc/{self.pid}/stat").read_text()
        return text.rpartition(")")[2].split()[0] == "T"

    def thaw(self) -> None:
        """SIGCONT."""
        with suppress(ProcessLookupError):  # another leader may have killed it
            os.kill(self.pid, signal.SIGCONT)
        self.frozen = False

    def halt_at(self, where: str) -> None:
        """Have it halt itself at one of the places of `tests.failover.program`."""
        (self._system.folder / f"{where}.{self.pid}").touch()

    # --- requests -------------------------------------------------------------------------------

    def ask(
        self, method: str, path: str, body: Any = None, key: str = "", timeout_s: float = 1.0
    ) -> tuple[int, Any]:
        """Status and answer; 0 where there is none."""
        return self.callers.submit(self._ask, method, path, body, key, timeout_s).result()

    def _ask(
        self, method: str, path: str, body: Any, key: str, timeout_s: float
    ) -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        data = None if body is None else json.dumps(body)
        try:
            connection.request(method, f"/api/v1{path}", data, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, HTTPException, ValueError):
            return 0, None
        finally:
            connection.close()

    def health(self) -> dict[str, Any]:
        """What it says of itself; empty if it does not answer."""
        status, found = self.ask("GET", "/health", timeout_s=3.0)
        return dict(found) if status == 200 else {}

    def epoch(self) -> int:
        """Of its leadership; 0 if it does not lead."""
        found = self.health()
        return int(found["epoch"]) if found.get("role") == "leader" else 0


class System:
    """The whole of it, in one folder."""

    def __init__(self, folder: Path, mutant: str, first_port: int) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.apart = folder / "west"
        """The folder of the region with a process of its own."""
        self.apart.mkdir()
        self.placer = f"{DATABASE}:{first_port}"
        self.token = folder / "token"
        self.token.touch(0o600)
        self.token.write_text("a-secret-of-links-for-tests\n")
        self.fleet = folder / "fleet.yaml"
        self.fleet.write_text(json.dumps(FLEET))
        self._mutant = mutant
        self._region: subprocess.Popen[bytes] | None = None
        self.database = postgresql.Listening(folder / "pg", "10.77.0.0/16")
        self.servers = {
            name: Server(self, name, first_port + n, mutant) for n, name in enumerate(NAMES)
        }

    def start(self) -> None:
        """Start the database, the region apart, the first leader, and its standby."""
        for server in self.servers.values():
            server.plug_in()
        self.database.start()
        self._start_region()
        for server in self.servers.values():
            server.start()
            self.wait_for(lambda: self.leader() is not None, "no server leads")
        self.wait_whole()
        self.wait_for(lambda: len(self.hosts()) == HOSTS, "the region apart is not linked")

    def _start_region(self) -> None:
        host, port = self.placer.split(":")
        queue = ",".join(f"http://{server.link}" for server in self.servers.values())
        words = [
            sys.executable, "-m", "tests.failover.program", str(self.apart), self._mutant or "-",
            "up", "--role", "placer", "--region", "west", "--host", host, "--port", port,
            "--queue", queue, "--state", str(self.apart / "state"), "--token-file", str(self.token),
        ]  # fmt: skip
        with (self.folder / "west.log").open("ab") as log:
            self._region = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def hosts(self) -> list[Any]:
        """All that the leader knows."""
        leader = self.leader()
        status, found = (0, {}) if leader is None else leader.ask("GET", "/hosts")
        return list(found["hosts"]) if status == 200 else []

    def end(self) -> None:
        """End everything, tasks of the engine too."""
        for server in self.servers.values():
            server.kill()
        if self._region is not None:
            self._region.kill()
            self._region.wait()
        for state in (self.state, self.apart / "state"):
            end_agents(state)
        try:
            self.database.stop("immediate")
        finally:
            for server in self.servers.values():
                server.unplug()

    def leader(self) -> Server | None:
        """The server that leads."""
        return next((one for one in self.servers.values() if one.epoch()), None)

    def other(self, server: Server) -> Server:
        """The other one."""
        return next(one for one in self.servers.values() if one is not server)

    def wait_whole(self) -> None:
        """Until one server leads, and the other one follows it."""
        self.wait_for(self.is_whole, "no leader with a standby")

    def is_whole(self) -> bool:
        """Whether one server leads, and the other one follows it."""
        found = [server.health() for server in self.servers.values()]
        roles = sorted(str(health.get("role")) for health in found)
        return roles == ["leader", "standby"] and len({health["epoch"] for health in found}) == 1

    def wait_for(self, true: Callable[[], bool], what: str) -> None:
        """Wait until something is so; asserts that it comes."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < deadline_s, what + "\n" + self.tails()
            time.sleep(0.1)

    def tails(self) -> str:
        """The ends of the logs."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text()[-3000:]}" for log in logs)


FLEET = {
    "regions": {
        "east": {
            "clusters": {"east-1": {"hosts": [{"count": 2, "gpu": "H100", "gpus": 8, "cpus": 64}]}}
        },
        "west": {
            "clusters": {"west-1": {"hosts": [{"count": 1, "gpu": "L4", "gpus": 8, "cpus": 64}]}}
        },
    },
    "tenants": {"default": {"quota": {"H100": 16, "L4": 8}}},
}
