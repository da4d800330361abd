"""Real hosts behind SSH on this machine: network, process and mount namespaces, each with an sshd.

    python -m tests.support.sshlab install     # Debian's packages, as root

Hosts are joined by a bridge. Each has its own host key, home folder and boot id; processes on a
host see those of that host alone, so that a reboot ends exactly them.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = ("openssh-server", "openssh-client", "iproute2")
PROGRAMS = ("sshd", "ssh-keygen", "ip", "unshare", "nsenter")
PATIENCE_S = 30.0
NUMBERS = itertools.count()
NOWHERE = "02:00:00:00:00:99"
INIT = """
mount --make-rprivate / && mount --bind "$1/home" "$HOME" && mount --bind "$1/run" /run/sshd &&
mount --bind "$1/boot_id" /proc/sys/kernel/random/boot_id && ip link set lo up || exit 1
echo ready; exec >"$1/log" 2>&1
trap : TERM HUP
while :; do sleep 100000 & wait; done
"""
"""The first process of a host: it waits for whatever loses its parent."""


def missing() -> str:
    """Why there can be no hosts here; empty if there can."""
    lacking = [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]
    if lacking:
        return f"no SSH hosts: {', '.join(lacking)} not found (run `make ssh-tools`)"
    if os.geteuid() != 0:
        return "no SSH hosts: namespaces are made only by root"
    tried = subprocess.run(["unshare", "--net", "--pid", "--fork", "--mount", "true"], check=False)
    return "no SSH hosts: namespaces are not permitted" if tried.returncode else ""


def install() -> None:
    """Install what is missing with apt; no daemon is started."""
    if all(shutil.which(program, path=_path()) for program in PROGRAMS):
        return
    as_root = () if os.geteuid() == 0 else ("sudo", "-n")
    quiet = ("env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get", "-qq", "-y")
    subprocess.run([*as_root, *quiet, "update"], check=True)
    subprocess.run(
        [*as_root, *quiet, "install", "--no-install-recommends", *PACKAGES],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _run(*argv: str) -> str:
    env = {**os.environ, "PATH": _path()}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


@dataclass
class SshHost:
    """One host: what makes it and what breaks it."""

    folder: Path
    name: str
    address: str
    bridge: str
    link: str
    """Our end of its cable, a port of the bridge."""
    own_pids: bool = True
    """Whether it has processes of its own; if not, it cannot be powered off or lose its sshd."""
    init: subprocess.Popen[bytes] | None = None
    sshd: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """Its keys and folders, which survive reboots."""
        for name in ("home", "run"):
            (self.folder / name).mkdir(parents=True, mode=0o755)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.folder}/host_key")
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
             "sh", "-c", INIT, "sh", str(self.folder)],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self.init.stdout is not None
        if self.init.stdout.readline() != b"ready\n":
            raise RuntimeError(f"host {self.name} does not start")
        _run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0",
             "address", self.card, "netns", str(self.pid))  # fmt: skip
        _run("ip", "link", "set", self.link, "master", self.bridge, "up")
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
        return _run("nsenter", "--all", "--target", str(self.pid), "--", *argv)

    def start_sshd(self) -> None:
        """Let it be logged in to, if it is not."""
        if self._listens():
            return
        sshd = shutil.which("sshd", path=_path())
        self.sshd = subprocess.Popen(
            ["nsenter", "--all", "--target", str(self.pid), "--", str(sshd), "-D", "-f",
             f"{self.folder}/sshd_config", "-E", f"{self.folder}/sshd.log"],
            env={**os.environ, "PATH": _path()},
        )  # fmt: skip
        until(self._listens, f"no sshd on {self.name}")

    def _listens(self) -> bool:
        return ":22 " in self.run("ss", "-Hltn")

    def kill_sshd(self) -> None:
        """Kill sshd and all its connections; what was started through it goes on."""
        self.run("pkill", "-9", "-x", "sshd")  # within its own namespace
        self._wait_for_sshd()

    def _wait_for_sshd(self) -> None:
        if self.sshd is not None:
            self.sshd.send_signal(signal.SIGCONT)  # nsenter stops when its child is stopped
            self.sshd.wait()
            self.sshd = None

    def end_runners(self) -> None:
        """Kill what tests left."""
        with suppress(RuntimeError):  # there is none
            self.run("pkill", "-9", "-f", "/runner-")

    def cut(self) -> None:
        """Nothing goes over its cable, either way, and nobody is told."""
        _run("ip", "link", "set", self.link, "nomaster")

    def mend(self) -> None:
        """The cable is in place again."""
        _run("ip", "link", "set", self.link, "master", self.bridge)

    def deafen(self) -> None:
        """Lose what the host sends to us; what is sent to it arrives."""
        us = f"{self.address.rpartition('.')[0]}.1"
        self.run("ip", "neigh", "replace", us, "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent")

    def hear(self) -> None:
        """Undo `deafen`."""
        us = f"{self.address.rpartition('.')[0]}.1"
        with suppress(RuntimeError):  # it was restarted meanwhile
            self.run("ip", "neigh", "delete", us, "dev", "eth0")

    def halt(self) -> None:
        """Power off."""
        if self.init is not None:
            there = [self.pid]
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
        with suppress(RuntimeError):
            _run("ip", "link", "delete", self.link)

    def reboot(self) -> None:
        """Power off and on."""
        self.halt()
        self.boot()

    def processes(self, word: str) -> list[int]:
        """Those on the host whose command has a word, by the host's own numbers."""
        lines = self.run("ps", "-eo", "pid=,stat=,args=").splitlines()
        rows = [line.split(None, 2) for line in lines]
        return [int(r[0]) for r in rows if len(r) == 3 and word in r[2] and r[1][0] not in "ZX"]


