"""Backups: one SQLite file with all rows of a database, the work folders, and what it must hold."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from sqlalchemy import Column, Connection, LargeBinary, MetaData, Table, Text, inspect, select

import topmast
from topmast.adapters.store import schema
from topmast.adapters.store.copying import (
    Sum,
    Sums,
    columns_in,
    copy_rows,
    require_same,
    sum_of,
    sums_of,
)
from topmast.adapters.store.database import Claim, Database
from topmast.adapters.store.errors import (
    USE_ANOTHER,
    Explain,
    InUse,
    JournalFailure,
    WrittenByNewer,
    explain,
    explain_backup,
    explained,
)
from topmast.adapters.store.inserts import insert_into
from topmast.adapters.store.integrity import Report, digest_of, examine
from topmast.adapters.store.opening import dispose, open_database
from topmast.adapters.store.postgresql import waiting_for_lock
from topmast.adapters.store.sqlite import sync_directory
from topmast.adapters.store.tables import BLOBS, LEADER
from topmast.model.errors import Conflict, NotFound

EPOCHS_APART = 1_000_000
"""How far the epochs after a restore are above the last one that the backup knows."""

Files = Iterable[tuple[str, bytes]]
"""The work folders of a state folder, with their digests."""

_STOP_FIRST = "stop that first"
_NAME_EMPTY = "name an empty database, which no server uses"
_FORMAT = b"SQLite format 3\0"
"""How the file begins."""
_HEADER_BYTES = 100
"""SQLite's: https://www.sqlite.org/fileformat.html#the_database_header."""
_NO_BACKUP = "no backup: name a file that `topmast backup` made"
_ONLY_IN_BACKUPS = MetaData()
_MANIFEST = Table("backup", _ONLY_IN_BACKUPS, Column("manifest", Text, nullable=False))
_FILES = Table(
    "files",
    _ONLY_IN_BACKUPS,
    Column("digest", Text, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)


class Manifest(Struct, frozen=True):
    """What a backup says of itself."""

    made_at_s: float
    source: str
    """The database, for people."""
    role: str
    """What the state folder was for."""
    version: str
    """Of Topmast."""
    schema: str
    sums: Sums
    files: tuple[str, ...] = ()
    """The digests of the work folders."""
    leader: Sum | None = None
    """Of the table of the leader. None: an earlier version made the backup."""


def examined(target: str | Path) -> Report:
    """What a database has, and what is wrong with it; while it is used or not."""
    with _reading(target) as (connection, _):
        return examine(connection)


def is_empty(target: str | Path) -> bool:
    """Whether a database has no tables yet."""
    with _reading(target) as (connection, _):
        return not inspect(connection).get_table_names()


def upgrade(target: str | Path) -> tuple[str, str]:
    """Bring a database that no process uses to the newest version: the one before, and the new."""
    with _owned(target) as (_, writer), writer.begin():
        before = schema.known_version_of(writer)
        schema.migrate(writer)
        return before, schema.known_version_of(writer)


def copy_database(source: str | Path, target: str | Path, files: Files) -> Sums:
    """Copy a database that no process uses into an empty one, with ``files`` if others reach it."""
    with _owned(source) as (database, _), database.reader.begin() as connection:
        return _fill(target, connection, lambda writer: _keep_blobs(writer, files))


def write_backup(
    source: str | Path, file: Path, files: Files, made_at_s: float, role: str
) -> Manifest:
    """Write a backup of a database, which may be in use, and read it again. O(rows)."""
    if file.exists():
        raise Conflict(f"{file} exists: name a new file")
    with _reading(source) as (connection, place), _part_of(file) as part:
        version = schema.known_version_of(connection)
        digests: list[str] = []
        sums = _fill(
            part, connection, lambda writer: _add_files(writer, files, digests), to=version
        )
        with _reading(part) as (written, _):
            leader = sum_of(written, LEADER)
        manifest = Manifest(
            made_at_s, place, role, topmast.__version__, version, sums, tuple(digests), leader
        )
        _sign(part, manifest)
        verify(part)
        part.rename(file)
        sync_directory(file.parent)
    return manifest


def verify(file: Path) -> Manifest:
    """What a backup says of itself. Raises JournalFailure if it is not all there. O(rows)."""
    _require_backup(file)
    with _reading(file, explain_backup) as (connection, _):
        if not inspect(connection).has_table(_MANIFEST.name):
            raise JournalFailure(f"{file}: {_NO_BACKUP}")
        manifest = _manifest_of(connection, file)
        _require_known(manifest, connection, file)
        faults = examine(connection).faults
        if faults:
            raise _damaged(file, "; ".join(faults))
        try:
            require_same(manifest.sums, sums_of(connection))
            if manifest.leader is not None:
                leader = {LEADER.name: sum_of(connection, LEADER)}
                require_same({LEADER.name: manifest.leader}, leader)
        except JournalFailure as error:
            raise _damaged(file, str(error)) from error
        found = [digest for digest, data in _files_in(connection) if digest == digest_of(data)]
        if found != sorted(manifest.files):
            raise _damaged(file, "a work folder is not whole")
        return manifest


def restore(file: Path, target: str | Path) -> Manifest:
    """Copy a backup into an empty database, and bring that to the newest version. O(rows).

    The leaders from then on have epochs above those that led after the backup was made.
    """
    manifest = verify(file)
    with _reading(file, explain_backup) as (connection, _):
        _fill(
            target, connection, lambda writer: _keep_blobs(writer, _files_in(connection)),
            more_epochs=EPOCHS_APART,
        )  # fmt: skip
    return manifest


def files_of(file: Path) -> Iterator[tuple[str, bytes]]:
    """The work folders in a backup, with their digests; one in memory at a time."""
    with _reading(file, explain_backup) as (connection, _):
        yield from _files_in(connection)
        if columns_in(connection, BLOBS):
            for row in connection.execute(select(BLOBS), execution_options={"yield_per": 1}):
                yield row.digest, row.data


# --- databases ------------------------------------------------------------------------------------


@contextmanager
def _reading(target: str | Path, explain: Explain = explain) -> Iterator[tuple[Connection, str]]:
    """A database at one moment, and its name. ``explain``: what its errors mean."""
    database = open_database(target, None)
    try:
        with _named(database.place, explain), database.reader.begin() as connection:
            yield connection, database.place
    finally:
        dispose(database)


@contextmanager
def _owned(target: str | Path) -> Iterator[tuple[Database, Connection]]:
    """A database that no other process may write meanwhile, and its connection to write."""
    dispose(open_database(target, None))  # to make no file where there is none
    database = open_database(target, Claim())
    assert database.writer is not None
    try:
        named, in_use = _named(database.place), _in_use(_STOP_FIRST)
        with named, in_use, database.writer.connect() as writer:
            with writer.begin():
                if waiting_for_lock(writer):
                    raise Conflict(f"{database.place}: a server stands by there: stop it first")
            yield database, writer
    finally:
        dispose(database)


@contextmanager
def _in_use(remedy: str) -> Iterator[None]:
    """Let a database that a server writes be refused with what helps here."""
    try:
        yield
    except InUse as error:
        raise Conflict(f"{error.told}: {remedy}") from error


@contextmanager
def _named(place: str, explain: Explain = explain) -> Iterator[None]:
    """Let errors name the database."""
    try:
        with explained(place, explain):
            yield
    except JournalFailure as error:
        if str(error).startswith(("/", "postgresql")):
            raise
        raise type(error)(f"{place}: {error}") from error


def _fill(
    target: str | Path,
    source: Connection,
    also: Callable[[Connection], None],
    *,
    to: str = schema.VERSIONS[-1],
    more_epochs: int = 0,
) -> Sums:
    """Copy all rows into an empty database, in one transaction that reads them again."""
    database = open_database(target, Claim())
    assert database.writer is not None
    try:
        with _named(database.place), _in_use(_NAME_EMPTY), database.writer.begin() as writer:
            if inspect(writer).get_table_names():
                raise Conflict(f"{database.place} is not empty: name a new database")
            schema.migrate(writer, schema.known_version_of(source))
            sums = copy_rows(source, writer, more_epochs)
            require_same(sums, sums_of(writer))
            schema.migrate(writer, to)
            also(writer)
        return sums
    finally:
        dispose(database)


def _keep_blobs(writer: Connection, files: Files) -> None:
    """Add work folders to a database that several servers share."""
    if writer.dialect.name != "postgresql":
        return
    insert = insert_into(BLOBS, writer.dialect, replace=True)
    for digest, data in files:
        writer.exec_driver_sql(insert.sql, (digest, data))


# --- the file -------------------------------------------------------------------------------------


@contextmanager
def _part_of(file: Path) -> Iterator[Path]:
    """A name beside the file; nothing is left of what is there when it fails."""
    if not file.parent.is_dir():
        raise NotFound(f"{file.parent}: no such folder; make it first, or name another")
    try:
        beside = tempfile.TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent)
    except OSError as error:
        why = error.strerror or error
        raise JournalFailure(f"{file.parent.absolute()}: cannot be written: {why}") from error
    with beside as folder:
        part = Path(folder) / file.name
        try:
            yield part
        except JournalFailure as error:  # people know the file that they named
            raise type(error)(str(error).replace(str(part), str(file))) from error


