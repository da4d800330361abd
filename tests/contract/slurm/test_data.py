"""Datasets in a bucket, and checkpoints there, on a real Slurm cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract import test_far_checkpoints as checkpoints
from tests.contract import test_far_data as data
from tests.contract.engines import HOSTS, Rig, opened, site_of
from tests.support.s3 import S3, SECRET, s3_server
from tests.support.slurmlab import SlurmCluster, missing, slurm_cluster
from topmast.adapters.engines.far.slurm import SlurmEngine, SlurmOptions
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.messages import Checkpointed


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """Hosts with the names that the contract uses."""
    if reason := missing():
        pytest.skip(reason)
    with slurm_cluster(
        "h", nodes=len(HOSTS), parameters=("SchedulerParameters=batch_sched_delay=1",)
    ) as lab:
        yield lab


@pytest.fixture
def rig(cluster: SlurmCluster, s3: S3, tmp_path: Path) -> Iterator[Rig]:
    s3.bucket("slurm")

    def make(rig: Rig) -> SlurmEngine:
        rig.checkpoint_store = "s3://slurm/kept"
        hosts = tuple(HostSpec(name, "h100", 8) for name in HOSTS)
        options = SlurmOptions(
            conf=str(cluster.conf), poll_s=0.5, lease_s=60.0, cache=str(tmp_path / "cache")
        )
        spec = ClusterSpec("east-1", hosts, "slurm")
        return SlurmEngine(spec, rig.folder / "engine", site_of(rig), options)

    with opened(make, tmp_path) as rig:
        yield rig
    for job, *_ in cluster.jobs():
        cluster.run("scancel", job, check=False)


def test_tasks_read_from_a_bucket_and_save_to_one(
    rig: Rig, s3: S3, cluster: SlurmCluster, tmp_path: Path
) -> None:
    """Over two hosts; what Slurm shows to others has neither keys nor signatures."""
    rig.datasets["words"] = data.uploaded(s3, "words", data.put(tmp_path / "tree"))
    assert data.read(rig, "j0") == data.checksums()
    checkpoints.begun(rig, 1, 2)
    checkpoints.says(rig, 1, "rank 0 from 0")
    rig.news.wait(Checkpointed, job="j1")
    shown = "".join(cluster.run("scontrol", "show", "job", job) for job, *_ in cluster.jobs())
    assert shown
    assert not [word for word in ("X-Amz", SECRET) if word in shown]
    checkpoints.stopped(rig, 1, 2)
    checkpoints.begun(rig, 2)
    checkpoints.says(rig, 2, "rank 0 from 100")
    checkpoints.stopped(rig, 2)
