"""Real Slurm clusters on this machine, each with a controller, daemons and fake GPUs of its own.

    python -m tests.support.slurmlab install     # Debian's packages, as root
    python -m tests.support.slurmlab up          # a cluster to try things by hand, until Ctrl-C or SIGTERM

The clusters are those of `topmast demo --engines`, and break when they are told to.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from topmast.demo.lab import slurm
from topmast.demo.lab.slurm import environments, lacking

ACCOUNTING = ("slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server-core")
"""Packages of Debian for a cluster that keeps accounts: see `slurmdb`."""
OTHER_CLOCKS = ("libfaketime",)
"""For a munged whose clock is wrong."""


def missing() -> str:
    """Why there can be no cluster here; empty if there can."""
    if programs := lacking():
        return f"no Slurm: {', '.join(programs)} not found (run `make slurm-tools`)"
    return "" if os.geteuid() == 0 else "no Slurm: tests use it by several accounts, as root"


def missing_accounting() -> str:
    """The same for one that keeps accounts."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    programs = [name for name in ("slurmdbd", "mariadbd") if shutil.which(name, path=path) is None]
    return f"no accounting: {', '.join(programs)} not found" if programs else missing()


def other_clock() -> str:
    """The library that gives a process another clock; empty if it is not here."""
    return next(map(str, Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), "")


def install() -> None:
    """Install what is missing with apt; the packages start no daemon here."""
    if not missing() and not missing_accounting() and other_clock():
        return
    as_root = () if os.geteuid() == 0 else ("sudo", "-n")
    quiet = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y")
    subprocess.run([*as_root, *quiet, "update"], check=True)
    subprocess.run(
        [
            *as_root,
            *quiet,
            "install",
            "--no-install-recommends",
            *slurm.PACKAGES,
            *ACCOUNTING,
            *OTHER_CLOCKS,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


class SlurmCluster(slurm.SlurmCluster):
    """One cluster, what it says, and the faults that tests make."""

    # ------------------------------------------------------------------------------------- looking

    def jobs(self, *, check: bool = True) -> list[list[str]]:
        """Id, name, state and reason of every job that the controller knows."""
        mark = secrets.token_hex(8)  # names have line breaks
        asked = "".join(f"{field}{mark}" for field in ("%i", "%j", "%T", "%r"))
        fields = self.run("squeue", "-h", "-a", "-t", "all", "-o", asked, check=check).split(mark)
        rows = (fields[at : at + 4] for at in range(0, len(fields) - 4, 4))
        return [[job.strip(), *rest] for job, *rest in rows]

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

    def kill_controller(self) -> None:
        """As by the kernel: nothing more is saved."""
        self._kill("slurmctld")

    def signal_controller(self, what: signal.Signals) -> None:
        """SIGSTOP makes it hang, SIGCONT ends that."""
        self._daemons["slurmctld"].send_signal(what)

    def conf_by_munged(self, name: str) -> Path:
        """A slurm.conf with which commands prove themselves by a munged of their own."""
        other = self.folder / f"{name}.conf"
        ours, theirs = (f"socket={self.folder}/{file}" for file in ("munge.sock", f"{name}.sock"))
        other.write_text(self.conf.read_text().replace(ours, theirs))
        return other

    def start_munged(self, name: str, key: bytes = b"", late_s: int = 0) -> None:
        """Start that munged, or a right one in its place: with the cluster's key, and its clock."""
        if name in self._daemons:
            self._kill(name)
        socket, file = self.folder / f"{name}.sock", self.folder / f"{name}.key"
        socket.unlink(missing_ok=True)
        file.unlink(missing_ok=True)
        file.write_bytes(key or (self.folder / "munge.key").read_bytes())
        file.chmod(0o400)
        clock = ("env", f"LD_PRELOAD={other_clock()}", f"FAKETIME=-{late_s}") if late_s else ()
        self._spawn(
            name, *clock, "munged", "--foreground", "--force", f"--key-file={file}",
            f"--socket={socket}", f"--pid-file={self.folder}/{name}.pid",
            f"--log-file={self.folder}/log/{name}.log", f"--seed-file={self.folder}/{name}.seed",
        )  # fmt: skip
        self.until(socket.exists, "no socket of munged")

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


@contextmanager
def slurm_cluster(
    name: str = "lab", kind: type[SlurmCluster] | None = None, **options: object
) -> Iterator[SlurmCluster]:
    """A cluster that runs, in a folder of its own that is removed with it."""
    folder = Path(tempfile.mkdtemp(prefix=f"topmast-slurm-{name}-"))
    cluster = (kind or SlurmCluster)(folder, name, **options)  # type: ignore[arg-type]
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
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its daemons end with it
    with slurm_cluster() as cluster, suppress(KeyboardInterrupt):
        print(f"export SLURM_CONF={cluster.conf}", flush=True)
        signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
