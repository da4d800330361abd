"""Archives of work folders: whole, durable, and each fetched once."""

import errno
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from topmast.model.errors import InvalidInput, Unavailable
from topmast.service.blobs import Blobs

EMPTY = bytes(1024)
"""An archive with nothing in it."""


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_an_archive_is_stored_once_under_its_digest(tmp_path: Path) -> None:
    """A second upload changes nothing; only the owner may look."""
    blobs = Blobs(tmp_path / "blobs")
    assert blobs.path(_digest(EMPTY)) is None
    assert blobs.put(_digest(EMPTY), EMPTY)
    assert not blobs.put(_digest(EMPTY), EMPTY)
    file = blobs.path(_digest(EMPTY))
    assert file is not None
    assert file.read_bytes() == EMPTY
    assert stat.S_IMODE((tmp_path / "blobs").stat().st_mode) == 0o700
    assert [path.name for path in (tmp_path / "blobs").iterdir()] == [file.name]


@pytest.mark.parametrize(
    "digest",
    ["", "sha256:", "sha256:../../etc/passwd", f"md5:{'0' * 64}", f"sha256:{'G' * 64}",
     f"sha256:{'0' * 64}\n", f"sha256:{'A' * 64}", f"sha256:{'0' * 63}"],
)  # fmt: skip
def test_what_is_no_digest_names_no_file(tmp_path: Path, digest: str) -> None:
    """No path leads out of the folder."""
    blobs = Blobs(tmp_path)
    assert blobs.path(digest) is None
    with pytest.raises(InvalidInput):
        blobs.put(digest, EMPTY)
    assert list(tmp_path.iterdir()) == []


def test_content_must_be_what_its_name_says(tmp_path: Path) -> None:
    """A transfer that was cut short is not kept."""
    blobs = Blobs(tmp_path)
    with pytest.raises(InvalidInput, match="another digest"):
        blobs.put(_digest(b"whole"), b"who")
    assert list(tmp_path.iterdir()) == []


def test_many_who_store_one_archive_at_once_all_succeed(tmp_path: Path) -> None:
    """Clusters of one region fetch the same folder at once: none fails, none reads a half or wrong file."""
    for turn in range(20):
        blobs, data = Blobs(tmp_path), EMPTY + turn.to_bytes() * 3_000_000
        seen: list[bytes] = []

        def store(blobs: Blobs = blobs, data: bytes = data, seen: list[bytes] = seen) -> bool:
            new = blobs.put(_digest(data), data)
            file = blobs.path(_digest(data))
            assert file is not None
            seen.append(file.read_bytes())
            return new

        with ThreadPoolExecutor(6) as pool:
            stored = list(pool.map(lambda _: store(), range(6)))
        assert sorted(stored) == [False] * 5 + [True]
        assert seen == [data] * 6
    assert len(list(tmp_path.iterdir())) == 20, "and nothing else is left"


def test_an_archive_is_fetched_once_for_all_who_wait(tmp_path: Path) -> None:
    """One load per digest; a load that fails is tried again by the next who asks."""
    blobs, loads = Blobs(tmp_path), []

    def load() -> bytes:
        loads.append(1)
        time.sleep(0.05)
        if len(loads) == 1:
            raise Unavailable("not now")
        return b"folder"

    def fetch() -> Path | None:
        try:
            return blobs.fetch(_digest(b"folder"), load)
        except Unavailable:
            return None

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: fetch(), range(6)))
    assert len(loads) == 2
    assert sorted(file is not None for file in found) == [False] + [True] * 5
    assert blobs.fetch("sha256:../x", load) is None
    with pytest.raises(InvalidInput, match="another digest"):
        blobs.fetch(_digest(b"other"), lambda: b"wrong")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"folder"]


def test_an_archive_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when it fails, and what a killed process left goes at the next start."""
    blobs = Blobs(tmp_path)

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match="No space left on device; make room"):
            blobs.put(_digest(EMPTY), EMPTY)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "left.part").write_bytes(b"half")
    assert Blobs(tmp_path).put(_digest(EMPTY), EMPTY)
    assert len(list(tmp_path.iterdir())) == 1


STORE_ONE = """
import hashlib, os, sys
from pathlib import Path
from topmast.service.blobs import Blobs
blobs = Blobs(Path(sys.argv[1]))
os.write(2, b"MARK put\\n")
data = bytes(1024)
blobs.put("sha256:" + hashlib.sha256(data).hexdigest(), data)
os.write(2, b"MARK end\\n")
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_an_archive_is_on_the_disk_before_its_upload_is_acknowledged(tmp_path: Path) -> None:
    """Its bytes first, then its name: a job that was acknowledged finds its folder after a crash."""
    root = tmp_path / "workdirs"
    tracing = ["strace", "-f", "-y", "-e", "trace=fsync,fdatasync,rename,write"]
    script = [sys.executable, "-c", STORE_ONE, str(root)]
    done = subprocess.run([*tracing, *script], capture_output=True, text=True, check=False)
    if "PTRACE" in done.stderr:
        pytest.skip("tracing is not permitted here")
    opening, put, _end = done.stderr.split('"MARK ')
    steps = re.findall(r"(sync|rename)\((?:\d+<|\")([^>\"]*).*= 0", put)
    part, name = f"{root}/", hashlib.sha256(EMPTY).hexdigest()
    assert [what for what, _ in steps] == ["sync", "rename", "sync"], put
    assert all(file.startswith(part) and file.endswith(".part") for _, file in steps[:2])
    assert f'"{root}/{name}"' in put
    assert steps[2][1] == str(root)
    assert f"<{tmp_path}>) " in opening, "the name of the folder itself"


class Database:
    """What two servers share."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def put_blob(self, digest: str, data: bytes) -> None:
        self.kept[digest] = data

    def blob(self, digest: str) -> bytes | None:
        return self.kept.get(digest)

    def blob_bytes(self) -> dict[str, int]:
        return {digest: len(data) for digest, data in self.kept.items()}


def test_the_next_server_has_what_the_one_before_was_given(tmp_path: Path) -> None:
    shared = Database()
    data = EMPTY
    digest = _digest(data)
    assert Blobs(tmp_path / "a", shared).put(digest, data)
    other = Blobs(tmp_path / "b", shared)
    found = other.path(digest)
    assert found is not None
    assert found.read_bytes() == data
    assert not other.put(digest, data)
    assert other.path(_digest(b"y")) is None
