"""Datasets reach the hosts of a far engine that have no folder of the store."""

import json
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.contract.engines import Rig, far_with, opened, order
from tests.support.s3 import S3, SECRET, s3_server
from topmast.adapters.clock import SystemClock
from topmast.adapters.engines.far.runner.calls import Home
from topmast.adapters.objects import StoreMover
from topmast.adapters.objects.reading import ReplicaReader
from topmast.adapters.objects.region import RegionStore
from topmast.model.messages import HostClosed, TaskLost, TaskPreparing
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
    return moved(f"{s3.bucket(bucket)}/store", tree)


def moved(url: str, tree: Path) -> Replica:
    """The same in a store with this URL."""
    mover = StoreMover({"east": url}, clock=SystemClock())
    mover.open(lambda _: None)
    mover.put_directory("east", "data/words", tree)
    mover.close()
    return Replica(url, "data/words")


def checksums(tree: dict[str, bytes] = TREE) -> list[str]:
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


def test_a_dataset_in_a_container_of_azure_reaches_the_hosts(
    azure: Callable[[], str], open_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    """By URLs where Azure takes them as they are signed, and by way of home for the others."""
    rig = open_rig()
    rig.datasets["words"] = replica = moved(f"{azure()}/store", put(tmp_path / "tree"))
    urls = ReplicaReader(RegionStore("east", replica.store), replica.path).urls(list(TREE))
    assert [bool(url) for url in urls] == [True, False, True, False]
    assert read(rig, "j1") == checksums()


@pytest.mark.parametrize("where", ["bucket", "folder"])
def test_hosts_that_reach_no_store_fetch_by_way_of_home(
    where: str, s3: S3, open_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    rig = open_rig(data="home")
    tree = put(tmp_path / "tree")
    rig.datasets["words"] = tree if where == "folder" else uploaded(s3, "by-home", tree)
    assert read(rig, "j1") == checksums()


def test_the_next_job_finds_it_in_the_cache(
    s3: S3, open_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    """What the bucket lost meanwhile is not asked for again, and tasks cannot write there."""
    rig = open_rig()
    rig.datasets["words"] = uploaded(s3, "cached", put(tmp_path / "tree"))
    assert read(rig, "j1") == checksums()
    assert any(
        "fetching" in news.why or "listing" in news.why for news in rig.news.all(TaskPreparing)
    )
    assert rig.news.all(TaskPreparing)[-1].why == ""
    for name in ("a", "deep/b c"):
        s3.delete(f"cached/store/data/words/{name}")
    assert read(rig, "j2") == checksums()
    assert len(list((tmp_path / "cache" / "sets").iterdir())) == 1


@pytest.mark.parametrize(
    ("story", "want"),
    [
        ("an object is missing", "words: object a is not in the store"),
        ("an object was changed", "words: object a was changed: its checksum is not that"),
        ("an object was cut", "words: object a was changed since it was listed"),
        ("the bucket is missing", "words: east: .* there is no such bucket"),
        ("the dataset is missing", "words: east: .* nothing is there"),
        ("the cache is small", "the dataset needs 5005004; it may hold 1000"),
        ("the cache is no folder", "the cache .*/file: "),
    ],
)
def test_what_cannot_be_fetched_says_why(
    story: str, want: str, s3: S3, open_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    """The attempt ends, no host is blamed, and the reason names what is at fault."""
    options: dict[str, Any] = {"cache_max_bytes": 1000} if "small" in story else {}
    if "no folder" in story:
        options["cache"] = str(tmp_path / "file")
        (tmp_path / "file").write_text("")
    rig = open_rig(**options)
    bucket = f"fault-{abs(hash(story))}"
    replica = uploaded(s3, bucket, put(tmp_path / "tree"))
    key = f"{bucket}/store/data/words/a"
    if "object is missing" in story:
        s3.delete(key)
    elif "changed" in story:
        s3.put(key, b"omega" * 1000)
    elif "cut" in story:
        s3.put(key, b"al")
    elif "bucket is missing" in story:
        replica = Replica("s3://nowhere/store", "words")
    elif "dataset is missing" in story:
        replica = Replica(replica.store, "data/others")
    rig.datasets["words"] = replica
    rig.engine.start_gang(order("j1", "true", datasets=("words",)))
    end = rig.lost("j1")
    assert end.blameless is True
    assert re.search(f"the host cannot be prepared: .*{want}", end.error), end.error
    assert not any("X-Amz" in message.error for message in rig.news.all(TaskLost))
    assert bool(rig.news.all(HostClosed)) == ("no folder" in story)


@pytest.mark.parametrize(
    ("story", "path", "code", "want"),
    [
        ("nothing may be listed", "", "AccessDenied", "words: .* permission denied \\(may"),
        ("credentials have ended", "", "ExpiredToken", "words: .* have they ended"),
        (
            "one object may not be read", "/store/data/words/a", "AccessDenied",
            "words: object a: the store refuses it: HTTP 403 AccessDenied",
        ),
        (
            "signatures end at once", "/store/data/words/a", "ExpiredToken",
            "words: object a: the store refuses it: HTTP 403 ExpiredToken",
        ),
    ],
)  # fmt: skip
def test_what_may_not_be_read_is_told(
    story: str,
    path: str,
    code: str,
    want: str,
    s3: S3,
    open_rig: Callable[..., Rig],
    tmp_path: Path,
) -> None:
    """The attempt ends and no host is blamed; when it may be read, a later one runs."""
    rig = open_rig()
    bucket = f"no-{abs(hash(story))}"
    rig.datasets["words"] = uploaded(s3, bucket, put(tmp_path / "tree"))
    with s3.refusing(bucket + path, code):
        rig.engine.start_gang(order("j1", "true", datasets=("words",)))
        end = rig.lost("j1")
    assert end.blameless is True
    assert re.search(want, end.error), end.error
    assert SECRET not in end.error
    assert read(rig, "j2") == checksums()


def test_hosts_are_given_new_signatures_when_theirs_have_ended(
    s3: S3, open_rig: Callable[..., Rig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing may be older than the signatures in it."""
    rig = open_rig()
    rig.datasets["words"] = uploaded(s3, "renewed", put(tmp_path / "tree"))
    refused: list[str] = []

    def once(environ: dict[str, Any], ask: Any = S3.fault) -> str:
        path = environ["PATH_INFO"]
        if "X-Amz-Signature" in environ["QUERY_STRING"] and path not in refused:
            refused.append(path)
            return "AccessDenied"
        return str(ask(s3, environ))

    monkeypatch.setattr(s3, "fault", once)
    assert read(rig, "j1") == checksums()
    assert len(refused) > 1


def test_another_secret_is_refused(
    s3: S3, open_rig: Callable[..., Rig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server of these tests checks signatures: without that the tests above prove little."""
    rig = open_rig()
    rig.datasets["words"] = uploaded(s3, "signed", put(tmp_path / "tree"))
    with monkeypatch.context() as patched:
        patched.setitem(s3.secrets, "test", "another-secret")
        rig.engine.start_gang(order("j1", "true", datasets=("words",)))
        assert "permission denied" in rig.lost("j1").error
    assert read(rig, "j2") == checksums()


def test_only_the_datasets_of_a_job_are_given_to_its_runners(
    s3: S3, open_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    """A token is good for the datasets of its attempt alone; nothing secret reaches a disk."""
    rig = open_rig()
    rig.datasets["words"] = uploaded(s3, "secrets", put(tmp_path / "tree"))
    rig.datasets["others"] = rig.datasets["words"]
    rig.engine.start_gang(order("j1", "sleep 1000", datasets=("words",)))
    rig.started("j1")
    ticket = json.loads((rig.folder / "scheduler" / "parts" / "1.json").read_text())["ticket"]
    home = Home(ticket)
    assert home.call("dataset?name=words")[0] == 200
    assert home.call("dataset?name=others")[0] == 404
    assert home.call("object?name=others&object=a&start=0&end=1")[0] == 404
    assert home.call("object?name=words&object=../../x&start=0&end=1")[0] == 422
    assert home.call("object?name=words&object=a&start=0&end=100000000")[0] == 400
    assert home.call("saved")[0] == home.call("piece?sha256=00")[0] == 422
    rig.engine.stop("j1", 1, 0.0)
    rig.end_of("j1")
    for file in rig.folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not [word for word in (b"X-Amz", SECRET.encode()) if word in content], file
