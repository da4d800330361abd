"""What the file system sees of a SQLite journal."""

import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from topmast.adapters.store import JournalFailure, SqlJournal, open_journal
from topmast.adapters.store.owner import OwnerLock
from topmast.model.errors import Conflict
from topmast.ports import Audit, HistoryRow, Record, Snapshot

WRITE_THREE = """
import os, sys
from topmast.adapters.store import open_journal
from topmast.ports import Audit, HistoryRow, Record, Snapshot
journal = open_journal(sys.argv[1])
for seq in (1, 2, 3):
    os.write(2, b"MARK append\\n")
    journal.append([Record(seq, 1.0, "queue", b"e", b"f")], Audit())
os.write(2, b"MARK end\\n")
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_commit_is_synced_before_append_returns_and_so_are_the_names(tmp_path: Path) -> None:
    path = tmp_path / "new" / "journal.sqlite3"
    tracing = ["strace", "-f", "-y", "-e", "trace=fsync,fdatasync,write"]
    script = [sys.executable, "-c", WRITE_THREE, str(path)]
    done = subprocess.run([*tracing, *script], capture_output=True, text=True, check=False)
    if "PTRACE" in done.stderr:
        pytest.skip("tracing is not permitted here")
    opening, *appends, end = done.stderr.split('"MARK ')
    synced = re.findall(r"sync\(\d+<([^>]*)>\) = 0", re.sub(r"\s+=", " =", opening))
    assert str(tmp_path) in synced, "the new folder's name"
    assert str(path.parent) in synced, "the database's name"
    assert [part[:6] for part in (*appends, end)] == ["append", "append", "append", 'end\\n"']
    for part in appends:
        assert re.search(rf"sync\(\d+<{re.escape(str(path))}-wal>\) += 0", part), part


def test_nobody_else_may_read_what_jobs_say(tmp_path: Path) -> None:
    path = tmp_path / "new" / "journal.sqlite3"
    journal = open_journal(path)
    journal.append([Record(1, 1.0, "queue", b"", b"")], Audit())
    files = list(path.parent.iterdir())
    assert len(files) == 4, "database, log, shared memory, lock"
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    journal.close()


def test_a_url_and_a_home_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    open_journal("~/one.sqlite3").close()
    open_journal(f"sqlite:///{tmp_path}/two%20words.sqlite3").close()
    names = sorted(file.name for file in tmp_path.glob("*.sqlite3"))
    assert names == ["one.sqlite3", "two words.sqlite3"]


def test_reading_a_name_with_url_characters(tmp_path: Path) -> None:
    path = tmp_path / "a?b#c%20d.sqlite3"
    journal = open_journal(path)
    journal.append([Record(1, 1.0, "queue", b"", b"")], Audit())
    assert len(list(journal.records())) == 1
    journal.close()
    reading = open_journal(path, read_only=True)
    assert len(list(reading.records())) == 1
    reading.close()


def test_a_lock_left_by_a_dead_process_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite3.lock").write_text("1\n")
    open_journal(tmp_path / "journal.sqlite3").close()


def test_a_child_that_outlives_the_owner_does_not_keep_the_lock(tmp_path: Path) -> None:
    """Tasks go on when the server ends; they must not keep it from starting again."""
    script = f"""
import os, sys, time
from pathlib import Path
from topmast.adapters.store.owner import OwnerLock
OwnerLock(Path({str(tmp_path / "lock")!r}))
child = os.fork()
if child == 0:
    time.sleep(30)
    os._exit(0)
print(child, flush=True)
os._exit(0)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.wait()
    try:
        OwnerLock(tmp_path / "lock").release()
    finally:
        os.kill(child, 9)
        parent.stdout.close()


def test_the_refusal_of_a_second_owner_here_does_not_free_the_first(tmp_path: Path) -> None:
    """Closing any descriptor of a locked file would."""
    lock = OwnerLock(tmp_path / "lock")
    with pytest.raises(Conflict):
        OwnerLock(tmp_path / "lock")
    script = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX|fcntl.LOCK_NB)"
    command = [sys.executable, "-c", script, str(tmp_path / "lock")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    lock.release()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_the_right_to_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(JournalFailure, match="ermission denied"):
        open_journal(tmp_path / "journal.sqlite3")


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ("update journal set facts = null where seq = 2", lambda j: list(j.records())),
        ("update journal set at_s = null where seq = 2", lambda j: list(j.records())),
        ("update snapshots set blob = null", lambda j: j.latest_snapshot()),
        ("update history set text = null", lambda j: j.history("j1")),
    ],
)
def test_a_value_that_is_gone_is_damage(
    tmp_path: Path, change: str, read: Callable[[SqlJournal], object]
) -> None:
    """As in a file whose pages were damaged; the database itself would not take it."""
    path = tmp_path / "journal.sqlite"
    journal = open_journal(path)
    lines = Audit(history=[HistoryRow(1.0, "j1", "submitted", "by ann")])
    journal.append([Record(seq, 1.0, "queue", b"e", b"f") for seq in (1, 2, 3)], lines)
    journal.save_snapshot(Snapshot(3, 1.0, {"queue": b"state"}))
    journal.close()
    for statements in (
        (
            "pragma writable_schema = on",
            "update sqlite_master set sql = replace(sql, 'NOT NULL', '')",
        ),
        (change,),
    ):
        with closing(sqlite3.connect(path)) as raw, raw:
            for statement in statements:
                raw.execute(statement)
    journal = open_journal(path, read_only=True)
    with pytest.raises(JournalFailure, match="damaged"):
        read(journal)
    journal.close()


def test_a_journal_on_a_read_only_medium_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite would make files beside it, and may not."""
    path = tmp_path / "state" / "journal.sqlite"
    journal = open_journal(path)
    journal.append([Record(1, 1.0, "queue", b"e", b"f")], Audit())
    journal.close()
    before = sorted(path.parent.iterdir())
    path.parent.chmod(0o555)
    if os.geteuid() == 0:  # whom no permission stops
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    journal = open_journal(path, read_only=True)
    assert [record.seq for record in journal.records()] == [1]
    assert sorted(path.parent.iterdir()) == before
    journal.close()
    path.parent.chmod(0o755)
