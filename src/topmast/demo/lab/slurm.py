"""A real Slurm cluster on this machine, with a controller, daemons and pretended GPUs of its own.

It runs as the user that starts it. Every process listens on the loopback address and keeps its
files in the folder of its cluster. A cluster ends what it started by process id: what belongs to it
carries its folder in the environment, so that the steps and tasks of jobs are found as well.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topmast.model.errors import Unavailable

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
"""Of Debian."""
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "sinfo", "scontrol", "scancel")
PATIENCE_S = 60.0
CPUS, MEMORY_MIB = 64, 200_000


def lacking() -> list[str]:
    """The programs that a cluster needs and that are not installed."""
    return [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]


def _path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


@dataclass
class SlurmCluster:
    """One cluster: its configuration and its processes."""

    folder: Path
    name: str = "lab"
    nodes: int = 3
    gpus: int = 8
    gpu_type: str = "h100"
    gpu_types: Sequence[str] = ()
    """The type of each host's GPUs, where they are not all of ``gpu_type``."""
    parameters: Sequence[str] = ()
    """Further lines of slurm.conf."""
    racks: Mapping[str, str] = field(default_factory=dict)
    """Switches and what is below each, as topology.conf says it (``Nodes=..``, ``Switches=..``)."""
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        """Its slurm.conf."""
        return self.folder / "slurm.conf"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of its hosts."""
        return tuple(f"{self.name}{index}" for index in range(self.nodes))

    @property
    def env(self) -> dict[str, str]:
        """What the commands of Slurm need to find this cluster."""
        return {"PATH": _path(), "SLURM_CONF": str(self.conf), "LANG": "C.UTF-8"}

    # ------------------------------------------------------------------------------ life and death

    def start(self) -> None:
        """Write the configuration, start all processes, and wait until every host takes work."""
        self._write()
        log, key = self.folder / "log", self.folder / "munge.key"
        self._spawn(
            "munged", "munged", "--foreground", "--force", f"--key-file={key}",
            f"--socket={self.folder}/munge.sock", f"--pid-file={self.folder}/munged.pid",
            f"--log-file={log}/munged.log", f"--seed-file={self.folder}/munge.seed",
        )  # fmt: skip
        self.until(lambda: (self.folder / "munge.sock").exists(), "no socket of munged")
        self.start_controller()
        for host in self.hosts:
            self.start_daemon(host)
        self.until(lambda: self.states() == dict.fromkeys(self.hosts, "idle"), "hosts are not idle")

    def stop(self) -> None:
        """End everything, jobs included, and leave no process behind."""
        for pid in [*(daemon.pid for daemon in self._daemons.values()), *self._pids()]:
            _signal(pid, signal.SIGKILL)
        for daemon in self._daemons.values():
            daemon.wait()
        self._daemons.clear()
        self.until(lambda: not self._killed_all(), "processes of the cluster do not die")

    def start_controller(self) -> None:
        """Start slurmctld with the state that it saved, and wait until it answers."""
        self._spawn("slurmctld", "slurmctld", "-D", "-f", str(self.conf))
        self.until(
            lambda: self.run("scontrol", "ping", check=False).find("UP") > 0, "no controller"
        )

    def start_daemon(self, host: str) -> None:
        """Start the daemon of a host."""
        self._spawn(host, "slurmd", "-D", "-N", host, "-f", str(self.conf))

    def halt(self, host: str) -> None:
        """Power a host off: its daemon and all that runs there are gone at once."""
        process = self._daemons.pop(host)
        process.kill()
        process.wait()
        mark = f"SLURMD_NODENAME={host}".encode()
        for _ in range(3):  # what is forked meanwhile too
            for pid in self._pids(mark):
                _signal(pid, signal.SIGKILL)

    def _killed_all(self) -> list[int]:
        pids = list(self._pids())
        for pid in pids:
            _signal(pid, signal.SIGKILL)
        return pids

    def _spawn(self, daemon: str, *argv: str) -> None:
        self._daemons[daemon] = subprocess.Popen(
            argv,
            env=self.env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _pids(self, *marks: bytes) -> Iterator[int]:
        """The processes of the cluster that have all marks: daemons, steps, the tasks of jobs."""
        wanted = (f"SLURM_CONF={self.conf}".encode(), *marks)
        return (pid for pid, env in environments() if all(mark in env for mark in wanted))

    def until(self, what: Callable[[], object], story: str, patience_s: float = PATIENCE_S) -> None:
        """Wait for something. Raises Unavailable, with the last words of the controller."""
        end_s = time.monotonic() + patience_s
        while not what():
            if time.monotonic() > end_s:
                log = self.folder / "log" / "slurmctld.log"
                tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
                raise Unavailable(f"Slurm cluster {self.name}: {story}\n{tail}")
            time.sleep(0.05)

    # ------------------------------------------------------------------------------------- looking

    def run(self, *argv: str, text: str = "", check: bool = True) -> str:
        """What a command of Slurm says; unless ``check``, what it said until it failed."""
        done = subprocess.run(
            ("timeout", "60", *argv), env=self.env, cwd="/", input=text, text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise Unavailable(f"{argv}: {done.returncode}: {done.stderr}")
        return done.stdout

    def states(self) -> dict[str, str]:
        """The state of each host; empty while the controller does not answer."""
        said = self.run("sinfo", "-N", "-h", "-a", "-o", "%N %T", check=False)
        rows = (line.split() for line in said.splitlines())
        return {row[0]: row[1] for row in rows}

    # ------------------------------------------------------------------------------- configuration

    def _write(self) -> None:
        for part in ("dev", "log", "state"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)  # other accounts use the cluster too
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        self.conf.write_text("\n".join([*self._lines(), *self.parameters, ""]))
        (self.folder / "gres.conf").write_text("\n".join([*self._gres_lines(), ""]))
        if self.racks:
            lines = [f"SwitchName={name} {below}" for name, below in self.racks.items()]
            (self.folder / "topology.conf").write_text("\n".join([*lines, ""]))

    def _types(self) -> list[tuple[str, str]]:
        """Each host with the type of its GPUs."""
        return list(zip(self.hosts, self.gpu_types or [self.gpu_type] * self.nodes, strict=True))

    def _gres_lines(self) -> Iterator[str]:
        """gres.conf: Slurm wants a device for each GPU."""
        yield "AutoDetect=off"
        for index in range(self.gpus):
            (self.folder / "dev" / f"nvidia{index}").symlink_to("/dev/null")
        if self.gpus:
            files = f"File={self.folder}/dev/nvidia[0-{self.gpus - 1}]"
            for host, kind in self._types():
                typed = f" Type={kind}" if kind else ""
                yield f"NodeName={host} Name=gpu{typed} {files}"

    def _lines(self) -> Iterator[str]:
        """slurm.conf for several hosts on one machine."""
        machine, ports = socket.gethostname().partition(".")[0], _free_ports(self.nodes + 2)
        user = pwd.getpwuid(os.geteuid()).pw_name
        yield from (
            f"ClusterName={self.name}",
            f"SlurmctldHost={machine}(127.0.0.1)",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            f"SlurmctldPort={ports.pop()}",
            f"SlurmdPort={ports.pop()}",
            "AuthType=auth/munge",
            f"AuthInfo=socket={self.folder}/munge.sock,cred_expire=10",
            "CredType=cred/munge",
            f"StateSaveLocation={self.folder}/state",
            f"SlurmdSpoolDir={self.folder}/spool-%n",
            f"SlurmctldPidFile={self.folder}/slurmctld.pid",
            f"SlurmdPidFile={self.folder}/slurmd-%n.pid",
            f"SlurmctldLogFile={self.folder}/log/slurmctld.log",
            f"SlurmdLogFile={self.folder}/log/slurmd-%n.log",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "SchedulerType=sched/backfill",
            "SlurmdParameters=config_overrides",
            "SlurmdTimeout=10",
            "KillWait=5",
            "ReturnToService=2",
            "MinJobAge=60",
            "MailProg=/bin/true",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "PropagateResourceLimits=NONE",
            "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE",
        )
        if self.racks:
            yield "TopologyPlugin=topology/tree"
        if self.gpus:
            yield "GresTypes=gpu"
        for host, kind in self._types():
            typed = f"{kind}:" if kind else ""
            gres = f" Gres=gpu:{typed}{self.gpus}" if self.gpus else ""
            yield (
                f"NodeName={host} NodeHostname={machine} NodeAddr=127.0.0.1 Port={ports.pop()}"
                f" CPUs={CPUS} Boards=1 SocketsPerBoard=1 CoresPerSocket={CPUS} ThreadsPerCore=1"
                f" RealMemory={MEMORY_MIB}{gres}"
            )
        main = f"PartitionName=main Nodes={','.join(self.hosts)} Default=YES State=UP"
        yield f"{main} MaxTime=INFINITE"


def cluster_for(folder: Path, name: str, clusters: Mapping[str, Any]) -> SlurmCluster:
    """A cluster, not started yet, for clusters of a fleet file, as two partitions of a site are.

    Each has one group of hosts with a count, which gets the names of the hosts in its place.
    """
    groups = [cluster["hosts"][0] for cluster in clusters.values()]
    made = SlurmCluster(
        folder, name, nodes=sum(group["count"] for group in groups),
        gpu_types=[group["gpu"].lower() for group in groups for _ in range(group["count"])],
        parameters=("SchedulerParameters=batch_sched_delay=1", "MinJobAge=3600"),
    )  # fmt: skip
    names = list(made.hosts)
    for cluster, group in zip(clusters.values(), groups, strict=True):
        group["names"], names = names[: group["count"]], names[group.pop("count") :]
        model = group["gpu"]
        options = {"conf": str(made.conf), f"gpu.{model}": model.lower(), "poll_s": 0.5}
        cluster |= {"engine": "slurm", "options": options}
    return made


def _signal(pid: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, what)


def environments() -> Iterator[tuple[int, list[bytes]]]:
    """The environment of every process here that we may read, but for this one's."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if env := (entry / "environ").read_bytes():
                    yield int(entry.name), env.split(b"\0")


def _free_ports(count: int) -> list[int]:
    """Ports that no process listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
