"""Snapshots of a working directory."""

import hashlib
import io
import os
import tarfile
import time
from pathlib import Path

import pytest

from topmast.adapters.archive import unpack
from topmast.client import workdir
from topmast.client.workdir import Snapshot, snapshot
from topmast.model.errors import InvalidInput


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small project."""
    place = tmp_path / "project"
    (place / "pkg").mkdir(parents=True)
    (place / "train.py").write_text("print('hello')\n")
    (place / "pkg" / "model.py").write_text("layers = 3\n")
    return place


def members(packed: Snapshot) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(packed.content), mode="r:gz") as archive:
        return {member.name: member for member in archive.getmembers()}


def test_holds_the_files(folder: Path) -> None:
    """Files come back as they were; the digest is that of the bytes to upload."""
    packed = snapshot(folder)
    assert list(members(packed)) == ["pkg", "pkg/model.py", "train.py"]
    assert packed.files == 2
    assert packed.digest == "sha256:" + hashlib.sha256(packed.content).hexdigest()
    archive = folder.parent / "snapshot.tar.gz"
    archive.write_bytes(packed.content)
    unpack(str(archive), str(folder.parent / "back"))
    assert (folder.parent / "back" / "pkg" / "model.py").read_text() == "layers = 3\n"


def test_the_same_files_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    """Times, owners, the order of creation and the name of the folder leave no trace."""
    first = snapshot(folder)
    other = tmp_path / "elsewhere"
    (other / "pkg").mkdir(parents=True)
    (other / "pkg" / "model.py").write_text("layers = 3\n")
    (other / "train.py").write_text("print('hello')\n")
    os.utime(other / "train.py", (1, 1))
    (other / "train.py").chmod(0o600)
    time.sleep(0.01)
    assert snapshot(other) == first


def test_what_may_be_run_stays_so(folder: Path) -> None:
    """Of the mode only the right to execute is kept."""
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o4755)
    found = members(snapshot(folder))
    assert found["run.sh"].mode == 0o755
    assert found["train.py"].mode == 0o644


def test_a_change_changes_the_digest(folder: Path) -> None:
    """Content, names and the right to execute all count."""
    digests = [snapshot(folder).digest]
    (folder / "train.py").write_text("print('world')\n")
    digests.append(snapshot(folder).digest)
    (folder / "train.py").chmod(0o755)
    digests.append(snapshot(folder).digest)
    (folder / "train.py").rename(folder / "main.py")
    digests.append(snapshot(folder).digest)
    assert len(set(digests)) == 4


def test_leaves_out_what_is_ignored(folder: Path) -> None:
    """The ignore file is honoured, and a folder left out is not even looked into."""
    (folder / ".topmastignore").write_text("*.ckpt\nsecret/\n")
    (folder / "last.ckpt").write_text("x")
    (folder / "secret").mkdir()
    (folder / "secret" / "leads-out").symlink_to("/etc/passwd")
    for name in (".git", ".venv", "pkg/__pycache__"):
        (folder / name).mkdir()
        (folder / name / "x").write_text("x")
    assert list(members(snapshot(folder))) == [".topmastignore", "pkg", "pkg/model.py", "train.py"]


def test_strange_names_survive(folder: Path) -> None:
    """Names are bytes to the system: spaces, newlines, and what is no UTF-8."""
    names = ["a b", "new\nline", "größe", "x" * 200, os.fsdecode(b"\xff\xfe")]
    for name in names:
        (folder / name).write_text(name[:1] * 3 if name.isascii() else "y")
    found = members(snapshot(folder))
    assert set(names) <= set(found)


def test_special_files_are_left_out(folder: Path) -> None:
    """A pipe would block whoever reads it."""
    os.mkfifo(folder / "pipe")
    assert "pipe" not in members(snapshot(folder))


@pytest.mark.parametrize("target", ["train.py", "./pkg/model.py", "pkg", "missing", "pkg/../pkg"])
def test_links_inside_stay_links(target: str, folder: Path) -> None:
    """A link within the folder is kept as one, even if what it names is missing."""
    (folder / "link").symlink_to(target)
    found = members(snapshot(folder))["link"]
    assert found.issym()
    assert Path(found.linkname) == Path(target)


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "..", "../x", "pkg/../../x", "../project/train.py", "link", "out/x"]
)
def test_links_that_lead_out_are_refused(target: str, folder: Path) -> None:
    """Neither the end of a link nor its way may be outside; a link to itself is refused as well."""
    (folder / ".topmastignore").write_text("out\n")
    (folder / "out").symlink_to("/etc")
    (folder / "link").symlink_to(target)
    with pytest.raises(InvalidInput, match=r"the link link -> .* leads out of the folder"):
        snapshot(folder)


def test_too_much_is_refused_with_the_largest_files(folder: Path) -> None:
    """Whoever packs a data set by mistake sees which files it is."""
    for size in range(1, 8):
        (folder / f"shard-{size}").write_bytes(b"x" * size * 1000)
    with pytest.raises(InvalidInput) as refusal:
        snapshot(folder, limit_bytes=10_000)
    line = str(refusal.value)
    assert line.startswith("workdir: the folder holds 28kB, more than 10kB; the largest files: ")
    assert "shard-7 7kB, shard-6 6kB, shard-5 5kB, shard-4 4kB, shard-3 3kB (" in line
    assert "shard-2" not in line
    assert ".topmastignore" in line


def test_what_is_ignored_does_not_count(folder: Path) -> None:
    """Naming the data in the ignore file mends it."""
    (folder / "data").write_bytes(b"x" * 20_000)
    (folder / ".topmastignore").write_text("data")
    assert snapshot(folder, limit_bytes=10_000).files == 3


def test_too_many_files_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder given by mistake is not walked to its end."""
    monkeypatch.setattr(workdir, "LIMIT_FILES", 2)
    with pytest.raises(InvalidInput, match="more than 2 files"):
        snapshot(folder)


def test_what_is_no_folder_is_refused(folder: Path) -> None:
    """A file, or nothing at all."""
    for name in ("train.py", "missing"):
        with pytest.raises(InvalidInput, match=f"workdir: .*{name} is not a folder"):
            snapshot(folder / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_named(folder: Path) -> None:
    """The error says which file it is."""
    (folder / "train.py").chmod(0)
    with pytest.raises(InvalidInput, match=r"train\.py cannot be read"):
        snapshot(folder)
