"""Datasets in a bucket, and checkpoints there, on a real Kubernetes: pods reach the bucket themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract import test_far_checkpoints as checkpoints
from tests.contract import test_far_data as data
from tests.contract.engines import HOSTS, Rig, opened, order, site_of
from tests.support.kubelab.image import NAME
from tests.support.kubelab.lab import Lab
from tests.support.s3 import S3, SECRET, s3_server
from topmast.adapters.engines.far.kubernetes.engine import KubernetesEngine
from topmast.adapters.engines.far.kubernetes.options import KubernetesOptions
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.messages import Checkpointed


@pytest.fixture(scope="module")
def s3(lab: Lab) -> Iterator[S3]:
    """On the network of the nodes."""
    with s3_server(lab.address) as server:
        server.bucket("pods")
        yield server


@pytest.fixture(scope="module")
def cache(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume that outlives pods, as a site's is; every pod sees it at the same path."""
    folder = tmp_path_factory.mktemp("cache")
    lab.share(folder, "cache")
    return folder


@pytest.fixture
def rig(lab: Lab, s3: S3, cache: Path, tmp_path: Path) -> Iterator[Rig]:
    def make(rig: Rig) -> KubernetesEngine:
        rig.checkpoint_store = "s3://pods/kept"
        hosts = tuple(HostSpec(name, "H100", 8) for name in HOSTS)
        options = KubernetesOptions(
            kubeconfig=str(lab.kubeconfig), mount={str(cache): "cache"}, user=0, group=0,
            listen=f"{lab.address}:0", poll_s=0.5, lease_s=60.0, cache=str(cache),
        )  # fmt: skip
        spec = ClusterSpec("east-1", hosts, "kubernetes", image=NAME)
        return KubernetesEngine(spec, rig.folder / "engine", site_of(rig), options)

    with opened(make, tmp_path) as rig:
        yield rig


def test_pods_read_from_a_bucket_through_the_cache_and_save_to_one(
    rig: Rig, s3: S3, lab: Lab, cache: Path, tmp_path: Path
) -> None:
    """Over two nodes; what Kubernetes shows to others has neither keys nor signatures."""
    rig.datasets["words"] = data.uploaded(s3, "words", data.put(tmp_path / "tree"))
    assert data.read(rig, "j0") == data.checksums()
    assert list((cache / "sets").iterdir())
    for name in data.TREE:
        s3.delete(f"words/store/data/words/{name}")
    assert data.read(rig, "j9") == data.checksums(), "pods of a later job find it in the cache"
    checkpoints.begun(rig, 1, 2)
    checkpoints.says(rig, 1, "rank 0 from 0")
    rig.news.wait(Checkpointed, job="j1")
    shown = lab.kubectl("get", "pods", "-o", "yaml") + lab.kubectl("get", "events", "-o", "yaml")
    assert "j1-1" in shown
    assert not [word for word in ("X-Amz", SECRET) if word in shown]
    checkpoints.stopped(rig, 1, 2)
    checkpoints.begun(rig, 2)
    checkpoints.says(rig, 2, "rank 0 from 100")
    checkpoints.stopped(rig, 2)


def test_what_pods_may_not_read_is_told(rig: Rig, s3: S3, tmp_path: Path) -> None:
    """The attempt ends, no node is blamed, and nothing of the job ran; a later one runs."""
    tree = {"a": b"what no other test has put into the cache"}
    rig.datasets["words"] = data.uploaded(s3, "denied", data.put(tmp_path / "tree", tree))
    with s3.refusing("denied/store/data/words/a", "AccessDenied"):
        rig.engine.start_gang(order("j1", "echo ran", datasets=("words",)))
        end = rig.lost("j1")
    assert end.blameless is True
    assert "words: object a: the store refuses it: HTTP 403 AccessDenied" in end.error
    assert data.read(rig, "j2") == data.checksums(tree)
