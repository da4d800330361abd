"""Runners that are cut off from home, or stand still, while Slurm goes on as if nothing was."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.engines import HOSTS, Rig, alive_of, eventually, opened, order, site_of
from tests.crash.far import environments, is_runner
from tests.support.live import free_ports
from tests.support.relay import Relay
from tests.support.slurmlab import SlurmCluster, missing, slurm_cluster
from topmast.adapters.engines.far.slurm import SlurmEngine, SlurmOptions
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.messages import TaskExited, TaskLost

LEASE_S = 8.0


@pytest.fixture
def cluster() -> Iterator[SlurmCluster]:
    """Hosts with the names that the contract uses."""
    if reason := missing():
        pytest.skip(reason)
    parameters = ("SchedulerParameters=batch_sched_delay=1",)
    with slurm_cluster("h", nodes=len(HOSTS), parameters=parameters) as lab:
        yield lab


@pytest.mark.slow
def test_a_gang_that_is_cut_off_from_home_ends_by_its_lease(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    """One host of two: it is told lost when nothing lives there, though Slurm says that it runs."""
    (port,) = free_ports(1)
    way = Relay(port)

    def make(rig: Rig) -> SlurmEngine:
        hosts = tuple(HostSpec(name, "h100", 8) for name in HOSTS)
        options = SlurmOptions(
            conf=str(cluster.conf), poll_s=0.5, lease_s=LEASE_S,
            listen=f"127.0.0.1:{port}", advertise=f"127.0.0.1:{way.port}",
        )  # fmt: skip
        spec = ClusterSpec("east-1", hosts, "slurm")
        return SlurmEngine(spec, rig.folder / "engine", site_of(rig), options)

    with opened(make, tmp_path) as rig:
        rig.engine.start_gang(order("j1", "echo runs; sleep 300", tasks=2))
        for rank in range(2):
            rig.says("j1", "runs", rank)
        way.cut("h0")
        cut_s = time.monotonic()
        time.sleep(LEASE_S / 2)
        assert [state for _, _, state, _ in cluster.jobs()] == ["RUNNING"]
        assert cluster.states()["h0"] == "mixed"
        assert "silent" in rig.lost("j1", 0).error
        assert time.monotonic() - cut_s > LEASE_S - 3.0, "the last answer came before the cut"
        rig.engine.stop("j1", 1, 0.0)
        rig.end_of("j1", 1)
        way.mend("h0")
        rig.engine.start_gang(order("j2", "true", tasks=2))
        assert [rig.end_of("j2", rank).code for rank in range(2)] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "renamed"), [(1, ""), (1, "once"), (1, "without end"), (2, "")])
def test_what_a_halted_runner_watches_over_is_dead_when_it_is_told_lost(
    cluster: SlurmCluster, tmp_path: Path, tasks: int, renamed: str
) -> None:
    """All its processes stand still, and keep to no lease: Slurm ends the part, or wakes them, first.

    Whatever the task calls its job, also if it never stops renaming it. The other host of the part,
    of which the runner speaks, has its grace.
    """

    def make(rig: Rig) -> SlurmEngine:
        hosts = tuple(HostSpec(name, "h100", 8) for name in HOSTS)
        options = SlurmOptions(conf=str(cluster.conf), poll_s=0.5, lease_s=20.0)
        spec = ClusterSpec("east-1", hosts, "slurm")
        return SlurmEngine(spec, rig.folder / "engine", site_of(rig), options)

    body = 'trap "echo told; sleep 1; echo saved; exit 7" TERM'
    halted = "trap : TERM; echo runs; while true; do sleep 0.1; done"
    spoken = f"{body}; echo runs; while true; do sleep 0.1; done"
    if renamed:
        conf, job = f"SLURM_CONF={cluster.conf}", "JobId=$SLURM_JOB_ID"
        rename = f"{conf} scontrol update {job} JobName=innocent"
        forever = f"(i=0; while true; do {rename}$((i+=1)) || true; done) &"
        halted = f"{rename}; {halted}" if renamed == "once" else f"{forever} {halted}"
    script = f"if [ $RANK = 0 ]; then {halted}; else {spoken}; fi"
    with opened(make, tmp_path) as rig:
        rig.engine.start_gang(order("j1", script, tasks=tasks))
        for rank in range(tasks):
            rig.says("j1", "runs", rank)
        task = set(alive_of(rig, "j1", 1, 0))
        marks = {b"SLURMD_NODENAME=h0", f"SLURM_CONF={cluster.conf}".encode()}
        runner = [pid for pid, env in environments() if marks <= set(env) and is_runner(pid)]
        assert len(task) > 0 < len(runner)
        for pid in runner:
            os.kill(pid, signal.SIGSTOP)
        told = (TaskLost, TaskExited)  # also the latter, if its runner wakes before it is ended
        eventually(lambda: any(rig.news.all(kind, job="j1", rank=0) for kind in told), "no end")
        assert not set(alive_of(rig, "j1", 1, 0))
        if tasks == 2:
            rig.engine.stop("j1", 1, 20.0)
            assert rig.end_of("j1", 1).code == 7
            rig.says("j1", "saved", 1)