@dataclass
class SshLab:
    """Some hosts, a key that they accept, and their keys."""

    folder: Path
    names: Sequence[str] = ("ssh0", "ssh1", "ssh2")
    own_pids: bool = True
    hosts: dict[str, SshHost] = field(default_factory=dict)

    def start(self) -> None:
        """Start all hosts."""
        mark = f"tm{os.getpid() % 100_000}{chr(ord('a') + next(NUMBERS) % 26)}"
        net = next(net for net in _nets() if f" {net}.1/" not in _run("ip", "address"))
        self._bridge = f"{mark}br"
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        _run("ip", "address", "add", f"{net}.1/24", "dev", self._bridge)
        _run("ip", "link", "set", self._bridge, "up")
        Path("/run/sshd").mkdir(exist_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.folder}/key")
        for index, name in enumerate(self.names):
            host = SshHost(
                self.folder / name, name, f"{net}.{10 + index}", self._bridge, f"{mark}h{index}",
                self.own_pids,
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
        with suppress(RuntimeError):
            _run("ip", "link", "delete", self._bridge)

    @property
    def options(self) -> dict[str, str]:
        """Of a cluster in a fleet file."""
        return {
            "user": "root",
            "identity": f"{self.folder}/key",
            "known_hosts": f"{self.folder}/known_hosts",
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
    """Wait until something is true; the test fails if it does not become so."""
    end_s = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > end_s:
            raise AssertionError(trouble)
        time.sleep(0.05)


@contextmanager
def ssh_lab(folder: Path, *names: str, own_pids: bool = True) -> Iterator[SshLab]:
    """Hosts for the time of a ``with``."""
    lab = SshLab(folder, names or ("ssh0", "ssh1", "ssh2"), own_pids)
    try:
        lab.start()
        yield lab
    finally:
        lab.stop()


def main(arguments: Sequence[str]) -> int:
    """``install``."""
    if list(arguments) != ["install"]:
        print(__doc__, file=sys.stderr)
        return 2
    install()
    print(missing() or "SSH hosts can be made here")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
