"""Three Slurm clusters, a Kubernetes cluster and hosts behind SSH, and the fleet file that names them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from tests.support import slurmlab, sshlab
from tests.support.kubelab import lab as kubelab
from tests.support.kubelab.image import NAME
from tests.support.kubelab.programs import missing as no_kubernetes
from tests.support.slurmlab import SlurmCluster, slurm_cluster
from tests.support.sshlab import SshLab, ssh_lab

SLURM = ("a", "b", "c")
GPUS = 8
"""Of each host."""
LEASE_S = 20
CUT_S = 8.0
RECORDS = "records"
ENGINES = {"slurm-a": "slurm", "slurm-b": "slurm", "slurm-c": "slurm", "pods": "kubernetes",
           "hosts": "ssh"}  # fmt: skip
"""The engine of each cluster."""


def missing() -> str:
    """Why not all of it can run here; empty if it can."""
    return slurmlab.missing() or sshlab.missing() or no_kubernetes(nodes=True)


@dataclass
class World:
    """All of it."""

    slurm: dict[str, SlurmCluster]
    pods: kubelab.Lab
    hosts: SshLab
    records: Path
    """A folder that all hosts share."""

    def fleet(self) -> str:
        """The fleet file: three regions, each with more than one kind of engine."""

        def slurm(name: str) -> dict[str, object]:
            cluster = self.slurm[name]
            options = {"conf": str(cluster.conf), "gpu.H100": cluster.gpu_type, "poll_s": 1}
            return _cluster("slurm", cluster.hosts, options)

        kubernetes: dict[str, object] = {
            "kubeconfig": str(self.pods.kubeconfig), "namespace": "default",
            "listen": f"{self.pods.address}:0", f"mount.{self.records}": RECORDS,
        }  # fmt: skip
        assert self.pods.nodes is not None
        nodes = tuple(node.name for node in self.pods.nodes.all)
        pods = _cluster("kubernetes", nodes, kubernetes)
        hosts = _cluster("ssh", tuple(self.hosts.hosts), dict(self.hosts.options))
        regions = {
            "east": {"clusters": {"slurm-a": slurm("a"), "hosts": hosts}},
            "west": {"clusters": {"slurm-b": slurm("b"), "pods": {**pods, "image": NAME}}},
            "south": {"clusters": {"slurm-c": slurm("c")}},
        }
        quota = {"quota": {"H100": 40}, "borrow_limit": {"H100": 40}}
        tenants = dict.fromkeys(("vision", "speech", "language"), quota)
        return yaml.safe_dump({"regions": regions, "tenants": tenants}, default_flow_style=None)

    def gpus(self) -> dict[str, int]:
        """How many each cluster has."""
        slurm = {f"slurm-{name}": len(lab.hosts) for name, lab in self.slurm.items()}
        assert self.pods.nodes is not None
        hosts = {**slurm, "pods": len(self.pods.nodes.all), "hosts": len(self.hosts.hosts)}
        return {name: GPUS * count for name, count in hosts.items()}

    def lose(self, engine: str, host: str) -> None:
        """A host is gone, with all that ran there: the power fails."""
        if engine == "ssh":
            self.hosts.hosts[host].power_off()
        elif engine == "kubernetes":
            assert self.pods.nodes is not None
            next(node for node in self.pods.nodes.all if node.name == host).stop()
        else:
            next(lab for lab in self.slurm.values() if host in lab.hosts).halt(host)

    def cut_off(self, host: str) -> None:
        """Cut a host behind SSH off for a while that is shorter than a lease: its tasks live on."""
        self.hosts.hosts[host].cut()
        time.sleep(CUT_S)
        self.hosts.hosts[host].mend()


def _cluster(engine: str, hosts: tuple[str, ...], options: dict[str, object]) -> dict[str, object]:
    return {
        "engine": engine,
        "hosts": [{"names": list(hosts), "gpu": "H100", "gpus": GPUS}],
        "options": {"lease_s": LEASE_S, **options},
    }


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """All of it, until the block ends."""
    with ExitStack() as stack:
        fast = ("SchedulerParameters=batch_sched_delay=1", "SlurmdTimeout=10")
        slurm = {
            name: stack.enter_context(slurm_cluster(name, nodes=2, parameters=fast))
            for name in SLURM
        }
        hosts = stack.enter_context(ssh_lab(folder / "ssh"))
        pods = stack.enter_context(kubelab.Lab(nodes=2))
        records = Path(stack.enter_context(TemporaryDirectory(prefix="topmast-records-")))
        records.chmod(0o777)  # tasks in pods have an account of their own
        pods.share(records, RECORDS)
        yield World(slurm, pods, hosts, records)
