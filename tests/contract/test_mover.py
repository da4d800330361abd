"""What a mover of datasets keeps: whole or invisible, verified, resumable, within its store."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from obstore.store import MemoryStore

from topmast.adapters.clock import SystemClock
from topmast.adapters.objects import StoreError, StoreMover, layout, region, transfer
from topmast.adapters.objects.throttle import Halted
from topmast.model.dataset import Copy
from topmast.model.errors import Conflict, InvalidInput, NotFound, TopmastError, Unavailable
from topmast.model.messages import (
    CopyDone,
    CopyFailed,
    CopyProgress,
    DeletionFailed,
    Message,
    ReplicaDeleted,
    StartCopy,
)
from topmast.ports import Mover

IS_A_MOVER: type[Mover] = StoreMover
PATH = "vision/imagenet"
Tree = dict[str, bytes]

TREE: Tree = {
    "README": b"hello",
    "empty": b"",
    "train/0/a b.bin": bytes(range(256)) * 40,
    "train/0/ünïcode": b"\xff\xfe",
    "train/0/odd #?%20'\"$(x);.jpg": b"odd",
    "train/1/.hidden": b"h",
    "val/deep/er/and/deeper": b"x" * 100_000,
}


class Moving:
    """Two regions with a mover, and what it posted."""

    def __init__(self, east: str, west: str, **options: Any) -> None:
        self.stores = {"east": east, "west": west}
        self.options = options
        self.news: list[Message] = []
        self.arrived = threading.Condition()
        self.mover = self.start()

    def start(self) -> StoreMover:
        """A mover as after a restart of the process."""
        self.mover = StoreMover(self.stores, clock=SystemClock(), **self.options)
        self.mover.open(self.post)
        return self.mover

    def post(self, message: Message) -> None:
        with self.arrived:
            self.news.append(message)
            self.arrived.notify_all()

    def order(self, copy: str = "c1", *, bytes_per_s: float = 0.0, path: str = PATH) -> None:
        what = Copy(copy, "imagenet", "east", "west", 0, "test", 0.0)
        self.mover.start_copy(StartCopy(what, path, bytes_per_s))

    def copy(self, copy: str = "c1", **options: Any) -> CopyDone | CopyFailed:
        self.order(copy, **options)
        return self.result(copy)

    def result(self, copy: str = "c1", timeout_s: float = 60.0) -> CopyDone | CopyFailed:
        """The end of a copy, taken out of the news."""

        def ended() -> CopyDone | CopyFailed | None:
            for message in self.news:
                if isinstance(message, CopyDone | CopyFailed) and message.copy == copy:
                    return message
            return None

        with self.arrived:
            assert self.arrived.wait_for(ended, timeout_s), "no news of the copy"
            result = ended()
            assert result is not None
            self.news.remove(result)
            return result

    def fails(self, copy: str = "c1", **options: Any) -> str:
        """Why a copy failed: one line, and nothing to be seen of it at the target."""
        result = self.copy(copy, **options)
        assert isinstance(result, CopyFailed), result
        assert "\n" not in result.error
        return result.error

    def deletion(self, timeout_s: float = 60.0) -> ReplicaDeleted | DeletionFailed:
        """The end of a deletion, taken out of the news."""

        def ended() -> ReplicaDeleted | DeletionFailed | None:
            found = (m for m in self.news if isinstance(m, ReplicaDeleted | DeletionFailed))
            return next(found, None)

        with self.arrived:
            assert self.arrived.wait_for(ended, timeout_s), "no news of the deletion"
            result = ended()
            assert result is not None
            self.news.remove(result)
            return result

    def wait_for_progress(self, size_bytes: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.progress_bytes() >= size_bytes, 30)

    def progress_bytes(self) -> int:
        return max((m.bytes for m in self.news if isinstance(m, CopyProgress)), default=0)

    def folder(self, name: str, path: str = PATH) -> Path:
        return Path(self.stores[name]) / path

    def hidden(self, name: str) -> list[str]:
        """Files that the mover keeps in a region beside datasets."""
        top = Path(self.stores[name]) / layout.HIDDEN
        return sorted(str(p.relative_to(top)) for p in top.rglob("*") if p.is_file())


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    made = Moving(str(tmp_path / "east"), str(tmp_path / "west"))
    yield made
    made.mover.close()


@pytest.fixture(params=["directories", "buckets", "azure"])
def anywhere(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Moving]:
    """Directories, stores behind URLs as far as memory can stand in for them, and Azure's own."""
    if request.param == "directories":
        made = Moving(str(tmp_path / "east"), str(tmp_path / "west"))
    elif request.param == "azure":
        container = request.getfixturevalue("azure")
        made = Moving(f"{container()}/store", f"{container()}/store")
    else:
        buckets = {"s3://east": MemoryStore(), "s3://west": MemoryStore()}
        monkeypatch.setattr(region, "from_url", buckets.__getitem__)
        made = Moving("s3://east", "s3://west")
    yield made
    made.mover.close()


def write(folder: Path, tree: Tree) -> Path:
    for name, content in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def read(folder: Path) -> Tree:
    if not folder.exists():
        return {}
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def size(tree: Tree) -> int:
    return sum(map(len, tree.values()))


