"""Rounds of chaos on hosts behind SSH: see `tests.crash.far`.

    python -m tests.crash.ssh --rounds 100 --seed 7

Cables are cut, both ways and in one; sshd is killed, or stands still; hosts are restarted; runners
are killed or stand still; Topmast is started anew.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.crash.far import LEASE_S, Chaos, Mend, nothing, run
from tests.support.sshlab import SshHost, SshLab, missing, ssh_lab
from topmast.adapters.engines.far.ssh import SshEngine, SshOptions
from topmast.adapters.engines.registry import read_options
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.ports import Engine, Site


@dataclass
class SshChaos(Chaos):
    """Three hosts."""

    engine_type = SshEngine
    lab: SshLab | None = None
    faults: ClassVar = {
        "cable": ("cut", "cut_for_long", "cut_often", "one_way"),
        "sshd": ("sshd_killed", "sshd_stands_still", "connections_killed"),
        "host": ("restarted",),
        "topmast": ("topmast_anew",),
        "runner": ("runner_killed", "runner_stands_still"),
    }

    @property
    def hosts(self) -> Sequence[str]:
        return self._lab.names

    @property
    def _lab(self) -> SshLab:
        assert self.lab is not None
        return self.lab

    def make(self, folder: Path, site: Site) -> Engine:
        given = {
            **self._lab.options, "poll_s": "0.3", "lease_s": str(LEASE_S), "command_s": "4",
            "connect_s": "4",
        }  # fmt: skip
        options = read_options(given, SshOptions, engine="ssh", field="options")
        hosts = tuple(HostSpec(name, "H100", 8) for name in self.hosts)
        return SshEngine(ClusterSpec("lab", hosts, "ssh", given), folder, site, options)

    def _some(self) -> SshHost:
        return self._lab.hosts[self.random.choice(self.hosts)]

    # --- faults ---------------------------------------------------------------------------------

    def cut(self) -> Mend:
        host = self._some()
        host.cut()
        return host.mend

    def cut_for_long(self) -> Mend:
        """Longer than the lease."""
        host = self._some()
        host.cut()

        def mend() -> None:
            time.sleep(LEASE_S + 2.0)
            host.mend()

        return mend

    def cut_often(self) -> Mend:
        host = self._some()
        for _ in range(3):
            host.cut()
            time.sleep(self.random.uniform(0.0, 1.0))
            host.mend()
            time.sleep(self.random.uniform(0.0, 1.0))
        return nothing

    def one_way(self) -> Mend:
        """What the host sends is lost; what is sent to it arrives."""
        host = self._some()
        host.deafen()
        return host.hear

    def sshd_killed(self) -> Mend:
        host = self._some()
        host.kill_sshd()
        return host.start_sshd

    def connections_killed(self) -> Mend:
        """The server of each connection is killed, and its listener lives."""
        host = self._some()
        for pid in host.processes("sshd: root@"):
            host.run("kill", "-9", str(pid))
        return nothing

    def sshd_stands_still(self) -> Mend:
        host = self._some()
        host.run("pkill", "-STOP", "-x", "sshd")

        def mend() -> None:
            host.run("pkill", "-CONT", "-x", "sshd")

        return mend

    def restarted(self) -> Mend:
        self._some().reboot()
        return nothing


def main(arguments: list[str]) -> int:
    """Run; see above."""
    return run(
        arguments, __doc__, missing, ssh_lab,
        lambda lab, folder, random: SshChaos(folder, random, lab=lab),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
