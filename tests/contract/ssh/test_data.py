"""Datasets in a bucket, and checkpoints there, with hosts behind SSH that have nothing of ours."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract import test_far_checkpoints as checkpoints
from tests.contract import test_far_data as data
from tests.contract.engines import HOSTS, Rig, opened, site_of
from tests.support.s3 import S3, s3_server
from tests.support.sshlab import SshLab
from topmast.adapters.engines.far.ssh import SshEngine, SshOptions
from topmast.adapters.engines.registry import read_options
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.messages import Checkpointed

NUMBERS = itertools.count()


@pytest.fixture
def s3(plain_lab: SshLab) -> Iterator[S3]:
    """A server on our end of the bridge, which the hosts reach."""
    address = next(iter(plain_lab.hosts.values())).address
    with s3_server(f"{address.rpartition('.')[0]}.1") as server:
        yield server


@pytest.fixture(params=["shared", "home"])
def rig(request: pytest.FixtureRequest, s3: S3, plain_lab: SshLab, tmp_path: Path) -> Iterator[Rig]:
    given = {
        **plain_lab.options, "folder": f".d{next(NUMBERS)}", "poll_s": "0.2", "lease_s": "60",
        "data": request.param, "cache": str(tmp_path / "cache"),
    }  # fmt: skip
    options = read_options(given, SshOptions, engine="ssh", field="options")
    hosts = tuple(HostSpec(name, "H100", 8) for name in HOSTS)
    cluster = ClusterSpec("east-1", hosts, "ssh", given)
    bucket = f"ssh-{request.param}"
    s3.bucket(bucket)

    def make(rig: Rig) -> SshEngine:
        rig.checkpoint_store = f"s3://{bucket}/kept"
        return SshEngine(cluster, rig.folder / "engine", site_of(rig), options)

    with opened(make, tmp_path) as rig:
        yield rig


def test_tasks_read_from_a_bucket_and_save_to_one(rig: Rig, s3: S3, tmp_path: Path) -> None:
    """Over two hosts, and once more by what the first attempt saved."""
    rig.datasets["words"] = data.uploaded(s3, "words", data.put(tmp_path / "tree"))
    assert data.read(rig, "j0") == data.checksums()
    checkpoints.begun(rig, 1, 2)
    checkpoints.says(rig, 1, "rank 0 from 0")
    rig.news.wait(Checkpointed, job="j1")
    checkpoints.stopped(rig, 1, 2)
    checkpoints.begun(rig, 2)
    checkpoints.says(rig, 2, "rank 0 from 100")
    checkpoints.stopped(rig, 2)
