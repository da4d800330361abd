"""SQLite: its file, its owner, and the pragmas that make a commit reach the disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, case, create_engine, event, select, update

from topmast.adapters.store.database import Claim, Database, Leader
from topmast.adapters.store.errors import JournalFailure
from topmast.adapters.store.owner import OwnerLock
from topmast.adapters.store.tables import LEADER
from topmast.model.errors import NotFound

BUSY_TIMEOUT_MS = 5_000
WAL_KEPT_BYTES = 64 * 2**20
WRITER_CACHE_KIB = 16 * 2**10


def open_database(path: Path, claim: Claim | None) -> Database:
    """Engines for reading and, with a ``claim``, for writing as the one owner."""
    if claim is None:
        if not path.is_file():
            raise NotFound(f"{path}: no journal here")
        return Database(str(path), _reader(path, mode="ro"), None, None)
    owner = _own(path)
    return Database(str(path), _reader(path, mode="rw"), _writer(path), FileLease(owner, claim))


class FileLease:
    """The lock of the file is the right to write: it needs no proof while it is held."""

    def __init__(self, owner: OwnerLock, claim: Claim) -> None:
        self.epoch = 0
        self.lasts_s: float | None = None
        self.before: Leader | None = None
        self.shared_by = ""
        self._owner = owner
        self._claim = claim

    def take(self, connection: Connection) -> None:
        """Write down that this process leads, with the next epoch."""
        claim, epoch = self._claim, LEADER.c.epoch
        statement = update(LEADER).values(
            epoch=case((epoch > claim.above, epoch), else_=claim.above) + 1,
            holder=claim.holder, address=claim.address, folder=claim.folder, version=claim.version,
        )  # fmt: skip
        connection.execute(statement)
        self.epoch = connection.scalar(select(epoch)) or 0

    def prove(self, connection: Connection) -> None:
        """Nothing to do."""

    def confirm(self, begun_s: float) -> None:
        """Nothing to do."""

    def due(self) -> bool:
        """Never."""
        return False

    def leads(self) -> bool:
        """As long as the process lives."""
        return True

    def release(self) -> None:
        """Unlock the file."""
        self._owner.release()


def require_free(path: Path) -> None:
    """Raise Conflict, naming the process, if one has this database open to write."""
    lock = _lock_of(path)
    if lock.exists():
        OwnerLock(lock).release()


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _own(path: Path) -> OwnerLock:
    """Create the file if it is not there, so that it survives a power cut, and lock it."""
    _make_directory(path.parent)
    if path.exists() and not path.is_file():
        raise JournalFailure(f"{path}: not a file: name the database, not its folder")
    owner = OwnerLock(_lock_of(path))
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        sync_directory(path.parent)
    except BaseException:
        owner.release()
        raise
    return owner


def _writer(path: Path) -> Engine:
    """An engine with commits that are on the disk when they return."""
    engine = create_engine(URL.create("sqlite", database=str(path)), pool_size=1, max_overflow=0)
    _use(
        engine,
        begin="BEGIN IMMEDIATE",
        pragmas=(
            f"busy_timeout={BUSY_TIMEOUT_MS}",
            "journal_mode=WAL",
            "synchronous=FULL",  # in WAL mode: fsync the log at every commit
            f"journal_size_limit={WAL_KEPT_BYTES}",
            f"cache_size=-{WRITER_CACHE_KIB}",
        ),
    )
    return engine


def _reader(path: Path, *, mode: str) -> Engine:
    """An engine that cannot write; mode "ro" does not even open the file for writing."""
    log = path.with_name(path.name + "-wal")
    if mode == "ro" and not os.access(path.parent, os.W_OK) and not _has_content(log):
        mode = "ro&immutable=1"  # without it SQLite wants to make files beside it, which it cannot
    url = URL.create("sqlite", database=f"{path.as_uri()}?mode={mode}", query={"uri": "true"})
    engine = create_engine(url, pool_size=4, max_overflow=28)
    _use(engine, begin="BEGIN", pragmas=(f"busy_timeout={BUSY_TIMEOUT_MS}", "query_only=ON"))
    return engine


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _make_directory(path: Path) -> None:
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    sync_directory(path.parent)


def _use(engine: Engine, *, begin: str, pragmas: tuple[str, ...]) -> None:
    """Set pragmas on every new connection, and begin transactions ourselves.

    The driver would begin none for DDL, and a migration must be all or nothing.
    """

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Any) -> None:
        connection.connection.execute(begin)