def blocks(count: int, size_bytes: int) -> Tree:
    chance = random.Random(5)
    return {f"part-{n:05}": chance.randbytes(size_bytes) for n in range(count)}


def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come about"
        time.sleep(0.01)


# --- a copy that goes well ------------------------------------------------------------------------


def test_a_dataset_arrives_whole_with_a_manifest(moving: Moving) -> None:
    write(moving.folder("east"), TREE)
    assert moving.copy() == CopyDone("c1", size(TREE))
    assert read(moving.folder("west")) == TREE
    assert moving.hidden("west") == [f"manifests/{PATH}.json"], "nothing else is left"
    manifest = json.loads((Path(moving.stores["west"]) / layout.manifest(PATH)).read_bytes())
    assert {entry["name"]: entry["sha256"] for entry in manifest["objects"]} == {
        name: hashlib.sha256(content).hexdigest() for name, content in TREE.items()
    }
    assert moving.mover.measure("west", PATH) == size(TREE)
    assert moving.mover.replica("west", PATH).folder == moving.folder("west")
    assert read(moving.folder("east")) == TREE
    assert moving.hidden("east") == []


def test_upload_copy_and_delete_in_any_store(anywhere: Moving, tmp_path: Path) -> None:
    tree = {**TREE, "large": random.Random(2).randbytes(9 * 2**20 + 7)}
    mover = anywhere.mover
    assert mover.put_directory("east", PATH, write(tmp_path / "files", tree)) == size(tree)
    assert mover.measure("east", PATH) == size(tree)
    assert anywhere.copy() == CopyDone("c1", size(tree))
    assert mover.measure("west", PATH) == size(tree)
    with structlog.testing.capture_logs() as logs:
        assert anywhere.copy() == CopyDone("c1", size(tree)), "a repetition finds it"
    assert logs == []
    mover.delete_replica("imagenet", "west", PATH)
    until(lambda: mover.measure("west", PATH) == 0)
    assert mover.measure("east", PATH) == size(tree)
    assert anywhere.copy("c2") == CopyDone("c2", size(tree))


def test_many_small_files(moving: Moving) -> None:
    tree = {f"{n % 7}/{n}": b"%d" % n for n in range(600)}
    write(moving.folder("east"), tree)
    assert moving.copy() == CopyDone("c1", size(tree))
    assert read(moving.folder("west")) == tree


def test_a_large_file_needs_little_memory(tmp_path: Path) -> None:
    """200 MB in a process that may grow by 120 MB."""
    script = """
        import os, resource, sys, threading
        from topmast.adapters.clock import SystemClock
        from topmast.adapters.objects import StoreMover
        from topmast.model.dataset import Copy
        from topmast.model.messages import CopyProgress, StartCopy
        top = sys.argv[1]
        os.makedirs(f"{top}/east/d")
        with open(f"{top}/east/d/large", "wb") as file:
            for _ in range(50):
                file.write(os.urandom(4 << 20))
        ended = threading.Event()
        def post(message):
            if not isinstance(message, CopyProgress):
                print(message, flush=True)
                ended.set()
        mover = StoreMover({"east": f"{top}/east", "west": f"{top}/west"}, clock=SystemClock())
        mover.open(post)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        mover.start_copy(StartCopy(Copy("c1", "d", "east", "west", 0, "", 0.0), "d", 0.0))
        ended.wait()
        mover.close()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    output = run_python(script, str(tmp_path)).splitlines()
    assert "CopyDone" in output[-2]
    assert int(output[-1]) < 120_000
    assert (tmp_path / "west/d/large").stat().st_size == 50 * 2**22


def test_the_rate_is_kept(moving: Moving) -> None:
    write(moving.folder("east"), blocks(8, 50_000))
    begun_s = time.monotonic()
    assert moving.copy(bytes_per_s=200_000) == CopyDone("c1", 400_000)
    assert 1.8 < time.monotonic() - begun_s < 5.0


def test_a_slow_link_is_used_evenly(moving: Moving) -> None:
    write(moving.folder("east"), {"one": b"x" * 16_000})
    begun_s = time.monotonic()
    moving.order(bytes_per_s=10_000)
    moving.wait_for_progress(4_000)
    assert time.monotonic() - begun_s < 1.2, "it does not wait for the whole file"
    assert moving.result() == CopyDone("c1", 16_000)
    assert 1.4 < time.monotonic() - begun_s < 4.0


def test_orders_without_a_rate_use_the_default(tmp_path: Path) -> None:
    moving = Moving(str(tmp_path / "east"), str(tmp_path / "west"), default_bytes_per_s=100_000)
    write(moving.folder("east"), blocks(2, 50_000))
    begun_s = time.monotonic()
    assert moving.copy() == CopyDone("c1", 100_000)
    assert time.monotonic() - begun_s > 0.9
    moving.mover.close()


def test_progress_rises_and_is_not_posted_too_often(moving: Moving) -> None:
    write(moving.folder("east"), blocks(30, 10_000))
    begun_s = time.monotonic()
    moving.copy(bytes_per_s=200_000)
    seen = [m.bytes for m in moving.news if isinstance(m, CopyProgress)]
    assert 2 <= len(seen) <= (time.monotonic() - begun_s) / 0.2 + 1
    assert seen == sorted(seen)


def test_the_same_copy_ordered_twice_runs_once(moving: Moving) -> None:
    write(moving.folder("east"), blocks(4, 25_000))
    moving.order(bytes_per_s=200_000)
    moving.order(bytes_per_s=200_000)
    assert moving.result() == CopyDone("c1", 100_000)
    time.sleep(0.3)
    assert not [m for m in moving.news if isinstance(m, CopyDone)]


def test_nothing_is_visible_before_everything_is(moving: Moving) -> None:
    tree = blocks(300, 1000)
    write(moving.folder("east"), tree)
    moving.order(bytes_per_s=500_000)
    seen = set()
    while not any(isinstance(m, CopyDone) for m in moving.news):
        seen.add(moving.mover.measure("west", PATH))
        time.sleep(0.002)
    assert seen <= {0, size(tree)}
    assert moving.mover.measure("west", PATH) == size(tree)


def test_links_to_files_within_the_store_are_followed(moving: Moving) -> None:
    write(moving.folder("east"), {"blobs/1": b"one"})
    (moving.folder("east") / "latest").symlink_to("blobs/1")
    assert moving.copy() == CopyDone("c1", 6)
    assert read(moving.folder("west")) == {"blobs/1": b"one", "latest": b"one"}
    assert not (moving.folder("west") / "latest").is_symlink()


# --- interruptions --------------------------------------------------------------------------------

COPY_FOREVER = """
    import sys, threading
    from topmast.adapters.clock import SystemClock
    from topmast.adapters.objects import StoreMover
    from topmast.model.dataset import Copy
    from topmast.model.messages import StartCopy
    mover = StoreMover({"east": sys.argv[1], "west": sys.argv[2]}, clock=SystemClock())
    mover.open(lambda message: print(message.bytes, flush=True))
    order = Copy("c1", "imagenet", "east", "west", 0, "test", 0.0)
    mover.start_copy(StartCopy(order, sys.argv[3], float(sys.argv[4])))
    threading.Event().wait()