def _add_files(writer: Connection, files: Files, digests: list[str]) -> None:
    _ONLY_IN_BACKUPS.create_all(writer)
    insert = insert_into(_FILES, writer.dialect)
    for digest, data in files:
        writer.exec_driver_sql(insert.sql, (digest, data))
        digests.append(digest)


def _sign(part: Path, manifest: Manifest) -> None:
    """Write the manifest, and leave one file, all of it on the disk."""
    text = msgspec.json.encode(manifest).decode()
    with explained(str(part)), sqlite3.connect(part, isolation_level=None) as connection:
        connection.execute("PRAGMA synchronous=EXTRA")
        connection.execute("INSERT INTO backup (manifest) VALUES (?)", (text,))
        connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()


def _require_backup(file: Path) -> None:
    """Raise JournalFailure for a file that cannot be read, or that is of another kind."""
    if not file.exists():
        raise NotFound(f"{file}: no such file")
    with explained(str(file), explain_backup), file.open("rb") as opened:
        header, size_bytes = opened.read(_HEADER_BYTES), file.stat().st_size
    begins = header[: len(_FORMAT)]
    if not begins:
        raise JournalFailure(f"{file}: the backup is empty: {USE_ANOTHER}")
    if not _FORMAT.startswith(begins):
        raise JournalFailure(f"{file}: {_NO_BACKUP}")
    if len(header) < _HEADER_BYTES:
        raise _damaged(file, "it is cut off")
    written_bytes = _written_bytes(header)
    if size_bytes != written_bytes:
        raise _damaged(file, f"it was written with {written_bytes:,} bytes, and has {size_bytes:,}")


