"""Real hosts behind SSH on this machine: network, process and mount namespaces, each with an sshd.

Hosts are joined by a bridge. Each has its own host key, home folder and boot id; processes on a
host see those of that host alone, so that a reboot ends exactly them. Only root can make them.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from topmast.model.errors import Unavailable

PACKAGES = ("openssh-server", "openssh-client", "iproute2")
"""Of Debian."""
PROGRAMS = ("sshd", "ssh-keygen", "ip", "unshare", "nsenter")
PATIENCE_S = 30.0
NUMBERS = itertools.count()
INIT = """
mount --make-rprivate / && mount --bind "$1/home" "$2" && mount --bind "$1/run" /run/sshd &&
mount --bind "$1/boot_id" /proc/sys/kernel/random/boot_id && ip link set lo up || exit 1
echo ready; exec >"$1/log" 2>&1
trap : TERM HUP
while :; do sleep 100000 & wait; done
"""
"""The first process of a host: it waits for whatever loses its parent."""


def missing() -> str:
    """Why there can be no hosts here; empty if there can."""
    if programs := lacking():
        return f"{', '.join(programs)} not found"
    if os.geteuid() != 0:
        return "namespaces are made only by root"
    tried = subprocess.run(["unshare", "--net", "--pid", "--fork", "--mount", "true"], check=False)
    return "namespaces are not permitted" if tried.returncode else ""


def lacking() -> list[str]:
    """The programs that hosts need and that are not installed."""
    return [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]


def _path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def command(*argv: str) -> str:
    """What a command prints. Raises Unavailable with what it complains of."""
    env = {**os.environ, "PATH": _path()}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


@dataclass
class SshHost:
    """One host."""

    folder: Path
    name: str
    address: str
    bridge: str
    link: str
    """Our end of its cable, a port of the bridge."""
    home: str
    """The folder that each host has of its own, at the same path."""
    own_pids: bool = True
    """Whether it has processes of its own; if not, it cannot be powered off or lose its sshd."""
    init: subprocess.Popen[bytes] | None = None
    sshd: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """Its keys and folders, which survive reboots."""
        for name in ("home", "run"):
            (self.folder / name).mkdir(parents=True, mode=0o755)
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.folder}/host_key")
        (self.folder / "sshd_config").write_text(
            f"HostKey {self.folder}/host_key\n"
            f"AuthorizedKeysFile {self.folder.parent}/key.pub\n"
            "PermitRootLogin prohibit-password\nPasswordAuthentication no\nStrictModes no\n"
            "UsePAM no\nPidFile none\nMaxStartups 100\n"
        )

    @property
    def known(self) -> str:
        """Its line of known_hosts."""
        key = (self.folder / "host_key.pub").read_text().split()
        return f"{self.address} {key[0]} {key[1]}\n"

    def boot(self) -> None:
        """Start it: a new boot id, nothing running but sshd."""
        (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        env = {**os.environ, "PATH": _path()}
        pids = ["--pid", "--mount-proc"] if self.own_pids else []
        self.init = subprocess.Popen(
            ["unshare", "--net", "--mount", "--fork", "--kill-child", *pids,
             "sh", "-c", INIT, "sh", str(self.folder), self.home],
            env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        assert self.init.stdout is not None
        if self.init.stdout.readline() != b"ready\n":
            raise Unavailable(f"host {self.name} does not start")
        command("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0",
                "address", self.card, "netns", str(self.pid))  # fmt: skip
        command("ip", "link", "set", self.link, "master", self.bridge, "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        self.start_sshd()

    @property
    def card(self) -> str:
        """The address of its network card, the same after a restart."""
        return "02:00:" + ":".join(f"{int(part):02x}" for part in self.address.split("."))

    @property
    def pid(self) -> int:
        """Of its first process, as we see it."""
        assert self.init is not None
        children = Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children").read_text()
        return int(children.split()[0])

    def run(self, *argv: str) -> str:
        """What a command prints on the host."""
        return command("nsenter", "--all", "--target", str(self.pid), "--", *argv)

    def start_sshd(self) -> None:
        """Let it be logged in to, if it is not."""
        if self._listens():
            return
        sshd = shutil.which("sshd", path=_path())
        self.sshd = subprocess.Popen(
            ["nsenter", "--all", "--target", str(self.pid), "--", str(sshd), "-D", "-f",
             f"{self.folder}/sshd_config", "-E", f"{self.folder}/sshd.log"],
            env={**os.environ, "PATH": _path()}, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        until(self._listens, f"no sshd on {self.name}")

    def _listens(self) -> bool:
        return ":22 " in self.run("ss", "-Hltn")

    def _wait_for_sshd(self) -> None:
        if self.sshd is not None:
            self.sshd.send_signal(signal.SIGCONT)  # nsenter stops when its child is stopped
            self.sshd.wait()
            self.sshd = None

    def power_off(self) -> None:
        """As when the power fails: what is connected to it is not told."""
        with suppress(Unavailable):
            command("ip", "link", "delete", self.link)
        self.halt()

    def halt(self) -> None:
        """End all processes; the kernel closes their connections."""
        if self.init is not None:
            there = [self.pid] if self.init.poll() is None else []
            if not self.own_pids:
                there = [pid for pid in _pids() if _net(pid) == _net(self.pid)]
            for pid in there:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._wait_for_sshd()  # as long as nsenter stands still, the first process cannot end
            self.init.wait()
            assert self.init.stdout is not None
            self.init.stdout.close()
            self.init = None
        with suppress(Unavailable):
            command("ip", "link", "delete", self.link)


H = TypeVar("H", bound=SshHost)


@dataclass
class SshLab(Generic[H]):
    """Some hosts, a key that they accept, and their keys."""

    folder: Path
    make_host: Callable[..., H]
    names: Sequence[str] = ("ssh0", "ssh1", "ssh2")
    own_pids: bool = True
    own_home: bool = True
    """Whether the home folder of the account is another on each host. If not, only the folder in
    which Topmast keeps its files is: what users installed in their home is there.
    """
    hosts: dict[str, H] = field(default_factory=dict)
    _bridge: str = ""

    def start(self) -> None:
        """Start all hosts."""
        mark = f"tm{os.getpid() % 100_000}{chr(ord('a') + next(NUMBERS) % 26)}"
        net = next(net for net in _nets() if f" {net}.1/" not in command("ip", "address"))
        self._bridge = f"{mark}br"
        command("ip", "link", "add", self._bridge, "type", "bridge")
        command("ip", "address", "add", f"{net}.1/24", "dev", self._bridge)
        command("ip", "link", "set", self._bridge, "up")
        Path("/run/sshd").mkdir(exist_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.folder}/key")
        Path(self._home).mkdir(exist_ok=True)
        for index, name in enumerate(self.names):
            host = self.make_host(
                self.folder / name, name, f"{net}.{10 + index}", self._bridge, f"{mark}h{index}",
                self._home, self.own_pids,
            )  # fmt: skip
            self.hosts[name] = host
            host.make()
            host.boot()
        known = "".join(host.known for host in self.hosts.values())
        (self.folder / "known_hosts").write_text(known)

    def stop(self) -> None:
        """End everything; nothing stays behind."""
        for host in self.hosts.values():
            host.halt()
        if self._bridge:
            with suppress(Unavailable):
                command("ip", "link", "delete", self._bridge)

    @property
    def _home(self) -> str:
        return str(Path.home() if self.own_home else self.folder / "home")

    @property
    def options(self) -> dict[str, str]:
        """Of a cluster in a fleet file."""
        return {
            "user": "root",
            "identity": f"{self.folder}/key",
            "known_hosts": f"{self.folder}/known_hosts",
            **({} if self.own_home else {"folder": self._home}),
            **{f"address.{host.name}": host.address for host in self.hosts.values()},
        }


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _net(pid: int) -> str:
    with suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    return f"none of {pid}"


def _nets() -> Iterator[str]:
    start = os.getpid() % 200
    return (f"10.213.{(start + step) % 250 + 1}" for step in range(250))


def until(true: Callable[[], bool], trouble: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until something is true. Raises Unavailable."""
    end_s = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > end_s:
            raise Unavailable(trouble)
        time.sleep(0.05)
