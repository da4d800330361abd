"""Real Slurm clusters on this machine, each with a controller, daemons and fake GPUs of its own.

    python -m tests.support.slurmlab install     # Debian's packages, as root
    python -m tests.support.slurmlab up          # a cluster to try things by hand, until Ctrl-C

Every process listens on the loopback address and keeps its files in the folder of its cluster. A
cluster ends what it started by process id: what belongs to it carries its folder in the
environment, so that the steps and tasks of jobs are found as well.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "sinfo", "scontrol", "scancel")
PATIENCE_S = 60.0
CPUS, MEMORY_MIB = 64, 200_000


def missing() -> str:
    """Why there can be no cluster here; empty if there can."""
    lacking = [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]
    if lacking:
        return f"no Slurm: {', '.join(lacking)} not found (run `make slurm-tools`)"
    return "" if os.geteuid() == 0 else "no Slurm: its daemons run only as root"


def install() -> None:
    """Install what is missing with apt; the packages start no daemon here."""
    if not missing():
        return
    as_root = () if os.geteuid() == 0 else ("sudo", "-n")
    quiet = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y")
    subprocess.run([*as_root, *quiet, "update"], check=True)
    subprocess.run(
        [*as_root, *quiet, "install", "--no-install-recommends", *PACKAGES],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


@dataclass
class SlurmCluster:
    """One cluster: its configuration, its processes, and the faults that tests make."""

    folder: Path
    name: str = "lab"
    nodes: int = 3
    gpus: int = 8
    gpu_type: str = "h100"
    parameters: Sequence[str] = ()
    """Further lines of slurm.conf."""
    racks: Mapping[str, str] = field(default_factory=dict)
    """Switches and what is below each, as topology.conf says it (``Nodes=..`` or ``Switches=..``)."""
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def hosts(self) -> tuple[str, ...]:
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

    def _pids(self) -> Iterator[int]:
        """All processes of the cluster: daemons, steps, and the tasks of jobs."""
        mark = f"SLURM_CONF={self.conf}".encode()
        return (pid for pid, env in environments() if mark in env)

    def until(self, what: Callable[[], object], story: str, patience_s: float = PATIENCE_S) -> None:
        """Wait for something."""
        end_s = time.monotonic() + patience_s
        while not what():
            if time.monotonic() > end_s:
                log = self.folder / "log" / "slurmctld.log"
                tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
                raise AssertionError(f"{self.name}: {story}\n{tail}")
            time.sleep(0.05)

    # ------------------------------------------------------------------------------------- looking

    def run(self, *argv: str, text: str = "", check: bool = True) -> str:
        """What a command of Slurm says, asked as root; unless ``check``, what it said until it failed."""
        done = subprocess.run(
            ("timeout", "60", *argv), env=self.env, cwd="/", input=text, text=True,
            capture_output=True,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(f"{argv}: {done.returncode}: {done.stderr}")
        return done.stdout

    def states(self) -> dict[str, str]:
        """The state of each host; empty while the controller does not answer."""
        said = self.run("sinfo", "-N", "-h", "-a", "-o", "%N %T", check=False)
        rows = (line.split() for line in said.splitlines())
        return {row[0]: row[1] for row in rows}

    def jobs(self, *, check: bool = True) -> list[list[str]]:
        """Id, name, state and reason of every job that the controller knows."""
        said = self.run("squeue", "-h", "-a", "-t", "all", "-o", "%i|%j|%T|%r", check=check)
        return [line.split("|", 3) for line in said.splitlines()]

    def bodies(self, name: str) -> list[int]:
        """The processes of jobs of that name, on whatever host, but for Slurm's own."""
        mark, job = f"SLURM_CONF={self.conf}".encode(), f"SLURM_JOB_NAME={name}".encode()
        return [
            pid
            for pid, env in environments()
            if mark in env
            and job in env
            and any(entry.startswith(b"SLURM_STEP_ID=") for entry in env)
        ]

    # -------------------------------------------------------------------------------------- faults

    def start_controller(self) -> None:
        """Start slurmctld with the state that it saved, and wait until it answers."""
        self._spawn("slurmctld", "slurmctld", "-D", "-f", str(self.conf))
        self.until(
            lambda: self.run("scontrol", "ping", check=False).find("UP") > 0, "no controller"
        )

    def kill_controller(self) -> None:
        """As by the kernel: nothing more is saved."""
        self._kill("slurmctld")

    def signal_controller(self, what: signal.Signals) -> None:
        """SIGSTOP makes it hang, SIGCONT ends that."""
        self._daemons["slurmctld"].send_signal(what)

    def saved_state(self) -> Path:
        """A copy of the controller's state as it is on disk now."""
        copy = self.folder / f"state-{secrets.token_hex(4)}"
        for _ in range(100):
            with suppress(shutil.Error, FileNotFoundError):  # files go while it is copied
                return Path(shutil.copytree(self.folder / "state", copy, dirs_exist_ok=True))
        raise AssertionError("the controller's state does not keep still")

    def restart_with(self, state: Path) -> None:
        """Kill the controller, and start it with a state that was saved before."""
        self.kill_controller()
        shutil.rmtree(self.folder / "state")
        shutil.copytree(state, self.folder / "state")
        self.start_controller()

    def start_daemon(self, host: str) -> None:
        """Start the daemon of a host."""
        self._spawn(host, "slurmd", "-D", "-N", host, "-f", str(self.conf))

    def kill_daemon(self, host: str) -> None:
        """Kill the daemon of a host; steps and tasks live on."""
        self._kill(host)

    def signal_daemon(self, host: str, what: signal.Signals) -> None:
        """SIGSTOP: the host answers no more, and its tasks go on; SIGCONT ends that."""
        self._daemons[host].send_signal(what)

    def _kill(self, daemon: str) -> None:
        process = self._daemons.pop(daemon)
        process.kill()
        process.wait()

    # ------------------------------------------------------------------------------- configuration

    def _write(self) -> None:
        for part in ("dev", "log", "state"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)  # other accounts use the cluster too
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        for index in range(self.gpus):
            os.mknod(self.folder / "dev" / f"nvidia{index}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        self.conf.write_text("\n".join([*self._lines(), *self.parameters, ""]))
        gres = ["AutoDetect=off"]
        if self.gpus:
            kind = f" Type={self.gpu_type}" if self.gpu_type else ""
            files = f"File={self.folder}/dev/nvidia[0-{self.gpus - 1}]"
            gres.append(f"NodeName={self._all_hosts()} Name=gpu{kind} {files}")
        (self.folder / "gres.conf").write_text("\n".join([*gres, ""]))
        if self.racks:
            lines = [f"SwitchName={name} {below}" for name, below in self.racks.items()]
            (self.folder / "topology.conf").write_text("\n".join([*lines, ""]))

    def _all_hosts(self) -> str:
        return f"{self.name}[0-{self.nodes - 1}]"

    def _lines(self) -> Iterator[str]:
        """slurm.conf for several hosts on one machine."""
        machine, ports = socket.gethostname().partition(".")[0], _free_ports(self.nodes + 2)
        yield from (
            f"ClusterName={self.name}",
            f"SlurmctldHost={machine}(127.0.0.1)",
            "SlurmUser=root",
            "SlurmdUser=root",
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
        kind = f"{self.gpu_type}:" if self.gpu_type else ""
        gres = f" Gres=gpu:{kind}{self.gpus}" if self.gpus else ""
        if self.gpus:
            yield "GresTypes=gpu"
        for host in self.hosts:
            yield (
                f"NodeName={host} NodeHostname={machine} NodeAddr=127.0.0.1 Port={ports.pop()}"
                f" CPUs={CPUS} Boards=1 SocketsPerBoard=1 CoresPerSocket={CPUS} ThreadsPerCore=1"
                f" RealMemory={MEMORY_MIB}{gres}"
            )
        main = f"PartitionName=main Nodes={self._all_hosts()} Default=YES State=UP"
        yield f"{main} MaxTime=INFINITE"


def _signal(pid: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, what)


def environments() -> Iterator[tuple[int, list[bytes]]]:
    """The environment of every process here but this one."""
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


@contextmanager
def slurm_cluster(name: str = "lab", **options: object) -> Iterator[SlurmCluster]:
    """A cluster that runs, in a folder of its own that is removed with it."""
    folder = Path(tempfile.mkdtemp(prefix=f"topmast-slurm-{name}-"))
    cluster = SlurmCluster(folder, name, **options)  # type: ignore[arg-type]
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: Sequence[str]) -> int:
    """Install, or run a cluster until Ctrl-C."""
    if arguments == ["install"]:
        install()
        if reason := missing():
            print(reason, file=sys.stderr)
        return 1 if missing() else 0
    if arguments != ["up"]:
        print(__doc__, file=sys.stderr)
        return 2
    with slurm_cluster() as cluster, suppress(KeyboardInterrupt):
        print(f"export SLURM_CONF={cluster.conf}", flush=True)
        signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
