"""Checkpoints in a bucket: restored before the tasks begin, and saved whole or not at all."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.engines import Rig, eventually, far_with, opened, order
from tests.support.s3 import S3, s3_server
from topmast.model.job import Checkpoint
from topmast.model.messages import Checkpointed

COUNT = """
cd $TOPMAST_CHECKPOINT_DIR
at=$(cat last 2>/dev/null || echo 0)
echo "rank $RANK from $at"
trap 'echo $((at + 100)) > new; mv new last; exit 0' TERM
if [ $RANK = 0 ]; then
    echo $((at + 1)) > new; mv new last
    echo '{"step": '$((at + 1))', "checkpoint": true}' >> $TOPMAST_PROGRESS_FILE
fi
while true; do sleep 0.05; done
"""
"""Saves one step at once, and a hundred when it is stopped."""


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["direct", "home"])
def rig(request: pytest.FixtureRequest, s3: S3, tmp_path: Path) -> Iterator[Rig]:
    options = {"data": "home"} if request.param == "home" else {}

    def make(rig: Rig) -> Any:
        rig.checkpoint_store = f"s3://{bucket}/kept"
        return far_with(rig, lease_s=15.0, **options)

    bucket = f"b{abs(hash(tmp_path))}"
    s3.bucket(bucket)
    with opened(make, tmp_path) as rig:
        yield rig


def begun(rig: Rig, epoch: int, tasks: int = 1, script: str = COUNT, path: str = "") -> None:
    checkpoint = Checkpoint(grace_s=20.0, path=path)
    rig.engine.start_gang(order("j1", script, tasks, epoch=epoch, checkpoint=checkpoint))


def stopped(rig: Rig, epoch: int, tasks: int = 1) -> None:
    rig.engine.stop("j1", epoch, 20.0)
    for rank in range(tasks):
        eventually(
            lambda rank=rank: any(  # type: ignore[misc]
                end.epoch == epoch and end.rank == rank for end in ends(rig)
            ),
            f"no end of rank {rank}",
        )


def ends(rig: Rig) -> list[Any]:
    from topmast.model.messages import TaskEvicted, TaskExited, TaskLost

    return [end for kind in (TaskExited, TaskLost, TaskEvicted) for end in rig.news.all(kind)]


def says(rig: Rig, epoch: int, word: str, rank: int = 0) -> None:
    eventually(
        lambda: word in rig.log("j1", rank, epoch),
        f"no {word!r} in {rig.log('j1', rank, epoch)!r}, {rig.news.messages}",
    )


def test_the_next_attempt_goes_on_from_what_the_last_one_saved(rig: Rig) -> None:
    """What was saved when it was told to stop is there, in an attempt on two hosts."""
    begun(rig, 1)
    says(rig, 1, "rank 0 from 0")
    told = rig.news.wait(Checkpointed, job="j1")
    assert told.step == 1
    stopped(rig, 1)
    begun(rig, 2, tasks=2)
    says(rig, 2, "rank 0 from 100", 0)
    says(rig, 2, "rank 1 from 100", 1)
    stopped(rig, 2, tasks=2)


def test_what_was_reported_survives_the_loss_of_the_host(rig: Rig) -> None:
    """A checkpoint is told when it is in the bucket, so that what was told is never lost."""
    import psutil

    begun(rig, 1)
    rig.news.wait(Checkpointed, job="j1")
    for process in psutil.process_iter():
        try:
            if process.environ().get("RIG", "").startswith(str(rig.folder)):
                process.kill()
        except psutil.Error:
            continue
    eventually(lambda: ends(rig), "no end")
    begun(rig, 2)
    says(rig, 2, "rank 0 from 1\n")
    stopped(rig, 2)


def test_files_of_all_hosts_make_one_checkpoint(rig: Rig, tmp_path: Path) -> None:
    """Each host's own files, deletions, links, modes and folders; what two have comes from rank 0."""
    first = (
        "cd $TOPMAST_CHECKPOINT_DIR; echo $RANK > own-$RANK; echo $RANK > both; mkdir -p d/e; "
        "head -c 40000000 /dev/zero > d/e/big-$RANK; ln -s own-$RANK link-$RANK; chmod 750 own-0 || true"
    )
    second = "cd $TOPMAST_CHECKPOINT_DIR; ls -lR; cat both link-0 link-1; rm -r d; echo new > own-1"
    third = "cd $TOPMAST_CHECKPOINT_DIR; find . | sort | xargs echo; cat own-1"
    for epoch, script in enumerate((first, second, third), 1):
        begun(rig, epoch, 2, script, path="deep")
        eventually(
            lambda: len([end for end in ends(rig) if end.epoch == epoch]) == 2,  # noqa: B023
            f"no ends of {epoch}",
        )
    assert all(end.code == 0 and not end.error for end in ends(rig)), ends(rig)
    assert rig.log("j1", 0, 2).endswith("0\n0\n1\n")
    assert "-rwxr-x---" in rig.log("j1", 0, 2)
    want = ". ./both ./link-0 ./link-1 ./own-0 ./own-1\nnew\n"
    assert rig.log("j1", 0, 3) == rig.log("j1", 1, 3) == want


def test_old_pieces_are_deleted(rig: Rig, s3: S3) -> None:
    script = (
        "cd $TOPMAST_CHECKPOINT_DIR; for i in 1 2 3 4; do echo $RANDOM$i > last; "
        "echo '{\"step\": '$i', \"checkpoint\": true}' >> $TOPMAST_PROGRESS_FILE; sleep 3; done"
    )
    begun(rig, 1, 1, script)
    assert rig.end_of("j1").code == 0
    bucket = rig.checkpoint_store.split("/")[2]
    keys = s3.keys(bucket)
    assert [key for key in keys if "/saved/" in key] == ["kept/j1/saved/1.json"]
    saved = json.loads(s3.get(f"{bucket}/kept/j1/saved/1.json"))
    assert saved["epoch"] == 1
    assert 2 <= len([key for key in keys if "/objects/" in key]) <= 4


def test_a_bucket_that_is_gone_is_told(rig: Rig, s3: S3) -> None:
    """The end says that the checkpoint was not saved; before there was one, nothing starts."""
    begun(rig, 1)
    rig.news.wait(Checkpointed, job="j1")
    bucket = rig.checkpoint_store.split("/")[2]
    for key in s3.keys(bucket):
        s3.delete(f"{bucket}/{key}")
    s3.delete(bucket)
    time.sleep(0.1)
    stopped(rig, 1)
    (end,) = ends(rig)
    assert "the checkpoint is not saved" in end.error
    assert "NoSuchBucket" in end.error or "there is no such bucket" in end.error
    begun(rig, 2)
    eventually(lambda: len(ends(rig)) == 2, "no second end")
    assert "the host cannot be prepared: the checkpoint: " in ends(rig)[-1].error
    assert "there is no such bucket" in ends(rig)[-1].error
