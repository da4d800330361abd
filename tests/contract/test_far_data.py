"""Datasets reach the hosts of a far engine that have no folder of the store."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.engines import Rig, far_with, opened, order
from tests.support.s3 import S3, s3_server
from topmast.adapters.clock import SystemClock
from topmast.adapters.objects import StoreMover
from topmast.ports import Replica

READ = "cd $TOPMAST_DATASET_WORDS; find . -type f -exec sha256sum {} +"
TREE = {"a": b"alpha" * 1000, "deep/b c": b"beta", "deep/er/empty": b"", "ü": b"x" * 5_000_000}


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


def put(folder: Path, tree: dict[str, bytes] = TREE) -> Path:
    for name, content in tree.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def open_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Makes the engine of the test, with these options."""
    opening: list[Any] = []

    def make(**options: Any) -> Rig:
        options.setdefault("cache", str(tmp_path / "cache"))
        opening.append(opened(lambda rig: far_with(rig, lease_s=60.0, **options), tmp_path))
        return opening[-1].__enter__()  # type: ignore[no-any-return]

    yield make
    for one in opening:
        one.__exit__(None, None, None)


def uploaded(s3: S3, bucket: str, tree: Path) -> Replica:
    """A replica that the mover put into a bucket: with a manifest."""
    url = f"{s3.bucket(bucket)}/store"
    mover = StoreMover({"east": url}, clock=SystemClock())
    mover.open(lambda _: None)
    mover.put_directory("east", "data/words", tree)
    mover.close()
    return Replica(url, "data/words")


def checksums(tree: dict[str, bytes] = TREE) -> list[str]:
    from hashlib import sha256

    return sorted(f"{sha256(content).hexdigest()}  ./{name}" for name, content in tree.items())


def read(rig: Rig, job: str) -> list[str]:
    rig.engine.start_gang(order(job, READ, tasks=2, datasets=("words",)))
    for rank in range(2):
        end = rig.end_of(job, rank)
        assert end.code == 0, (end, rig.log(job, rank))
    assert sorted(rig.log(job, 0).splitlines()) == sorted(rig.log(job, 1).splitlines())
    return sorted(rig.log(job).splitlines())


def test_a_dataset_in_a_bucket_reaches_the_hosts(
    s3: S3, open_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    rig = open_rig()
    rig.datasets["words"] = uploaded(s3, "reach", put(tmp_path / "tree"))
    assert read(rig, "j1") == checksums()


@pytest.mark.parametrize("where", ["bucket", "folder"])
def test_hosts_that_reach_no_store_fetch_by_way_of_home(
    where: str, s3: S3, open_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    rig = open_rig(data="home")
    tree = put(tmp_path / "tree")
    rig.datasets["words"] = tree if where == "folder" else uploaded(s3, "by-home", tree)
    assert read(rig, "j1") == checksums()
