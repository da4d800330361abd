"""The contract of engines, kept by an engine over a real Slurm cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.contract.engines import HOSTS, Rig, eventually, opened, order, site_of
from tests.contract.test_engine import *  # noqa: F403
from tests.support.slurmlab import SlurmCluster, missing, slurm_cluster
from topmast.adapters.engines.far.slurm import SlurmEngine, SlurmOptions
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.messages import HostClosed, HostOpened, TaskExited
from topmast.model.plan import Seat


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """Hosts with the names that the contract uses."""
    if reason := missing():
        pytest.skip(reason)
    with slurm_cluster(
        "h", nodes=len(HOSTS), parameters=("SchedulerParameters=batch_sched_delay=1",)
    ) as lab:
        yield lab


@pytest.fixture  # type: ignore[no-redef]
def rig(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Rig]:
    def make(rig: Rig) -> SlurmEngine:
        hosts = tuple(HostSpec(name, "h100", 8) for name in HOSTS)
        options = SlurmOptions(conf=str(cluster.conf), poll_s=0.5, lease_s=60.0)
        spec = ClusterSpec("east-1", hosts, "slurm")
        return SlurmEngine(spec, rig.folder / "engine", site_of(rig), options)

    with opened(make, tmp_path) as rig:
        yield rig
    for job, *_ in cluster.jobs():
        cluster.run("scancel", job, check=False)


def test_a_gang_knows_its_ranks_and_hosts(rig: Rig) -> None:  # type: ignore[no-redef]
    """As in the contract, but for GPUs: Slurm gives each host some, and its tasks share them out."""
    said = "echo $RANK/$WORLD_SIZE $LOCAL_RANK $TOPMAST_HOST $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
    gang = order("j1", f"{said}; echo $MASTER_ADDR:$MASTER_PORT >&2", tasks=4)
    rig.engine.start_gang(gang)
    logs = []
    for rank in range(4):
        assert rig.end_of("j1", rank).code == 0
        logs.append(rig.log("j1", rank).splitlines())
    assert [log[0].rsplit(" ", 1)[0] for log in logs] == [
        "0/4 0 h0 h0", "1/4 0 h1 h1", "2/4 1 h0 h0", "3/4 1 h1 h1",
    ]  # fmt: skip
    gpus = [log[0].rsplit(" ", 1)[1] for log in logs]
    assert sorted(gpus[0::2]) == sorted(gpus[1::2]) == ["0", "1"]
    assert len({log[1] for log in logs}) == 1


MEET = """
import os, socket, time
home = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    socket.create_server(home).accept()
while os.environ["RANK"] == "1":
    try:
        socket.create_connection(home)
        break
    except OSError:
        time.sleep(0.1)
"""


def test_hosts_with_unequal_numbers_of_gpus_are_one_gang(rig: Rig) -> None:
    """A batch job for each, with what its host gives; it ends well only if its ranks meet."""
    said = "echo $SLURM_JOB_ID $TOPMAST_HOST $CUDA_VISIBLE_DEVICES $WORLD_SIZE"
    gang = order("j1", f"{said}; python3 -c '{MEET}'", tasks=2)
    seats = (Seat("trainer", 0, "h0", (0, 1, 2, 3)), Seat("trainer", 1, "h1", (0,)))
    rig.engine.start_gang(replace(gang, seats=seats))
    assert [rig.end_of("j1", rank).code for rank in range(2)] == [0, 0]
    logs = [rig.log("j1", rank).split() for rank in range(2)]
    assert [(log[1], len(log[2].split(",")), log[3]) for log in logs] == [
        ("h0", 4, "2"), ("h1", 1, "2"),
    ]  # fmt: skip
    assert logs[0][0] != logs[1][0], "two jobs of Slurm"


def _waiting(cluster: SlurmCluster) -> list[str]:
    return [job for job, _, state, *_ in cluster.jobs() if state == "PENDING"]


def test_what_waits_for_a_host_that_is_drained_is_given_back(
    rig: Rig, cluster: SlurmCluster
) -> None:
    """The gang is placed before the drain shows: it is told at the next looks, and leaves Slurm."""
    cluster.run("scontrol", "update", "NodeName=h1", "State=DRAIN", "Reason=fan")
    try:
        rig.engine.start_gang(order("j1", "echo ran", tasks=2))
        lost = [rig.lost("j1", rank) for rank in range(2)]
        closed = rig.news.wait(HostClosed, host="h1")
        eventually(lambda: not _waiting(cluster), "the part stays in Slurm")
    finally:
        cluster.run("scontrol", "update", "NodeName=h1", "State=RESUME")
    for one in lost:
        assert one.blameless
        assert "host h1" in one.error
        assert "fan" in one.error
        assert rig.news.messages.index(closed) < rig.news.messages.index(one), "told first"
    rig.news.wait(HostOpened, host="h1")
    rig.engine.start_gang(order("j1", "echo again", tasks=2, epoch=2))
    assert [rig.end_of("j1", rank).code for rank in range(2)] == [0, 0]
    assert [rig.log("j1", rank, epoch) for rank in range(2) for epoch in (1, 2)] == [
        "", "again\n", "", "again\n",
    ]  # fmt: skip


def test_jobs_of_others_under_the_names_of_attempts_are_not_taken_for_them(
    rig: Rig, cluster: SlurmCluster
) -> None:
    """A person with the same account knows these names, and may submit first."""
    rig.engine.start_gang(order("j1", "true"))
    assert rig.end_of("j1").code == 0
    name = max((int(id), name) for id, name, *_ in cluster.jobs() if "-j1-1-" in name)[1]

    def take(epoch: int, run: str, *options: str) -> str:
        taken = ["--parsable", "-o", "/dev/null", "-J", name.replace("-j1-1-", f"-j1-{epoch}-")]
        return cluster.run("sbatch", *taken, *options, text=f"#!/bin/sh\n{run}\n").strip()

    def state(job: str) -> str:
        return next(row[2] for row in cluster.jobs() if row[0] == job)

    ended, runs, held = take(2, "true"), take(3, "sleep 600"), take(4, "true", "--hold")
    eventually(lambda: state(ended) == "COMPLETED" and state(runs) == "RUNNING", "they do not run")
    assert state(held) == "PENDING"
    for epoch in (2, 3, 4):
        rig.engine.start_gang(order("j1", "echo ran", epoch=epoch))
        rig.news.wait(TaskExited, job="j1", epoch=epoch, code=0)
        assert rig.log("j1", 0, epoch) == "ran\n"
    assert {state(runs), state(held)} == {"CANCELLED"}, "they would be in the way"
