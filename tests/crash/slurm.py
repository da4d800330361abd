"""Rounds of chaos on a real Slurm cluster: see `tests.crash.far`.

    python -m tests.crash.slurm --rounds 200 --seed 7

The controller is killed, hangs, or comes back with an old state; daemons of hosts are killed or
stand still; root cancels, requeues, drains and sets down; runners are killed, stand still or are cut
off from home, while Slurm reaches them; Topmast is started anew.
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from tests.crash.far import LEASE_S, PATIENCE_S, Chaos, Mend, nothing, run
from tests.support.live import free_ports
from tests.support.relay import Relay
from tests.support.slurmlab import SlurmCluster, missing, slurm_cluster
from topmast.adapters.engines.far.slurm import SlurmEngine, SlurmOptions
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.ports import Engine, Site

HOSTS = 4
GOOD = ("idle", "mixed", "allocated", "completing")


@dataclass
class SlurmChaos(Chaos):
    """Four hosts."""

    engine_type = SlurmEngine
    lab: SlurmCluster | None = None
    old: Path | None = None
    """A state of the controller of before the round."""
    home_port: int = field(default_factory=lambda: free_ports(1)[0])
    """Where Topmast listens; runners come to it by a way that can be cut."""
    faults: ClassVar = {
        "controller": (
            "controller_killed", "controller_killed_often", "controller_hangs",
            "controller_with_old_state",
        ),
        "daemon": ("daemon_killed", "daemon_stands_still"),
        "home": ("home_cut", "home_cut_for_long"),
        "root": ("cancelled_by_root", "requeued_by_root", "drained", "set_down"),
        "topmast": ("topmast_anew",),
        "runner": ("runner_killed", "runner_stands_still"),
    }  # fmt: skip

    @cached_property
    def _way(self) -> Relay:
        return Relay(self.home_port)

    @property
    def _lab(self) -> SlurmCluster:
        assert self.lab is not None
        return self.lab

    @property
    def hosts(self) -> Sequence[str]:
        return self._lab.hosts

    def make(self, folder: Path, site: Site) -> Engine:
        hosts = tuple(HostSpec(name, self._lab.gpu_type, 8) for name in self.hosts)
        options = SlurmOptions(
            conf=str(self._lab.conf), poll_s=0.3, lease_s=LEASE_S, command_s=4.0,
            listen=f"127.0.0.1:{self.home_port}", advertise=f"127.0.0.1:{self._way.port}",
        )  # fmt: skip
        return SlurmEngine(ClusterSpec("lab", hosts, "slurm"), folder, site, options)

    def prepare(self) -> None:
        if self.old is not None:
            shutil.rmtree(self.old, ignore_errors=True)
        self.old = self._lab.saved_state() if self.random.random() < 0.5 else None

    def mend(self) -> None:
        self._lab.until(self._is_mended, "hosts do not return", PATIENCE_S)

    def _is_mended(self) -> bool:
        """Whether all hosts take work; those that do not are resumed, as often as that is needed.

        Slurm drains hosts by itself too, also after this began: after an old state it gives ids
        anew, and a daemon that still has a job of such an id refuses it as a duplicate.
        """
        states = self._lab.states()
        bad = [host for host, state in states.items() if state.rstrip("*-") not in GOOD]
        for host in bad:
            self._set(host, "RESUME")
        if bad:
            time.sleep(1.0)  # a busy controller is asked seldom
        return bool(states) and not bad

    def _set(self, host: str, state: str) -> None:
        asked = ("scontrol", "update", f"NodeName={host}", f"State={state}", "Reason=chaos")
        self._lab.run(*asked, check=False)

    def _jobs(self) -> list[str]:
        found = self._lab.jobs(check=False)  # none while the controller does not answer
        return [job for job, _, state, _ in found if state in ("PENDING", "RUNNING")]

    # --- faults ---------------------------------------------------------------------------------

    def controller_killed(self) -> Mend:
        self._lab.kill_controller()
        return self._lab.start_controller

    def controller_killed_often(self) -> Mend:
        for _ in range(3):
            self._lab.kill_controller()
            self._lab.start_controller()
            time.sleep(self.random.uniform(0.0, 0.5))
        return nothing

    def controller_hangs(self) -> Mend:
        self._lab.signal_controller(signal.SIGSTOP)
        return lambda: self._lab.signal_controller(signal.SIGCONT)

    def controller_with_old_state(self) -> Mend:
        self._lab.restart_with(self.old or self._lab.saved_state())
        return nothing

    def daemon_killed(self) -> Mend:
        host = self.random.choice(self.hosts)
        self._lab.kill_daemon(host)
        return lambda: self._lab.start_daemon(host)

    def daemon_stands_still(self) -> Mend:
        host = self.random.choice(self.hosts)
        self._lab.signal_daemon(host, signal.SIGSTOP)
        return lambda: self._lab.signal_daemon(host, signal.SIGCONT)

    def home_cut(self) -> Mend:
        """Slurm and its daemon go on as if nothing was."""
        host = self.random.choice(self.hosts)
        self._way.cut(host)
        return lambda: self._way.mend(host)

    def home_cut_for_long(self) -> Mend:
        """Longer than the lease: what runs there ends, and is told lost though Slurm knows better."""
        mend_way = self.home_cut()

        def mend() -> None:
            time.sleep(LEASE_S + 2.0)
            mend_way()

        return mend

    def cancelled_by_root(self) -> Mend:
        for job in self._jobs():
            how = self.random.choice(((), ("--signal=KILL",), ("--full", "--signal=KILL")))
            self._lab.run("scancel", *how, job, check=False)
        return nothing

    def requeued_by_root(self) -> Mend:
        for job in self._jobs():
            self._lab.run("scontrol", "update", f"JobId={job}", "Requeue=1", check=False)
            self._lab.run("scontrol", "requeue", job, check=False)
        return nothing

    def drained(self) -> Mend:
        self._set(self.random.choice(self.hosts), "DRAIN")
        return nothing

    def set_down(self) -> Mend:
        self._set(self.random.choice(self.hosts), "DOWN")
        return nothing


@contextmanager
def cluster(_folder: Path) -> Iterator[SlurmCluster]:
    """Jobs start a second after they were submitted; by default Slurm takes three."""
    parameters = ("SchedulerParameters=batch_sched_delay=1",)
    with slurm_cluster("lab", nodes=HOSTS, parameters=parameters) as lab:
        yield lab


def main(arguments: list[str]) -> int:
    """Run; see above."""
    return run(
        arguments, __doc__, missing, cluster,
        lambda lab, folder, random: SlurmChaos(folder, random, lab=lab),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