"""


def copy_and_kill(moving: Moving, at_bytes: int, bytes_per_s: float) -> None:
    """Begin the copy in a process of its own, and kill it when it is so far."""
    arguments = [moving.stores["east"], moving.stores["west"], PATH, str(bytes_per_s)]
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(COPY_FOREVER), *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip().isdigit() and int(line) >= at_bytes:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_killed_in_the_middle_it_copies_the_rest_only(moving: Moving) -> None:
    tree = blocks(20, 200_000)
    write(moving.folder("east"), tree)
    copy_and_kill(moving, at_bytes=3_000_000, bytes_per_s=1_500_000)
    assert moving.mover.measure("west", PATH) == 0
    with structlog.testing.capture_logs() as logs:
        assert moving.copy() == CopyDone("c1", size(tree))
    assert read(moving.folder("west")) == tree
    assert moving.hidden("west") == [f"manifests/{PATH}.json"]
    (entry,) = logs
    assert entry["copied_bytes"] + entry["resumed_bytes"] == size(tree)
    assert entry["copied_bytes"] < size(tree) * 0.75


def test_a_half_written_file_of_a_killed_process_is_no_object(moving: Moving) -> None:
    tree = blocks(20, 200_000)
    write(moving.folder("east"), tree)
    copy_and_kill(moving, at_bytes=3_000_000, bytes_per_s=1_500_000)
    half = Path(moving.stores["west"]) / layout.staging("c1") / "objects" / "part-00019#1"
    half.write_bytes(b"half")  # what the library leaves; it refuses to read such a name
    assert moving.copy() == CopyDone("c1", size(tree))
    assert read(moving.folder("west")) == tree
    assert moving.hidden("west") == [f"manifests/{PATH}.json"]


def test_what_was_staged_is_verified_again_before_it_is_used(moving: Moving) -> None:
    tree = blocks(20, 200_000)
    write(moving.folder("east"), tree)
    copy_and_kill(moving, at_bytes=3_000_000, bytes_per_s=1_500_000)
    staged = Path(moving.stores["west"]) / layout.staging("c1") / "objects" / "part-00000"
    staged.write_bytes(b"\0" * 200_000)
    assert moving.copy() == CopyDone("c1", size(tree))
    assert read(moving.folder("west")) == tree


@pytest.mark.parametrize("moves", [1, 3, 5])
def test_stopped_while_objects_are_moved_into_place(
    moving: Moving, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    """The worst moment: some are in place, some are not, there is no manifest."""
    tree = {f"{n}": b"%d" % n for n in range(6)}
    write(moving.folder("east"), tree)
    move = region.RegionStore.move
    left = [moves]

    def stop_after_some(self: region.RegionStore, source: str, target: str) -> None:
        if not left[0]:
            raise Halted
        left[0] -= 1
        move(self, source, target)

    monkeypatch.setattr(region.RegionStore, "move", stop_after_some)
    moving.order()
    until(lambda: left[0] == 0 and not moving.mover._running)
    assert len(read(moving.folder("west"))) == moves
    assert moving.mover.measure("west", PATH) == 0, "what is there does not count"
    monkeypatch.undo()
    with structlog.testing.capture_logs() as logs:
        assert moving.copy() == CopyDone("c1", size(tree))
    assert read(moving.folder("west")) == tree
    assert logs[-1]["copied_bytes"] == 0
    assert moving.hidden("west") == [f"manifests/{PATH}.json"]


def test_close_stops_soon_and_the_next_start_goes_on(moving: Moving) -> None:
    tree = blocks(40, 20_000)
    write(moving.folder("east"), tree)
    moving.order(bytes_per_s=200_000)
    moving.wait_for_progress(200_000)
    begun_s = time.monotonic()
    moving.mover.close()
    assert time.monotonic() - begun_s < 1.0
    assert not [m for m in moving.news if isinstance(m, CopyDone | CopyFailed)]
    moving.start()
    with structlog.testing.capture_logs() as logs:
        assert moving.copy() == CopyDone("c1", size(tree))
    assert logs[0]["resumed_bytes"] >= 100_000
    assert read(moving.folder("west")) == tree


def test_an_object_changed_since_it_was_staged_is_copied_again(moving: Moving) -> None:
    tree = blocks(10, 20_000)
    write(moving.folder("east"), tree)
    moving.order(bytes_per_s=100_000)
    moving.wait_for_progress(100_000)
    moving.mover.close()
    tree["part-00000"] = b"new" + tree["part-00000"][3:]
    write(moving.folder("east"), tree)
    moving.start()
    assert moving.copy() == CopyDone("c1", size(tree))
    assert read(moving.folder("west")) == tree


# --- damage ---------------------------------------------------------------------------------------


def damage_on_arrival(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Flip a byte of a staged object, after it was written and before it is read back."""
    seal = region.RegionStore.seal
    left = [times]

    def flip(self: region.RegionStore, key: str) -> None:
        if "/objects/" in key and left[0]:
            left[0] -= 1
            assert self.root is not None
            content = bytearray((self.root / key).read_bytes())
            content[len(content) // 2] ^= 1
            (self.root / key).write_bytes(content)
        seal(self, key)

    monkeypatch.setattr(region.RegionStore, "seal", flip)


def test_an_object_damaged_on_arrival_is_copied_again(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = blocks(3, 5_000_000)
    write(moving.folder("east"), tree)
    damage_on_arrival(monkeypatch, times=2)
    assert moving.copy() == CopyDone("c1", size(tree))
    assert read(moving.folder("west")) == tree


def test_a_target_that_damages_everything_is_given_up(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(moving.folder("east"), {"one": b"x" * 1000})
    damage_on_arrival(monkeypatch, times=99)
    assert "damaged 3 times on arrival" in moving.fails()
    assert read(Path(moving.stores["west"])) == {}


def uploaded(moving: Moving, tmp_path: Path) -> Path:
    """A dataset with a manifest in the east; returns its folder."""
    moving.mover.put_directory("east", PATH, write(tmp_path / "files", TREE))
    return moving.folder("east")


def test_a_damaged_source_is_named(moving: Moving, tmp_path: Path) -> None:
    folder = uploaded(moving, tmp_path)
    (folder / "README").write_bytes(b"jello")
    error = moving.fails()
    assert error.startswith(f"east: {PATH}/README: differs from its checksum in the manifest")
    assert moving.mover.measure("west", PATH) == 0
    assert moving.hidden("west") == []
    write(folder, {"README": TREE["README"]})
    assert moving.copy("c2") == CopyDone("c2", size(TREE))


def test_a_source_file_of_another_size_or_gone_is_named(moving: Moving, tmp_path: Path) -> None:
    folder = uploaded(moving, tmp_path)
    (folder / "README").write_bytes(b"longer than it was")
    assert f"east: {PATH}/README: 18 bytes, but 5 in the manifest" in moving.fails()
    (folder / "README").unlink()
    assert f"east: {PATH}/README: not found, though in the manifest" in moving.fails("c2")


def test_a_damaged_manifest_at_the_source_is_named(moving: Moving, tmp_path: Path) -> None:
    uploaded(moving, tmp_path)
    (Path(moving.stores["east"]) / layout.manifest(PATH)).write_text("{")
    assert "the manifest is damaged" in moving.fails()


def test_a_source_that_changes_meanwhile_is_named(moving: Moving) -> None:
    write(moving.folder("east"), blocks(10, 20_000))
    moving.order(bytes_per_s=100_000)
    moving.wait_for_progress(60_000)
    write(moving.folder("east"), {"part-00000": b"changed"})
    result = moving.result()
    assert isinstance(result, CopyFailed)
    assert result.error == f"east: {PATH}/part-00000: changed while it was copied"
    assert moving.hidden("west") == []


# --- refusals -------------------------------------------------------------------------------------


def test_a_source_that_is_not_there(moving: Moving) -> None:
    assert moving.fails() == f"east: {PATH}: nothing is there"


def test_a_region_that_is_not_there(moving: Moving) -> None:
    moving.mover.start_copy(StartCopy(Copy("c1", "d", "east", "mars", 0, "", 0.0), PATH, 0.0))
    assert moving.result() == CopyFailed("c1", "region mars has no store")
    with pytest.raises(NotFound, match="region mars"):
        moving.mover.measure("mars", PATH)
    moving.mover.delete_replica("imagenet", "mars", PATH)


TRAVERSALS = ["", "/", "/etc", "..", "a/../../b", "a/./b", "a//b", "a\0b", "a\nb", ".topmast/x"]


@pytest.mark.parametrize("path", [*TRAVERSALS, "\udcff"], ids=repr)
def test_a_path_never_leaves_the_store(moving: Moving, tmp_path: Path, path: str) -> None:
    secret = write(tmp_path, {"b/secret": b"secret"})
    write(moving.folder("east"), TREE)
    assert "is not the path of a dataset" in moving.fails(path=path)
    for ask in (moving.mover.measure, moving.mover.replica):
        with pytest.raises(InvalidInput, match="not the path of a dataset"):
            ask("east", path)
    with pytest.raises(InvalidInput, match="not the path of a dataset"):
        moving.mover.put_directory("east", path, secret / "b")
    moving.mover.delete_replica("imagenet", "east", path)
    moving.mover.close()
    assert read(moving.folder("east")) == TREE
    assert read(tmp_path / "b") == {"secret": b"secret"}


@pytest.mark.parametrize("copy", ["../x", "", "a/b", ".hidden", "x" * 200])
def test_an_id_never_leaves_the_store(moving: Moving, copy: str) -> None:
    write(moving.folder("east"), TREE)
    assert "is no id of a copy" in moving.fails(copy)


def test_links_out_of_the_source_are_refused(moving: Moving, tmp_path: Path) -> None:
    write(tmp_path, {"outside/secret": b"secret"})
    folder = write(moving.folder("east"), {"one": b"1"})
    for name, target, reason in [
        ("file", tmp_path / "outside/secret", "link out of the store"),
        ("folder", tmp_path / "outside", "link out of the store"),
        ("inside", folder, "a link to a folder"),
        ("nothing", folder / "gone", "a link to nothing"),
    ]:
        (folder / name).symlink_to(target)
        error = moving.fails(f"c-{name}")
        assert reason in error
        assert name in error
        with pytest.raises(StoreError, match=reason):
            moving.mover.put_directory("west", "up", folder)
        (folder / name).unlink()
    os.mkfifo(folder / "pipe")
    assert "neither file nor folder" in moving.fails("c-pipe")


def test_a_dataset_behind_a_link_out_of_the_store_is_not_touched(
    moving: Moving, tmp_path: Path
) -> None:
    outside = write(tmp_path / "outside", {"imagenet/secret": b"secret"})
    for name in ("east", "west"):
        moving.folder(name).parent.parent.mkdir(exist_ok=True)
        moving.folder(name).parent.symlink_to(outside)
    assert "link out of the store" in moving.fails()
    for ask in (moving.mover.measure, moving.mover.replica):
        with pytest.raises(StoreError, match="link out of the store"):
            ask("east", PATH)
    moving.mover.delete_replica("imagenet", "west", PATH)
    write(tmp_path / "files", TREE)
    with pytest.raises(StoreError, match="link out of the store"):
        moving.mover.put_directory("west", PATH, tmp_path / "files")
    moving.mover.close()
    assert read(outside) == {"imagenet/secret": b"secret"}


@pytest.mark.parametrize("name", [b"new\nline", b"not-utf8-\xff", b"upload#1"])
def test_a_name_that_no_store_holds_is_refused_not_skipped(moving: Moving, name: bytes) -> None:
    folder = write(moving.folder("east"), {"one": b"1"})
    Path(os.fsdecode(bytes(folder) + b"/" + name)).write_bytes(b"x")
    error = moving.fails()
    assert repr(os.fsdecode(name))[1:-1] in error or os.fsdecode(name) in error


def test_what_the_mover_did_not_put_there_is_not_overwritten(moving: Moving) -> None:
    write(moving.folder("east"), TREE)
    mine = {"notes": b"mine"}
    write(moving.folder("west"), mine)
    assert "west: vision/imagenet: already holds objects (such as notes)" in moving.fails()
    assert read(moving.folder("west")) == mine


def test_an_older_replica_makes_way(moving: Moving) -> None:
    write(moving.folder("east"), {**TREE, "gone": b"gone", "train/2": b"a file"})
    assert isinstance(moving.copy(), CopyDone)
    shutil.rmtree(moving.folder("east"))
    tree = {**TREE, "README": b"jello", "train/2/now-a-folder": b"2"}
    write(moving.folder("east"), tree)
    assert moving.copy("c2") == CopyDone("c2", size(tree))
    assert read(moving.folder("west")) == tree


def test_only_directories_and_known_urls_are_stores(tmp_path: Path) -> None:
    urls = ["http://169.254.169.254/latest", "https://host/x", "ftp://host/x", "memory:///"]
    for url in (*urls, "hdfs://a/b", "gcs://b", "s3://b?region=x", "s3://b/#1"):
        with pytest.raises(InvalidInput, match="no store"):
            StoreMover({"east": url}, clock=SystemClock())
    moved = StoreMover({"east": f"file://{tmp_path}/a%20b"}, clock=SystemClock())
    assert moved.replica("east", "d").folder == tmp_path / "a b" / "d"


@pytest.mark.parametrize("url", ["s3://", "az://container/prefix", "az://", "gs://"])
def test_a_bucket_that_could_never_be_asked_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """Not by the first job that needs it."""
    for name in [name for name in os.environ if name.startswith(("AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    with pytest.raises(InvalidInput, match="east"):
        StoreMover({"east": url}, clock=SystemClock())


def small_disk(folder: Path, size_mb: int) -> Iterator[None]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not permitted here")
    yield
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def full_west(tmp_path: Path) -> Iterator[None]:
    yield from small_disk(tmp_path / "west", size_mb=4)


@pytest.mark.usefixtures("full_west")
@pytest.mark.parametrize("foreseen", [True, False], ids=["foreseen", "on the way"])
def test_a_full_disk_is_named_and_left_clean(
    moving: Moving, monkeypatch: pytest.MonkeyPatch, foreseen: bool
) -> None:
    write(moving.folder("east"), blocks(8, 1_000_000))
    if not foreseen:
        monkeypatch.setattr(region.RegionStore, "free_bytes", lambda _self: None)
    assert "the disk is full" in moving.fails()
    assert read(Path(moving.stores["west"])) == {}
    monkeypatch.undo()
    shutil.rmtree(moving.folder("east"))
    write(moving.folder("east"), TREE)
    assert moving.copy("c2") == CopyDone("c2", size(TREE))


def test_a_store_without_the_right_to_write(tmp_path: Path) -> None:
    """As a user without rights, whoever runs the tests."""
    script = """
        import os, sys, threading
        from topmast.adapters.clock import SystemClock
        from topmast.adapters.objects import StoreMover
        from topmast.model.dataset import Copy
        from topmast.model.messages import StartCopy
        if os.geteuid() == 0:
            os.setuid(65534)
        ended = threading.Event()
        mover = StoreMover({"east": sys.argv[1], "west": sys.argv[2]}, clock=SystemClock())
        mover.open(lambda message: (print(message, flush=True), ended.set()))
        mover.start_copy(StartCopy(Copy("c1", "d", "east", "west", 0, "", 0.0), "d", 0.0))
        ended.wait()
        mover.close()
    """
    top = Path("/tmp") / f"topmast-rights-{os.getpid()}"  # where anyone may go
    write(top / "east/d", {"one": b"1"})
    (top / "west").mkdir()
    (top / "west").chmod(0o500)
    top.chmod(0o755)
    try:
        output = run_python(script, str(top / "east"), str(top / "west"))
    finally:
        shutil.rmtree(top)
    assert "CopyFailed" in output
    assert "permission denied" in output


# --- deletions and uploads ------------------------------------------------------------------------


def test_a_dropped_replica_is_deleted_and_its_neighbours_are_not(moving: Moving) -> None:
    write(moving.folder("east"), TREE)
    write(moving.folder("west", "vision/imagenet-v2"), {"keep": b"keep"})
    moving.copy()
    moving.mover.delete_replica("imagenet", "west", PATH)
    until(lambda: not moving.folder("west").exists() and not moving.hidden("west"))
    assert moving.mover.measure("west", PATH) == 0
    assert read(moving.folder("west", "vision/imagenet-v2")) == {"keep": b"keep"}
    moving.mover.delete_replica("imagenet", "west", PATH)


def test_what_came_of_a_deletion_is_told_when_the_files_are_gone(
    anywhere: Moving, tmp_path: Path
) -> None:
    """Whoever hears of it may use the folder at once; and a repetition finds nothing to do."""
    files = write(tmp_path / "files", TREE)
    other = write(tmp_path / "other", {"one": b"1"})
    mover = anywhere.mover
    for source in (files, other):
        mover.put_directory("east", PATH, source)
        mover.delete_replica("imagenet", "east", PATH)
        assert anywhere.deletion() == ReplicaDeleted("east", PATH)
        assert mover.measure("east", PATH) == 0
    mover.delete_replica("imagenet", "east", PATH)
    assert anywhere.deletion() == ReplicaDeleted("east", PATH)


def test_a_deletion_that_fails_is_told(anywhere: Moving, tmp_path: Path) -> None:
    """It says why, and succeeds when what stood in its way is gone."""
    mover = anywhere.mover
    mover.put_directory("east", "datasets/good", write(tmp_path / "files", TREE))
    mover.delete_replica("evil", "east", "datasets")
    failed = anywhere.deletion()
    assert isinstance(failed, DeletionFailed)
    assert "another dataset is inside, at datasets/good" in failed.error
    mover.delete_replica("good", "east", "datasets/good")
    assert anywhere.deletion() == ReplicaDeleted("east", "datasets/good")
    mover.delete_replica("evil", "east", "datasets")
    assert anywhere.deletion() == ReplicaDeleted("east", "datasets")


def test_a_deletion_in_a_region_without_a_store_does_not_stay_open(moving: Moving) -> None:
    """The region left the fleet: there is nothing to be reached, now or later."""
    moving.mover.delete_replica("imagenet", "mars", PATH)
    assert moving.deletion() == ReplicaDeleted("mars", PATH)


def test_a_deletion_that_the_end_of_the_process_breaks_off_is_not_told(moving: Moving) -> None:
    """Nobody may take the folder for free: the next process does it."""
    write(moving.folder("east"), TREE)
    moving.mover.close()
    moving.mover.delete_replica("imagenet", "east", PATH)
    assert moving.news == []
    assert read(moving.folder("east")) == TREE
    moving.start()
    moving.mover.delete_replica("imagenet", "east", PATH)
    assert moving.deletion() == ReplicaDeleted("east", PATH)
    assert not moving.folder("east").exists()


def test_deleting_removes_links_and_not_what_they_point_to(moving: Moving, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", {"secret": b"secret"})
    folder = write(moving.folder("east"), {"one": b"1"})
    (folder / "link").symlink_to(outside)
    moving.mover.delete_replica("imagenet", "east", PATH)
    until(lambda: not folder.exists())
    assert read(outside) == {"secret": b"secret"}


def test_a_folder_with_another_dataset_inside_is_not_deleted(
    anywhere: Moving, tmp_path: Path
) -> None:
    """Whatever the catalogue says: the manifest of the inner one is there, so all of it stays."""
    source = write(tmp_path / "source", TREE)
    mover = anywhere.mover
    mover.put_directory("east", "datasets/good", source)
    with structlog.testing.capture_logs() as logs:
        mover.delete_replica("evil", "east", "datasets")
        until(lambda: any(row["event"] == "replica not deleted" for row in logs))
    assert "datasets/good" in next(r["error"] for r in logs if r["event"] == "replica not deleted")
    assert mover.measure("east", "datasets/good") == size(TREE)
    assert mover.measure("east", "datasets") == size(TREE), "not marked as deleted either"
    mover.delete_replica("good", "east", "datasets/good")
    until(lambda: mover.measure("east", "datasets/good") == 0)


@pytest.mark.parametrize("path", ["datasets", "datasets/good/part", "datasets/good/a/b"])
def test_nothing_is_uploaded_above_or_below_another_dataset(
    anywhere: Moving, tmp_path: Path, path: str
) -> None:
    """A copy replaces what is in its folder, so that it must be alone there."""
    source = write(tmp_path / "source", TREE)
    anywhere.mover.put_directory("east", "datasets/good", source)
    with pytest.raises(Conflict, match="another dataset is at datasets/good"):
        anywhere.mover.put_directory("east", path, write(tmp_path / "other", {"one": b"1"}))
    assert anywhere.mover.measure("east", "datasets/good") == size(TREE)


def test_names_that_look_like_manifests_are_no_neighbours(moving: Moving, tmp_path: Path) -> None:
    """The manifest of `a` is a file called a.json, where those below `a.json` would be."""
    source = write(tmp_path / "source", TREE)
    for path in ("a", "a.json"):
        assert moving.mover.put_directory("east", path, source) == size(TREE)
    moving.mover.delete_replica("a.json", "east", "a.json")
    until(lambda: moving.mover.measure("east", "a.json") == 0)
    assert moving.mover.measure("east", "a") == size(TREE)


@pytest.mark.parametrize(
    "west", ["{0}/east", "{0}/east/", "file://{0}/east", "{0}/link", "{0}/east/sub", "{0}"]
)
def test_no_two_regions_have_one_store(tmp_path: Path, west: str) -> None:
    """A replica dropped in one would be gone from the other; by whatever name the store goes."""
    (tmp_path / "east").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "east")
    stores = {"east": f"{tmp_path}/east", "west": west.format(tmp_path)}
    with pytest.raises(InvalidInput, match="store of region 'east'") as refused:
        StoreMover(stores, clock=SystemClock())
    assert refused.value.field == "regions.west.store"


def test_a_replica_dropped_while_it_is_copied(moving: Moving) -> None:
    write(moving.folder("east"), blocks(10, 20_000))
    moving.order(bytes_per_s=50_000)
    moving.wait_for_progress(20_000)
    moving.mover.delete_replica("imagenet", "west", PATH)
    assert moving.result() == CopyFailed("c1", "the replica was dropped while it was copied")
    until(lambda: not moving.hidden("west"))
    assert moving.copy("c2") == CopyDone("c2", 200_000)


def test_a_copy_ordered_after_a_deletion_is_not_deleted(moving: Moving) -> None:
    tree = blocks(300, 10)
    write(moving.folder("east"), tree)
    moving.copy()
    moving.mover.delete_replica("imagenet", "west", PATH)
    assert moving.copy("c2") == CopyDone("c2", size(tree))
    time.sleep(0.2)
    assert read(moving.folder("west")) == tree


def test_a_deletion_broken_off_goes_on_at_the_next_start(moving: Moving) -> None:
    write(moving.folder("east"), TREE)
    moving.copy()
    moving.mover.close()
    mark = Path(moving.stores["west"]) / layout.deleting(PATH)
    mark.parent.mkdir(parents=True)
    mark.write_text(json.dumps({"path": PATH}))
    assert moving.mover.measure("west", PATH) == 0, "invisible as soon as it is marked"
    moving.start()
    until(lambda: not moving.folder("west").exists() and not moving.hidden("west"))


def test_a_directory_is_uploaded_with_a_manifest(moving: Moving, tmp_path: Path) -> None:
    files = write(tmp_path / "files", TREE)
    assert moving.mover.put_directory("east", PATH, files) == size(TREE)
    assert read(moving.folder("east")) == TREE
    assert moving.hidden("east") == [f"manifests/{PATH}.json"]
    assert moving.mover.put_directory("east", PATH, files) == size(TREE), "again is fine"
    write(files, {"more": b"more"})
    with pytest.raises(Conflict, match="another dataset is there: enter it without a source"):
        moving.mover.put_directory("east", PATH, files)
    assert read(moving.folder("east")) == TREE


def test_a_dry_run_refuses_what_the_upload_would_refuse_and_changes_nothing(
    moving: Moving, tmp_path: Path
) -> None:
    """It is the look of the upload itself: links, pipes, what is at the target already."""
    files = write(tmp_path / "files", TREE)

    def both_refuse(source: Path, path: str = PATH) -> str:
        told = []
        for dry_run in (True, False):
            with pytest.raises(TopmastError) as caught:
                moving.mover.put_directory("east", path, source, dry_run=dry_run)
            told.append(str(caught.value))
        assert told[0] == told[1]
        return told[0]

    before = read(Path(moving.stores["east"]))
    assert moving.mover.put_directory("east", PATH, files, dry_run=True) == size(TREE)
    assert read(Path(moving.stores["east"])) == before
    (files / "out").symlink_to("/etc/passwd")
    assert "link out of the store" in both_refuse(files)
    (files / "out").unlink()
    os.mkfifo(files / "pipe")
    assert "neither file nor folder" in both_refuse(files)
    (files / "pipe").unlink()
    (tmp_path / "none").mkdir()
    assert "nothing is there" in both_refuse(tmp_path / "none")
    assert "/proc/self: " in both_refuse(Path("/proc/self"))
    moving.mover.put_directory("east", PATH, files)
    write(files, {"more": b"more"})
    assert "another dataset is there" in both_refuse(files)
    assert "another dataset is at" in both_refuse(files, f"{PATH}/below")


def test_a_dry_run_looks_at_so_many_files_and_for_so_long(
    moving: Moving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write(tmp_path / "files", {f"{n}": b"1" for n in range(20)})
    assert moving.mover.put_directory("east", PATH, files, dry_run=True) == 20
    for name, most in (("CHECK_FILES_MAX", 19), ("CHECK_FOR_S", -1.0)):
        with monkeypatch.context() as patch:
            patch.setattr(transfer, name, most)
            with pytest.raises(InvalidInput, match="too large for a dry run"):
                moving.mover.put_directory("east", PATH, files, dry_run=True)
    monkeypatch.setattr(transfer, "CHECK_FILES_MAX", 19)
    assert moving.mover.put_directory("east", PATH, files) == 20


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder with a file that lies 1,200 folders deep."""
    top, here = tmp_path / "deep", Path.cwd()
    top.mkdir()
    try:  # a whole path would be too long for one call
        os.chdir(top)
        for _ in range(1_200):
            Path("d").mkdir()
            os.chdir("d")
        Path("x").write_bytes(b"deep")
        os.chdir(here)
        yield top
    finally:
        os.chdir(here)
        subprocess.run(["rm", "-rf", top], check=True)  # what else tidies up calls itself


def test_a_dataset_lies_as_deep_as_a_disk_holds(moving: Moving, deep: Path) -> None:
    """No step of it calls itself for each folder."""
    assert moving.mover.put_directory("east", PATH, deep) == 4
    assert moving.mover.put_directory("east", PATH, deep) == 4, "again is fine"
    moving.mover.delete_replica("imagenet", "east", PATH)
    until(lambda: not moving.folder("east").exists() and not moving.hidden("east"))


def test_what_cannot_be_uploaded(moving: Moving, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for source, reason in [("empty", "nothing is there"), ("file", "is a file")]:
        with pytest.raises(TopmastError, match=reason):
            moving.mover.put_directory("east", PATH, tmp_path / source)
    moving.mover.close()
    with pytest.raises(Unavailable, match="closed"):
        moving.mover.put_directory("east", PATH, write(tmp_path / "files", TREE))


def test_what_belongs_to_the_store_is_no_source_for_it(moving: Moving, tmp_path: Path) -> None:
    """Neither the store, nor what is in it or around it, by whatever name; another store may be one."""
    store = Path(moving.stores["east"])
    write(moving.folder("east"), TREE)
    (tmp_path / "link").symlink_to(store)
    outside = "name a folder outside of it"
    inside = "leave source out, and give the path in the store"
    for source, what, remedy in (
        (store, "is", inside), (moving.folder("east"), "lies in", inside),
        (tmp_path / "link" / "..", "contains", outside), (tmp_path / "link", "is", inside),
        (tmp_path, "contains", outside),
    ):  # fmt: skip
        for act in (
            partial(moving.mover.put_directory, "east", "other", source),
            partial(moving.mover.put_directory, "east", "other", source, dry_run=True),
            partial(moving.mover.check_source, "east", str(source)),
        ):
            with pytest.raises(InvalidInput) as refused:
                act()
            want = f"source: '{source}' {what} the store of region 'east' ({remedy})"
            assert str(refused.value) == want
    assert read(store / "other") == {}
    assert moving.mover.put_directory("west", "other", moving.folder("east")) == size(TREE)


def test_a_process_that_must_end_does_not_wait_for_a_slow_copy(moving: Moving) -> None:
    write(moving.folder("east"), blocks(2, 100_000))
    script = COPY_FOREVER.replace("threading.Event().wait()", "threading.Event().wait(0.3)")
    begun_s = time.monotonic()
    run_python(script, moving.stores["east"], moving.stores["west"], PATH, "2000")
    assert time.monotonic() - begun_s < 20


def run_python(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
