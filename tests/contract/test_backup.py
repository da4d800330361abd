"""Checks, copies, backups and restores of a database, whichever it is: all of it, or one clear line."""

import hashlib
import os
import random
import shutil
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support.stores import Store
from topmast.adapters.store import (
    Claim,
    JournalFailure,
    SqlJournal,
    copy_database,
    examined,
    files_of,
    open_journal,
    restore,
    upgrade,
    verify,
    write_backup,
)
from topmast.adapters.store import schema as versions
from topmast.adapters.store.checksum import crc_of
from topmast.adapters.store.copying import columns_in
from topmast.adapters.store.postgresql import OWNER_KEY
from topmast.adapters.store.tables import (
    ACTS,
    BLOBS,
    HISTORY,
    JOURNAL,
    LEADER,
    METADATA,
    SNAPSHOTS,
    VERSION,
)
from topmast.model.errors import Conflict, NotFound, TopmastError
from topmast.ports import ActRow, AttemptRow, Audit, HistoryRow, JobRow, Record, Snapshot

FILES = tuple((f"sha256:{hashlib.sha256(data).hexdigest()}", data) for data in (b"one", b"another"))
NOTHING = Audit()


def records(first: int, last: int) -> list[Record]:
    return [
        Record(n, n + 0.25, "queue", b"\0event\xff", b"[%d]" % n) for n in range(first, last + 1)
    ]


def audit(first: int, last: int) -> Audit:
    numbers = range(first, last + 1)
    return Audit(
        [HistoryRow(n + 0.5, f"j{n}", "submitted", "Jürgen's\n%s") for n in numbers],
        [
            AttemptRow(f"j{n}", 1, "vision", "ada", "east", "e1", "H100", 8000, 1.0, 2.0, 2.0, "ok")
            for n in numbers
        ],
        [JobRow(f"j{n}", n, 3.0, "{}") for n in numbers],
        [ActRow("ada", "token", "::1", "r", "submit", f"j{n}", "vision", "", "{}", "done", 1.0)
         for n in numbers],
    )  # fmt: skip


@pytest.fixture
def filled(store: Store) -> Store:
    """A database of two leaders with rows in all tables, more than go by single inserts."""
    with closing(store.open(claim=Claim("ada:1", "http://a", "f1"))) as journal:
        journal.append(records(1, 1_500), audit(1, 1_200))
        journal.save_snapshot(Snapshot(1_500, 1_500.0, {"queue": b"q" * 9_999, "placer/e": b"\0"}))
    with closing(store.open(claim=Claim("bob:2", "http://b", "f1"))) as journal:
        journal.append(records(1_501, 1_510), audit(1_201, 1_203))
        journal.set_option("profile", "{}")
        journal.put_blob(*FILES[0])
    return store