def _written_bytes(header: bytes) -> int:
    """How long a SQLite file is by its header: the database reads over what stands behind that."""
    page_bytes = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    return (65_536 if page_bytes == 1 else page_bytes) * pages


def _require_known(manifest: Manifest, connection: Connection, file: Path) -> None:
    found = schema.version_of(connection)
    for version in (manifest.schema, found):
        if version is not None and version not in schema.VERSIONS:
            raise WrittenByNewer(
                f"{file}: the backup was written by a newer Topmast ({manifest.version}, schema "
                f"{version}; this one is {topmast.__version__} and knows up to "
                f"{schema.VERSIONS[-1]}): restore it with that version, or {USE_ANOTHER}"
            )
    if found != manifest.schema:  # it would be upgraded from what it is not
        raise _damaged(file, f"its schema is {found}, and its manifest says {manifest.schema}")


def _damaged(file: Path, why: str) -> JournalFailure:
    return JournalFailure(f"{file}: the backup is damaged: {why}: {USE_ANOTHER}")


def _manifest_of(connection: Connection, file: Path) -> Manifest:
    text = connection.scalar(select(_MANIFEST.c.manifest))
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(text or "", type=Manifest)
    raise JournalFailure(f"{file}: the backup was not finished, or is damaged: {USE_ANOTHER}")


def _files_in(connection: Connection) -> Iterator[tuple[str, bytes]]:
    query = select(_FILES).order_by(_FILES.c.digest)
    for row in connection.execute(query, execution_options={"yield_per": 1}):
        yield row.digest, row.data
