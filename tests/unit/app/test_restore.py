"""A restore goes where it says, into a folder that is new, and leaves nothing when it fails."""

import dataclasses
import gzip
import hashlib
import os
import random
import socket
import tarfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.cli.program import ROOT as PRETENDED
from topmast.adapters.store import Claim, open_journal, write_backup
from topmast.app.main import database
from topmast.cli import main
from topmast.ports import Audit, Record

ROOT = dataclasses.replace(PRETENDED, database=database)


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup of a server that has done nothing yet."""
    return backup_with(tmp_path)


def backup_with(folder: Path, *files: bytes, records: Sequence[Record] = ()) -> Path:
    place, file = folder / "before" / "journal.sqlite", folder / "topmast.backup"
    with closing(open_journal(place, claim=Claim())) as journal:
        if records:
            journal.append(records, Audit())
    named = [(f"sha256:{hashlib.sha256(data).hexdigest()}", data) for data in files]
    write_backup(place, file, named, 12.5, "the queue")
    return file


def test_without_a_folder_it_says_where_it_goes(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The usual one is named before anything is done; one that is named needs no word."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "usual"))
    state = tmp_path / "usual" / "topmast"
    assert main(ROOT, ["restore", str(backup), "--verify"]) == 0
    assert capfd.readouterr().err == ""
    assert main(ROOT, ["restore", str(backup)]) == 0
    assert capfd.readouterr().err == f"restores into the usual state folder, {state}\n"
    assert (state / "journal.sqlite").exists()
    assert main(ROOT, ["restore", str(backup), "--state", str(tmp_path / "named")]) == 0
    assert capfd.readouterr().err == ""


def test_a_folder_that_holds_anything_is_refused_and_kept(
    tmp_path: Path, backup: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """But for what its engines know of tasks, which the guide says to move there."""
    state = tmp_path / "state"
    (state / "engines").mkdir(parents=True)
    (state / "notes").write_text("mine")
    state.chmod(0o755)
    assert main(ROOT, ["restore", str(backup), "--state", str(state)]) == 1
    want = f"topmast: {state} is not empty (notes): name a new folder by --state\n"
    assert capfd.readouterr().err == want
    assert sorted(file.name for file in state.iterdir()) == ["engines", "notes"]
    assert state.stat().st_mode & 0o777 == 0o755
    (state / "notes").unlink()
    state.chmod(0o700)
    assert main(ROOT, ["restore", str(backup), "--state", str(state)]) == 0
    left = ["engines", "journal.sqlite", "role", "workdirs"]
    assert sorted(file.name for file in state.iterdir()) == left


def test_a_restore_that_fails_leaves_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Here no server could read one of its records."""
    state, there = tmp_path / "state", tmp_path / "there"
    there.mkdir(0o700)
    file = backup_with(tmp_path, b"a work folder", records=[Record(1, 1.0, "queue", b"{", b"[]")])
    for folder in (state, there):
        assert main(ROOT, ["restore", str(file), "--state", str(folder)]) == 1
        assert "a record cannot be read" in capfd.readouterr().err
    assert not state.exists()
    assert list(there.iterdir()) == []


def test_work_folders_are_restored_as_they_were(tmp_path: Path) -> None:
    """Uploads are judged when they come, and again before they are unpacked: a restore judges none."""
    member = tarfile.TarInfo("a")
    member.size = 9_000
    half = gzip.compress(member.tobuf() + random.Random(1).randbytes(9_000))[:4_000]
    file = backup_with(tmp_path, half)
    assert main(ROOT, ["restore", str(file), "--state", str(tmp_path / "state")]) == 0
    [kept] = (tmp_path / "state" / "workdirs").iterdir()
    assert kept.read_bytes() == half


def test_what_is_no_file_is_called_what_it_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A pipe is not waited for."""
    pipe, plug = tmp_path / "pipe", tmp_path / "plug"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(plug))
        for path, want in (
            (pipe, "a pipe; name the file of a backup"), (tmp_path / "none", "no such file"),
            (plug, "a socket; name the file of a backup"),
            (tmp_path, "a folder; name the file of a backup"),
            (Path("/dev/null"), "a device; name the file of a backup"),
            (plug / "under", "no such file"),
        ):  # fmt: skip
            assert main(ROOT, ["restore", str(path), "--verify"]) == 1
            assert capfd.readouterr().err == f"topmast: {path}: {want}\n"