@pytest.fixture
def empty(store: Store, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A database without anything, of the other kind."""
    if not store.target.startswith("postgresql"):
        yield request.getfixturevalue("database")
        return
    path = tmp_path / "other" / "journal.sqlite"
    yield Store(str(path), sa.create_engine(f"sqlite:///{path}", poolclass=sa.NullPool))


def content(target: str | Path) -> list[object]:
    """Everything that a journal tells."""
    with closing(open_journal(target, read_only=True)) as journal:
        return [
            list(journal.records(after=1_500)),
            journal.latest_snapshot(),
            journal.attempts(0, 1e12),
            journal.finished_jobs(limit=10_000),
            [journal.history(f"j{n}") for n in (1, 700, 1_203)],
            journal.history_count(),
            journal.option("profile"),
            journal.blob(FILES[0][0]),
            journal.leader().holder,
        ]


def backup_of(store: Store, tmp_path: Path) -> Path:
    file = tmp_path / "topmast.backup"
    write_backup(store.target, file, FILES, 12.5, "the queue")
    return file


# --- copies ---------------------------------------------------------------------------------------


def test_a_copy_in_the_other_kind_of_database_tells_the_same(filled: Store, empty: Store) -> None:
    before = content(filled.target)
    sums = copy_database(filled.target, empty.target, FILES)
    assert sums["journal"].rows == 1_510
    assert sums["acts"].rows == 1_203
    assert content(empty.target) == before
    with closing(empty.open(claim=Claim("cleo:3"))) as journal:
        assert journal.epoch == 3
        journal.append(records(1_511, 1_511), audit(1_204, 1_204))
        assert journal.history_count() == 1_204
    assert examined(empty.target).faults == ()


def test_work_folders_are_copied_into_a_database_that_servers_share(
    filled: Store, empty: Store
) -> None:
    copy_database(filled.target, empty.target, FILES)
    shared = empty.target.startswith("postgresql")
    with closing(open_journal(empty.target, read_only=True)) as journal:
        assert journal.blob(FILES[1][0]) == (b"another" if shared else None)
        there = {digest: len(data) for digest, data in FILES}
        first = FILES[0][0]
        assert journal.blob_bytes() == (there if shared else {first: there[first]})


def test_a_target_that_is_not_empty_is_refused_and_kept(filled: Store, empty: Store) -> None:
    with closing(empty.open()) as journal:
        journal.append(records(1, 1), NOTHING)
    with pytest.raises(Conflict, match="is not empty: name a new database"):
        copy_database(filled.target, empty.target, ())
    with closing(open_journal(empty.target, read_only=True)) as journal:
        assert list(journal.records()) == records(1, 1)


def test_a_table_that_the_source_lacks_is_told_of_the_source(filled: Store, empty: Store) -> None:
    """It is damaged, and not the new one."""
    filled.tamper(sa.text("DROP TABLE acts"))
    with pytest.raises(JournalFailure) as told:
        copy_database(filled.target, empty.target, ())
    named, _, rest = str(told.value).partition(" lacks ")
    assert rest == "table acts: the database is damaged: restore a backup"
    assert named.endswith(filled.target.rpartition("/")[2])


def test_a_copy_that_fails_leaves_its_target_empty(filled: Store, empty: Store) -> None:
    """What PostgreSQL would not take of a row, or a file that cannot be read any more."""

    def spoiled() -> Iterator[tuple[str, bytes]]:
        yield FILES[1]
        raise OSError(5, "Input/output error")

    if not empty.target.startswith("postgresql"):
        pytest.skip("files are copied into PostgreSQL alone")
    with pytest.raises(JournalFailure, match="Input/output error"):
        copy_database(filled.target, empty.target, spoiled())
    copy_database(filled.target, empty.target, ())


@pytest.mark.parametrize("act", ["copy", "upgrade", "copy into", "restore"])
def test_a_database_in_use_is_neither_copied_nor_upgraded(
    act: str, filled: Store, empty: Store, tmp_path: Path
) -> None:
    """The remedy is one that these commands have: they do not stand by."""
    backup = tmp_path / "backup"
    write_backup(filled.target, backup, (), 0.0, "queue")
    used = filled if act in ("copy", "upgrade") else empty
    acts: dict[str, Callable[[], object]] = {
        "copy": lambda: copy_database(filled.target, empty.target, ()),
        "upgrade": lambda: upgrade(filled.target),
        "copy into": lambda: copy_database(filled.target, empty.target, ()),
        "restore": lambda: restore(backup, empty.target),
    }
    with closing(used.open()), pytest.raises(Conflict, match="in use by") as refused:
        acts[act]()
    assert "standby" not in str(refused.value)
    if used.target.startswith("postgresql"):
        remedy = "stop that first" if used is filled else "name an empty database"
        assert f"): {remedy}" in str(refused.value)


def test_a_database_that_a_server_waits_for_is_not_copied(database: Store, tmp_path: Path) -> None:
    """It would begin to lead on the database that was just left."""
    leader = database.open()
    won: list[SqlJournal] = []
    waits = threading.Thread(target=lambda: won.append(database.open(claim=Claim(waits=True))))
    waits.start()
    _until_waiting(database)
    leader._lease.lasts_s = None
    with pytest.raises(Conflict):
        copy_database(database.target, tmp_path / "copy.sqlite", ())
    leader.close()
    waits.join()
    won[0].close()


def _until_waiting(database: Store) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with database.engine.connect() as connection:
        while not connection.exec_driver_sql(waiting).scalar():
            connection.rollback()


# --- backups --------------------------------------------------------------------------------------


def test_a_backup_restores_into_the_other_kind_of_database(
    filled: Store, empty: Store, tmp_path: Path
) -> None:
    file = backup_of(filled, tmp_path)
    assert file.stat().st_mode & 0o077 == 0
    assert [f.name for f in tmp_path.iterdir() if f.name.startswith((".", "topmast"))] == [
        file.name
    ]
    manifest = restore(file, empty.target)
    assert (manifest.role, manifest.made_at_s) == ("the queue", 12.5)
    assert manifest.files == tuple(digest for digest, _ in FILES)
    assert content(empty.target) == content(filled.target)
    assert dict(files_of(file)) == dict(FILES)


def test_the_leader_after_a_restore_has_an_epoch_above_those_after_the_backup(
    filled: Store, empty: Store, tmp_path: Path
) -> None:
    """Regions and engines remember the epochs of leaders that the backup knows nothing of."""
    file = backup_of(filled, tmp_path)
    for _ in range(3):
        filled.open().close()
    restore(file, empty.target)
    with closing(empty.open()) as journal:
        assert journal.epoch > 1_000
        journal.append(records(1_511, 1_511), NOTHING)
    assert examined(empty.target).faults == ()


def test_a_backup_of_a_database_in_use_is_of_one_moment(store: Store, tmp_path: Path) -> None:
    """Each transaction writes as many records as lines of history."""
    journal, ended = store.open(), threading.Event()

    def write() -> None:
        for n in range(1, 100_000, 3):
            if ended.is_set():
                return
            lines = [HistoryRow(1.0, "j1", "x", str(k)) for k in range(n, n + 3)]
            journal.append(records(n, n + 2), Audit(history=lines))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        sizes = []
        for n in range(4):
            manifest = write_backup(store.target, tmp_path / f"{n}.backup", (), 0.0, "")
            assert manifest.sums["journal"].rows == manifest.sums["history"].rows
            sizes.append(manifest.sums["journal"].rows)
    finally:
        ended.set()
        writer.join()
        journal.close()
    assert sizes == sorted(sizes)
    assert sizes[-1] > sizes[0]


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_backup_is_refused_wherever_the_damage_is(
    seed: int, tmp_path: Path, sqlite_backup: Path
) -> None:
    """Or it is in a part of the file that nothing is read from, and all of it comes back."""
    rng, data = random.Random(seed), bytearray(sqlite_backup.read_bytes())
    if seed % 3 == 0:
        del data[rng.randrange(100, len(data)) :]
    else:
        for _ in range(1 + seed):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file = tmp_path / "damaged.backup"
    file.write_bytes(data)
    try:
        restore(file, tmp_path / "restored.sqlite")
    except TopmastError as error:
        said = str(error)
    else:
        restore(sqlite_backup, tmp_path / "sound.sqlite")
        assert content(tmp_path / "restored.sqlite") == content(tmp_path / "sound.sqlite")
        return
    assert str(file) in said
    assert "backup" in said
    assert "the database" not in said
    assert "another" in said or "`topmast backup` made" in said
    assert not (tmp_path / "restored.sqlite").exists()


@pytest.mark.parametrize("version", [versions.VERSIONS[0], versions.VERSIONS[-2]])
def test_a_backup_with_another_schema_than_its_manifest_says_is_damaged(
    version: str, tmp_path: Path, sqlite_backup: Path
) -> None:
    """Before it is upgraded, which would fail far from the file that people named."""
    file = tmp_path / "changed.backup"
    file.write_bytes(sqlite_backup.read_bytes())
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (version,))
    with pytest.raises(
        JournalFailure, match=f"its schema is {version}.*use another backup"
    ) as told:
        restore(file, tmp_path / "restored.sqlite")
    assert str(told.value).startswith(f"{file}: the backup is damaged")


@pytest.mark.parametrize("more", [1, 4_096, -1, -4_096, -50_000])
def test_a_backup_that_is_longer_or_shorter_than_it_was_written_is_refused(
    more: int, tmp_path: Path, sqlite_backup: Path
) -> None:
    """The database itself reads over what was added behind its last page."""
    data = sqlite_backup.read_bytes()
    file = tmp_path / "other.backup"
    file.write_bytes(data + b"x" * more if more > 0 else data[:more])
    with pytest.raises(JournalFailure) as error:
        verify(file)
    assert str(error.value) == (
        f"{file}: the backup is damaged: it was written with {len(data):,} bytes, and has "
        f"{len(data) + more:,}: use another backup"
    )
    verify(sqlite_backup)


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"", "the backup is empty: use another backup"),
        (b"a page of text\n" * 100, "no backup: name a file that `topmast backup` made"),
        (b"SQLite f", "the backup is damaged: it is cut off: use another backup"),
    ],
)
def test_a_file_of_another_kind_is_no_backup(tmp_path: Path, data: bytes, want: str) -> None:
    """People are not told to restore a backup of the backup."""
    file = tmp_path / "some.backup"
    file.write_bytes(data)
    with pytest.raises(JournalFailure) as error:
        restore(file, tmp_path / "restored.sqlite")
    assert str(error.value).startswith(f"{file}: {want}")


def test_a_backup_that_may_not_be_read(tmp_path: Path, sqlite_backup: Path) -> None:
    """By a user without the right to."""
    readable = Path(tempfile.mkdtemp())
    try:
        readable.chmod(0o755)
        file = readable / "some.backup"
        file.write_bytes(sqlite_backup.read_bytes())
        file.chmod(0)
        if os.geteuid() == 0:
            os.seteuid(65_534)
        try:
            with pytest.raises(
                JournalFailure, match="the backup cannot be read: Permission denied"
            ):
                verify(file)
        finally:
            os.seteuid(os.getuid())
    finally:
        shutil.rmtree(readable)


@pytest.fixture
def sqlite_backup(tmp_path: Path) -> Path:
    target = tmp_path / "made" / "journal.sqlite"
    store = Store(str(target), sa.create_engine(f"sqlite:///{target}", poolclass=sa.NullPool))
    with closing(store.open()) as journal:
        journal.append(records(1, 1_510), audit(1, 1_203))
        journal.save_snapshot(Snapshot(1_500, 1_500.0, {"queue": b"q" * 9_999}))
    return backup_of(store, tmp_path)


CHANGES = {
    "a record": "UPDATE journal SET facts = 'x' WHERE seq = 1503",
    "a record gone": "DELETE FROM journal WHERE seq = 1503",
    "the last record gone": "DELETE FROM journal WHERE seq = 1510",
    "a line of history": "UPDATE history SET text = 'nothing happened' WHERE id = 5",
    "an attempt gone": "DELETE FROM attempts WHERE job = 'j3'",
    "a work folder": "UPDATE files SET data = 'other'",
    "a work folder gone": "DELETE FROM files WHERE data = CAST('one' AS BLOB)",
    "a snapshot": "UPDATE snapshots SET blob = 'other'",
    "the leader": "UPDATE leader SET holder = 'another'",
    "the leader gone": "DELETE FROM leader",
    "a later leader": "UPDATE leader SET epoch = epoch + 1",
    "a leader of no epoch": "UPDATE leader SET epoch = 'abc'",
    "a leader of the last epoch": "UPDATE leader SET epoch = 9223372036854775807",
    "a record of no epoch": "UPDATE journal SET epoch = x'ff' WHERE seq = 1503",
    "a text that is none": "UPDATE acts SET verb = CAST(x'ff' AS TEXT) WHERE id = 3",
    "a number that is none": "UPDATE attempts SET end_s = 'late' WHERE job = 'j3'",
    "a table that nothing is said of": (
        "UPDATE backup SET manifest = json_remove(manifest, '$.sums.acts')"
    ),
    "the manifest": "UPDATE backup SET manifest = '{'",
    "the manifest gone": "DELETE FROM backup",
    "no backup": "DROP TABLE backup",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_backup_that_was_changed_is_refused(
    change: str, tmp_path: Path, sqlite_backup: Path
) -> None:
    with sqlite3.connect(sqlite_backup) as connection:
        assert connection.execute(CHANGES[change]).rowcount != 0
    connection.close()
    with pytest.raises(JournalFailure, match=r"damaged|no backup"):
        verify(sqlite_backup)


def test_a_backup_says_what_is_wrong_with_its_leader(tmp_path: Path, sqlite_backup: Path) -> None:
    """Also one of an earlier version, whose manifest says nothing of that table."""
    wrong = {
        "'abc'": "epoch of table leader has values that are no integer",
        str(2**63 - 1): "epoch",
    }
    with sqlite3.connect(sqlite_backup) as connection:
        connection.execute("UPDATE backup SET manifest = json_remove(manifest, '$.leader')")
    verify(sqlite_backup)
    for epoch, want in wrong.items():
        with sqlite3.connect(sqlite_backup) as connection:
            connection.execute(f"UPDATE leader SET epoch = {epoch}")
        connection.close()
        with pytest.raises(JournalFailure, match=f"the backup is damaged: .*{want}"):
            restore(sqlite_backup, tmp_path / "restored.sqlite")


def test_a_backup_whose_tables_have_no_names_in_utf_8_is_refused(
    tmp_path: Path, sqlite_backup: Path
) -> None:
    """The driver cannot even say which."""
    data = sqlite_backup.read_bytes()
    begins = data.index(b"CREATE TABLE alembic_version")
    for place in range(begins, begins + 60):
        file = tmp_path / f"{place}.backup"
        file.write_bytes(data[:place] + bytes([data[place] ^ 0x80]) + data[place + 1 :])
        with pytest.raises(JournalFailure, match=f"{file}: the backup is damaged: use another"):
            restore(file, tmp_path / "restored.sqlite")


def test_a_backup_of_a_newer_version_is_refused(tmp_path: Path, sqlite_backup: Path) -> None:
    with sqlite3.connect(sqlite_backup) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(JournalFailure, match="the backup was written by a newer Topmast"):
        restore(sqlite_backup, tmp_path / "restored.sqlite")


def test_no_file_is_written_over(filled: Store, tmp_path: Path) -> None:
    file = tmp_path / "topmast.backup"
    file.write_text("mine")
    with pytest.raises(Conflict, match="exists"):
        write_backup(filled.target, file, (), 0.0, "")
    assert file.read_text() == "mine"
    with pytest.raises(NotFound, match="no such folder; make it first"):
        write_backup(filled.target, tmp_path / "none" / "b", (), 0.0, "")
    with pytest.raises(JournalFailure, match=r"^/proc: cannot be written"):
        write_backup(filled.target, Path("/proc/b"), (), 0.0, "")


def test_a_disk_that_is_full_leaves_nothing_behind(filled: Store, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not permitted here")
    try:
        with pytest.raises(JournalFailure, match=rf"^{disk}/\w+.backup: the disk is full"):
            write_backup(filled.target, disk / "topmast.backup", FILES, 0.0, "")
        assert list(disk.iterdir()) == []
        file = backup_of(filled, tmp_path)
        with pytest.raises(JournalFailure, match="full"):
            restore(file, disk / "journal.sqlite")
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
    assert verify(file).sums["journal"].rows == 1_510


# --- versions -------------------------------------------------------------------------------------


@pytest.fixture(params=versions.VERSIONS[:-1])
def older(request: pytest.FixtureRequest, store: Store) -> Store:
    """A database as an older version left it."""
    if store.target.startswith("postgresql"):
        engine = store.engine
    else:
        Path(store.target).parent.mkdir()
        engine = sa.create_engine(f"sqlite:///{store.target}", poolclass=sa.NullPool)
    with engine.begin() as connection:
        versions.migrate(connection, request.param)
        insert = "INSERT INTO journal (seq, at_s, machine, event, facts, crc)"
        row = records(1, 1)[0]
        connection.execute(
            sa.text(f"{insert} VALUES (1, :at_s, :machine, :event, :facts, :crc)"),
            {"at_s": row.at_s, "machine": row.machine, "event": row.event, "facts": row.facts,
             "crc": crc_of(row)},
        )  # fmt: skip
        version = connection.execute(sa.select(VERSION.c.version_num)).scalar_one()
        assert version == request.param
    return store


def test_an_older_database_is_checked_as_it_is_and_upgraded(older: Store) -> None:
    report = examined(older.target)
    assert (report.current, report.faults, report.last) == (False, (), 1)
    if report.schema < versions.READABLE_FROM:
        with pytest.raises(JournalFailure, match="topmast db upgrade"):
            older.open(read_only=True)
    else:
        with closing(older.open(read_only=True)) as journal:
            assert list(journal.records()) == records(1, 1)
    before, after = upgrade(older.target)
    assert (before, after) == (report.schema, versions.VERSIONS[-1])
    assert upgrade(older.target) == (after, after)
    assert examined(older.target).current
    with closing(open_journal(older.target, read_only=True)) as journal:
        assert list(journal.records()) == records(1, 1)


def test_a_version_that_is_read_as_it_is_has_the_columns_of_today(older: Store) -> None:
    """So a standby of the newest version follows a leader of such an older one."""
    version = examined(older.target).schema
    with older.engine.connect() as connection:
        lacking = [
            f"{table.name}.{column.name}"
            for table in METADATA.tables.values()
            for column in table.columns
            if column not in columns_in(connection, table)
        ]
    assert bool(lacking) == (version < versions.READABLE_FROM), lacking


def test_a_backup_before_the_upgrade_is_of_the_older_version(older: Store, tmp_path: Path) -> None:
    """It can be restored by the older program's successors; the original is not touched."""
    file = tmp_path / "before.backup"
    manifest = write_backup(older.target, file, FILES, 0.0, "")
    assert manifest.schema == examined(older.target).schema == examined(file).schema
    restore(file, tmp_path / "restored.sqlite")
    with closing(open_journal(tmp_path / "restored.sqlite")) as journal:
        assert list(journal.records()) == records(1, 1)
    assert dict(files_of(file)) == dict(FILES)


def test_a_newer_server_that_waits_upgrades_the_database_when_the_older_one_stops(
    database: Store,
) -> None:
    """Two versions side by side: until then nothing is changed, and a reader says what it lacks."""
    with database.engine.begin() as connection:
        versions.migrate(connection, "0003")
    holder = database.engine.connect()
    holder.exec_driver_sql("SELECT pg_advisory_lock(%s)", (OWNER_KEY,))
    won: list[SqlJournal] = []
    waits = threading.Thread(target=lambda: won.append(database.open(claim=Claim(waits=True))))
    waits.start()
    _until_waiting(database)
    with pytest.raises(JournalFailure, match="older Topmast"):
        database.open(read_only=True)
    assert examined(database.target).schema == "0003"
    holder.close()
    waits.join()
    assert examined(database.target).current
    assert won[0].epoch == 1
    won[0].close()


def test_a_database_that_is_none_of_ours_is_refused(store: Store) -> None:
    if not store.target.startswith("postgresql"):
        Path(store.target).parent.mkdir()
    with store.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE other (id INTEGER)")
    for act in (examined, upgrade):
        with pytest.raises(JournalFailure, match="another program"):
            act(store.target)


def test_what_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "none.sqlite"
    for act in (examined, upgrade, verify):
        with pytest.raises(NotFound, match=r"no journal here|no such file"):
            act(path)
    assert list(tmp_path.iterdir()) == []


# --- checks ---------------------------------------------------------------------------------------

DAMAGES = {
    "record 1503 is damaged": JOURNAL.update().where(JOURNAL.c.seq == 1503).values(facts=b"x"),
    "records 1503 to 1504 are missing": JOURNAL.delete().where(JOURNAL.c.seq.in_([1503, 1504])),
    "record 1503 is of a leader": JOURNAL.update().where(JOURNAL.c.seq == 1503).values(epoch=1),
    "snapshot 1500 has 1 of its 2": SNAPSHOTS.delete().where(SNAPSHOTS.c.machine == "queue"),
    "snapshot 1500 is damaged": SNAPSHOTS.update().values(blob=b"x"),
    "the work folder sha256": BLOBS.update().values(data=b"x"),
    "the last leader's was 1": LEADER.update().values(epoch=1),
}


@pytest.mark.parametrize("fault", DAMAGES)
def test_a_check_names_the_damage(fault: str, filled: Store) -> None:
    assert examined(filled.target).faults == ()
    filled.tamper(DAMAGES[fault])
    assert any(fault in found for found in examined(filled.target).faults)


def test_a_check_finds_lost_beginnings(filled: Store) -> None:
    """Without a snapshot that can be read, all records are needed."""
    filled.tamper(SNAPSHOTS.delete())
    filled.tamper(JOURNAL.delete().where(JOURNAL.c.seq <= 10))
    assert "records 1 to 10 are missing" in examined(filled.target).faults


def test_a_check_finds_a_lost_end(filled: Store) -> None:
    """No number is missing then: the stories of jobs go on without their records."""
    filled.tamper(SNAPSHOTS.delete())
    filled.tamper(JOURNAL.delete().where(JOURNAL.c.seq > 1_200))
    lost = "records after 1200 are missing: stories of jobs go on"
    assert lost in examined(filled.target).faults


def test_a_check_counts(filled: Store) -> None:
    with closing(filled.open()):  # also while it is used
        report = examined(filled.target)
    assert (report.first, report.last, report.epoch, report.snapshots) == (1, 1_510, 3, 1)
    assert report.rows["history"] == report.rows["acts"] == 1_203
    assert (report.rows["journal"], report.rows["blobs"]) == (1_510, 1)


def test_a_file_with_damaged_pages_is_not_whole(tmp_path: Path, filled: Store) -> None:
    if filled.target.startswith("postgresql"):
        pytest.skip("PostgreSQL has the pages")
    path = tmp_path / "damaged.sqlite"
    shutil.copy(filled.target, path)
    data = bytearray(path.read_bytes())
    for place in range(8_192 + 40, len(data), 40_960):
        data[place : place + 400] = bytes(400)
    path.write_bytes(data)
    try:
        faults = examined(path).faults
    except JournalFailure as error:
        faults = (str(error),)
    assert "damaged" in faults[0]


def test_errors_of_a_copy_protocol_are_explained(database: Store) -> None:
    """Rows that go by COPY do not pass SQLAlchemy, and its errors neither."""
    with closing(database.open()) as journal:
        row = {"at_s": 1.0, "machine": "queue", "event": b"", "facts": b"", "crc": 0}
        database.tamper(JOURNAL.insert().values(seq=2_000, **row))
        with pytest.raises(JournalFailure, match="second writer"):
            journal.append(records(1, 2_500), NOTHING)


def test_new_numbers_follow_the_copied_ones(filled: Store, empty: Store) -> None:
    copy_database(filled.target, empty.target, ())
    with closing(empty.open()) as journal:
        journal.append(records(1_511, 1_511), audit(1_204, 1_205))
    with empty.engine.connect() as connection:
        for table in (HISTORY, ACTS):
            numbers = connection.scalars(sa.select(table.c.id).order_by(table.c.id)).all()
            assert numbers == list(range(1, 1_206))
