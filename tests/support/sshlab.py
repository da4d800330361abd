"""Real hosts behind SSH on this machine: network, process and mount namespaces, each with an sshd.

    python -m tests.support.sshlab install     # Debian's packages, as root

The hosts are those of `topmast demo --engines`, and break when they are told to.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from topmast.demo.lab import ssh
from topmast.demo.lab.ssh import command, until
from topmast.model.errors import Unavailable

__all__ = ["SshHost", "SshLab", "missing", "ssh_lab", "until"]

NOWHERE = "02:00:00:00:00:99"


def missing() -> str:
    """Why there can be no hosts here; empty if there can."""
    why = ssh.missing()
    return f"no SSH hosts: {why} (run `make ssh-tools`)" if why else ""


def install() -> None:
    """Install what is missing with apt; no daemon is started."""
    if not ssh.lacking():
        return
    as_root = () if os.geteuid() == 0 else ("sudo", "-n")
    quiet = ("env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get", "-qq", "-y")
    subprocess.run([*as_root, *quiet, "update"], check=True)
    subprocess.run(
        [*as_root, *quiet, "install", "--no-install-recommends", *ssh.PACKAGES],
        check=True,
        stdout=subprocess.DEVNULL,
    )


class SshHost(ssh.SshHost):
    """One host, and the faults that tests make."""

    def kill_sshd(self) -> None:
        """Kill sshd and all its connections; what was started through it goes on."""
        self.run("pkill", "-9", "-x", "sshd")  # within its own namespace
        self._wait_for_sshd()

    def end_runners(self) -> None:
        """Kill what tests left, all at once: one that saw another die would end its task."""
        with suppress(Unavailable):  # there is none
            for name in ("-STOP", "-KILL"):
                self.run("pkill", name, "-f", "/runner-")

    def cut(self) -> None:
        """Nothing goes over its cable, either way, and nobody is told."""
        command("ip", "link", "set", self.link, "nomaster")

    def mend(self) -> None:
        """The cable is in place again."""
        command("ip", "link", "set", self.link, "master", self.bridge)

    def deafen(self) -> None:
        """Lose what the host sends to us; what is sent to it arrives."""
        us = f"{self.address.rpartition('.')[0]}.1"
        self.run("ip", "neigh", "replace", us, "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent")

    def hear(self) -> None:
        """Undo `deafen`."""
        us = f"{self.address.rpartition('.')[0]}.1"
        with suppress(Unavailable):  # it was restarted meanwhile
            self.run("ip", "neigh", "delete", us, "dev", "eth0")

    def reboot(self) -> None:
        """Down and up again."""
        self.halt()
        self.boot()

    def processes(self, word: str) -> list[int]:
        """Those on the host whose command has a word, by the host's own numbers."""
        lines = self.run("ps", "-eo", "pid=,stat=,args=").splitlines()
        rows = [line.split(None, 2) for line in lines]
        return [int(r[0]) for r in rows if len(r) == 3 and word in r[2] and r[1][0] not in "ZX"]


SshLab = ssh.SshLab[SshHost]


@contextmanager
def ssh_lab(
    folder: Path, *names: str, own_pids: bool = True, own_home: bool = True
) -> Iterator[SshLab]:
    """Hosts for the time of a ``with``."""
    lab = SshLab(folder, SshHost, names or ("ssh0", "ssh1", "ssh2"), own_pids, own_home)
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
