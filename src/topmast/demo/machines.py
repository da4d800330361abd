"""Where the demo's hosts are: processes of the server, or also a Slurm cluster and SSH hosts."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from topmast.demo.lab import slurm, ssh
from topmast.demo.lab.slurm import SlurmCluster
from topmast.demo.lab.ssh import SshHost, SshLab
from topmast.model.errors import InvalidInput

Note = Callable[[str], None]

LEASE_S = 15
"""So short, because the demo waits until a host that was powered off is given up."""
SOCKET_BYTES = 107
"""The longest path that a socket can have."""
SLURM_CLUSTERS = ("east-1", "east-2")
"""These two share one Slurm cluster, as two partitions of a site might."""
SSH_CLUSTER = "north-1"


class Machines:
    """Processes of the server, as `topmast up` starts them by itself."""

    def __init__(self) -> None:
        self.engines: dict[str, str] = {}
        """The engine by cluster, where it is not the local one."""

    def start(self, folder: Path, note: Note) -> Path:
        """Make the hosts; the fleet file that names them. Raises InvalidInput, Unavailable."""
        return Path(__file__).with_name("fleet.yaml")

    def halt(self, host: str) -> bool:
        """Power a host off, with all that runs there. False: it is a process of the server."""
        return False

    def batch_jobs(self) -> tuple[str, ...]:
        """The names of all batch jobs that Slurm knows, by its own word."""
        return ()

    def stop(self) -> None:
        """End the hosts and all that runs on them."""


class RealMachines(Machines):
    """The region `east` is a Slurm cluster, `north` hosts behind SSH, `west` as it always is."""

    def __init__(self) -> None:
        super().__init__()
        check_slurm("--engines")
        self._slurm: SlurmCluster | None = None
        self._ssh: SshLab[SshHost] | None = None

    def start(self, folder: Path, note: Note) -> Path:
        fleet: dict[str, Any] = yaml.safe_load(super().start(folder, note).read_text("utf-8"))
        clusters = {name: c for r in fleet["regions"].values() for name, c in r["clusters"].items()}
        self._start_slurm(folder, {name: clusters[name] for name in SLURM_CLUSTERS}, note)
        self._start_ssh(folder, clusters[SSH_CLUSTER], note)
        for name in self.engines:
            clusters[name]["options"] |= {"lease_s": LEASE_S, "work": str(folder / "work")}
        file = folder / "engines.yaml"
        file.write_text(yaml.safe_dump(fleet, sort_keys=False, default_flow_style=None), "utf-8")
        return file

    def _start_slurm(self, folder: Path, clusters: Mapping[str, Any], note: Note) -> None:
        check_length(folder / "slurm" / "munge.sock")
        self._slurm = slurm.cluster_for(folder / "slurm", "east", clusters)
        note(f"starting a Slurm cluster with {self._slurm.nodes} hosts, the region east")
        self._slurm.start()
        self.engines |= dict.fromkeys(clusters, "slurm")

    def _start_ssh(self, folder: Path, cluster: dict[str, Any], note: Note) -> None:
        why = ssh.missing()
        if not why and importlib.util.find_spec("asyncssh") is None:
            why = "the extra ssh is not installed: pip install 'topmast[ssh]'"
        if why:
            note(f"no hosts behind SSH, so the region north is local: {why}")
            return
        group = cluster["hosts"][0]
        names = [f"north{index}" for index in range(group.pop("count"))]
        note(f"starting {len(names)} hosts behind SSH, the region north")
        self._ssh = SshLab(folder / "ssh", SshHost, names, own_home=False)
        self._ssh.start()
        group["names"] = names
        cluster |= {"engine": "ssh", "options": dict(self._ssh.options)}
        self.engines[SSH_CLUSTER] = "ssh"

    def halt(self, host: str) -> bool:
        if self._ssh is not None and host in self._ssh.hosts:
            self._ssh.hosts[host].power_off()
            return True
        return False

    def batch_jobs(self) -> tuple[str, ...]:
        assert self._slurm is not None
        return tuple(self._slurm.run("squeue", "-h", "-a", "-t", "all", "-o", "%j").split())

    def stop(self) -> None:
        try:
            if self._ssh is not None:
                self._ssh.stop()
        finally:
            if self._slurm is not None:
                self._slurm.stop()


def check_slurm(option: str) -> None:
    """Raises InvalidInput if there is no Slurm here."""
    if lacking := slurm.lacking():
        packages = " ".join(slurm.PACKAGES)
        raise InvalidInput(
            f"there is no Slurm here: {', '.join(lacking)} not found",
            field=option,
            remedy=f"on Debian: apt-get install --no-install-recommends {packages}",
        )


def check_length(socket: Path) -> None:
    """Raises InvalidInput for a folder in which no socket can be."""
    if len(str(socket)) > SOCKET_BYTES:
        raise InvalidInput(
            f"{socket} is too long for a socket", field="--state", remedy="name a shorter path"
        )
