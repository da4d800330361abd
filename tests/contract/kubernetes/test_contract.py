"""The contract of engines, kept by an engine over a real Kubernetes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.engines import HOSTS, Rig, eventually, opened, order, site_of
from tests.contract.test_engine import *  # noqa: F403
from tests.contract.test_engine import source
from tests.support.kubelab.image import NAME
from tests.support.kubelab.lab import Lab
from tests.support.kubelab.programs import until
from topmast.adapters.engines.far.kubernetes.engine import KubernetesEngine
from topmast.adapters.engines.far.kubernetes.options import KubernetesOptions
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.messages import TaskEvicted

CLEAR_S = 120.0
"""A kubelet lets go of a pod whose containers it still makes after a minute."""


@pytest.fixture(scope="module")
def shared(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders that pods see at the same path, by a claim, as those of a site's shared file system.

    They are the tests' own, and what Topmast's library for tasks is imported from.
    """
    claims = {str(tmp_path_factory.getbasetemp()): "contract", source(): "library"}
    for folder, name in claims.items():
        lab.share(Path(folder), name)
    return claims


@pytest.fixture  # type: ignore[no-redef]
def rig(lab: Lab, shared: dict[str, str], tmp_path: Path) -> Iterator[Rig]:
    def make(rig: Rig) -> KubernetesEngine:
        hosts = tuple(HostSpec(name, "H100", 8) for name in HOSTS)
        options = KubernetesOptions(
            kubeconfig=str(lab.kubeconfig), mount=shared, user=0, group=0,
            listen=f"{lab.address}:0", poll_s=0.5, lease_s=60.0,
        )  # fmt: skip
        spec = ClusterSpec("east-1", hosts, "kubernetes", image=NAME)
        return KubernetesEngine(spec, rig.folder / "engine", site_of(rig), options)

    with opened(make, tmp_path) as rig:
        yield rig
        _clear(rig, lab)


def _clear(rig: Rig, lab: Lab) -> None:
    """Let nothing of a test take GPUs of the next one, to which its pods are those of others."""
    launcher = rig.engine._launcher  # type: ignore[attr-defined]

    def is_clear() -> bool:
        left = launcher.list()
        for one in left:
            with contextlib.suppress(Exception):
                launcher.cancel(one, 1.0)
                launcher.forget(one)
        return not left

    until(is_clear, CLEAR_S, "no pod to be left")


def test_a_gang_knows_its_ranks_and_hosts(rig: Rig) -> None:  # type: ignore[no-redef]
    """As in the contract, but for GPUs: Kubernetes chooses them, and here there are none to see."""
    said = "echo $RANK/$WORLD_SIZE $LOCAL_RANK $TOPMAST_HOST $TOPMAST_HOSTS $TOPMAST_GPUS_PER_TASK"
    rig.engine.start_gang(order("j1", f"{said}; echo $MASTER_ADDR:$MASTER_PORT >&2", tasks=4))
    for rank in range(4):
        assert rig.end_of("j1", rank).code == 0
    logs = [rig.log("j1", rank).splitlines() for rank in range(4)]
    assert [log[0] for log in logs] == [
        "0/4 0 h0 h0,h1 1", "1/4 0 h1 h0,h1 1", "2/4 1 h0 h0,h1 1", "3/4 1 h1 h0,h1 1",
    ]  # fmt: skip
    assert len({log[1] for log in logs}) == 1


def test_nothing_outlives_the_script(rig: Rig, lab: Lab) -> None:  # type: ignore[no-redef]
    """Numbers of processes are the pod's own: look for what was left by its words."""
    rig.engine.start_gang(order("j1", "setsid sleep 98765 & sleep 0.1"))
    assert rig.end_of("j1").code == 0
    assert not _sleeps(lab, b"98765")


def test_a_pod_that_others_deleted_is_evicted_and_nothing_of_it_lives(rig: Rig, lab: Lab) -> None:
    rig.engine.start_gang(order("j1", "sleep 87654"))
    rig.started("j1")
    eventually(lambda: _sleeps(lab, b"87654"), "the task does not run")
    lab.kubectl("delete", "pods", "--all", "--wait=false")
    rig.news.wait(TaskEvicted, job="j1")
    assert not _sleeps(lab, b"87654")


def _sleeps(lab: Lab, word: bytes) -> bool:
    assert lab.nodes is not None
    for pid in [pid for node in lab.nodes.all for pid in node.processes()]:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[:1] == [b"sleep"] and word in words:
                return True
    return False
