"""Rounds of chaos on a real Kubernetes: see `tests.crash.far`.

    python -m tests.crash.kubernetes --rounds 100 --seed 7

The API server, etcd, the scheduler and kubelets are killed, or stand still; nodes are deleted and
cut off; pods are deleted, by force too; runners are killed or stand still; Topmast is started anew.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

import httpx

from tests.crash.far import LEASE_S, Chaos, Mend, command, nothing, run
from tests.support.kubelab.image import NAME
from tests.support.kubelab.lab import Lab
from tests.support.kubelab.nodes import GPU, Node, give_gpus
from tests.support.kubelab.programs import Daemon, missing, until
from topmast.adapters.engines.far.kubernetes.engine import KubernetesEngine
from topmast.adapters.engines.far.kubernetes.options import KubernetesOptions
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.ports import Engine, Site

PATIENCE_S = 180.0
REGISTERS_S = 30.0
"""A kubelet may need so long, on a busy machine, until its node is there."""
CLAIM = "evidence"


@dataclass
class KubernetesChaos(Chaos):
    """Two nodes."""

    engine_type = KubernetesEngine
    lab: Lab | None = None
    _restarted_s: dict[str, float] = field(default_factory=dict)
    """When the kubelet of a node that was deleted was started anew."""
    faults: ClassVar = {
        "control": ("server_killed", "server_stands_still", "etcd_killed", "scheduler_killed"),
        "kubelet": ("kubelet_killed", "kubelet_stands_still"),
        "node": ("node_deleted", "node_cut", "node_cut_for_long"),
        "pods": ("pods_deleted", "pods_forced", "pods_forced_without_kubelets"),
        "topmast": ("topmast_anew",),
        "runner": ("runner_killed", "runner_stands_still"),
    }

    @property
    def hosts(self) -> Sequence[str]:
        return [node.name for node in self._nodes]

    @property
    def _lab(self) -> Lab:
        assert self.lab is not None
        return self.lab

    @property
    def _nodes(self) -> list[Node]:
        assert self._lab.nodes is not None
        return self._lab.nodes.all

    def make(self, folder: Path, site: Site) -> Engine:
        options = KubernetesOptions(
            kubeconfig=str(self._lab.kubeconfig), listen=f"{self._lab.address}:0", poll_s=0.5,
            lease_s=LEASE_S, timeout_s=4.0, user=0, group=0, mount={str(self.folder): CLAIM},
        )  # fmt: skip
        hosts = tuple(HostSpec(node.name, "H100", node.gpus) for node in self._nodes)
        spec = ClusterSpec("lab", hosts, "kubernetes", image=NAME)
        return KubernetesEngine(spec, folder, site, options)

    def mend(self) -> None:
        """Everything runs again, and both nodes are ready."""
        self._lab.revive()
        until(self._lab.answers, PATIENCE_S, "the API server")
        self._lab.revive()
        for node in self._nodes:
            try:
                until(partial(self._is_ready, node), PATIENCE_S, node.name)
            except TimeoutError as error:
                error.add_note(self._lab.kubectl("get", "node", node.name, "-o", "yaml"))
                error.add_note(f"kubelet:\n{node.kubelet.tail(100)}")
                error.add_note(f"containerd:\n{node.containerd.tail()}")
                raise

    def _is_ready(self, node: Node) -> bool:
        text = self._lab.kubectl("get", "node", node.name, "-o", "json", check=False)
        if not text:  # deleted: a kubelet registers only when it starts
            if time.monotonic() - self._restarted_s.get(node.name, 0.0) > REGISTERS_S:
                node.kubelet.kill()
                node.kubelet.start()
                self._restarted_s[node.name] = time.monotonic()
            return False
        status = json.loads(text)["status"]
        if status.get("capacity", {}).get(GPU, "0") == "0":
            with contextlib.suppress(httpx.HTTPError):
                give_gpus(self._lab, node.name, node.gpus)
        conditions = {one["type"]: one["status"] for one in status.get("conditions", [])}
        return conditions.get("Ready") == "True"

    def _some(self) -> Node:
        return self.random.choice(self._nodes)

    def _some_runner(self) -> list[int]:
        pids = [pid for node in self._nodes for pid in node.processes()]
        found = [pid for pid in pids if b"/var/run/topmast/runner.py" in command(pid)]
        return self.random.sample(found, min(1, len(found)))

    # --- faults ---------------------------------------------------------------------------------

    def server_killed(self) -> Mend:
        return _killed(self._lab.daemons["kube-apiserver"])

    def server_stands_still(self) -> Mend:
        return _frozen(self._lab.daemons["kube-apiserver"])

    def etcd_killed(self) -> Mend:
        return _killed(self._lab.daemons["etcd"])

    def scheduler_killed(self) -> Mend:
        return _killed(self._lab.daemons["kube-scheduler"])

    def kubelet_killed(self) -> Mend:
        return _killed(self._some().kubelet)

    def kubelet_stands_still(self) -> Mend:
        return _frozen(self._some().kubelet)

    def node_deleted(self) -> Mend:
        self._delete("node", self._some().name)
        return nothing

    def node_cut(self) -> Mend:
        node = self._some()
        node.cut()
        return node.mend

    def node_cut_for_long(self) -> Mend:
        """Longer than the lease."""
        node = self._some()
        node.cut()

        def mend() -> None:
            time.sleep(LEASE_S + 2.0)
            node.mend()

        return mend

    def pods_deleted(self) -> Mend:
        self._delete("pods", "--all")
        return nothing

    def pods_forced(self) -> Mend:
        self._delete("pods", "--all", "--force", "--grace-period=0")
        return nothing

    def pods_forced_without_kubelets(self) -> Mend:
        """Kubernetes would forget pods that live."""
        menders = [_killed(node.kubelet) for node in self._nodes]
        self.pods_forced()

        def mend() -> None:
            for one in menders:
                one()

        return mend

    def _delete(self, *what: str) -> None:
        self._lab.kubectl("delete", *what, "--wait=false", check=False)


def _killed(daemon: Daemon) -> Mend:
    daemon.kill()

    def mend() -> None:
        if not daemon.runs:
            daemon.start()

    return mend


def _frozen(daemon: Daemon) -> Mend:
    daemon.signal(signal.SIGSTOP)
    return lambda: daemon.signal(signal.SIGCONT)


@contextmanager
def _lab_of(folder: Path) -> Iterator[Lab]:
    with Lab(nodes=2) as lab:
        lab.share(folder.parent, CLAIM)
        yield lab


def main(arguments: list[str]) -> int:
    """Run; see above."""

    def player(lab: Lab, folder: Path, seeded: random.Random) -> KubernetesChaos:
        return KubernetesChaos(folder, seeded, lab=lab)

    return run(arguments, __doc__, partial(missing, nodes=True), _lab_of, player)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
