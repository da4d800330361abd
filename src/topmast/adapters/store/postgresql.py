"""PostgreSQL: ownership of the database, and the settings that make a commit reach the disk."""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, create_engine, event

from topmast.adapters.store.database import Database
from topmast.adapters.store.errors import JournalFailure
from topmast.model.errors import Conflict

# Any number that other programs in the same database are unlikely to lock: "topmast" as bytes.
OWNER_KEY = int.from_bytes(b"topmast", "big")
_OWNER_PID = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND objid = %s"


def open_database(url: URL, place: str, read_only: bool) -> Database:
    """Engines for reading and, unless ``read_only``, for writing as the one owner."""
    try:
        reader = create_engine(
            url,
            pool_size=4,
            max_overflow=28,
            execution_options={"postgresql_readonly": True},
            isolation_level="REPEATABLE READ",  # the rows of one read are of one moment
        )
    except ModuleNotFoundError as error:
        raise JournalFailure(f"{error.name} is missing: pip install 'psycopg[binary]'") from error
    if read_only:
        return Database(place, reader, None, None)
    # One connection, never replaced: with it the right to write would be lost.
    writer = create_engine(url, pool_size=1, max_overflow=0, paramstyle="format")
    event.listen(writer, "connect", lambda connection, _record: _own(connection, place))
    return Database(place, reader, writer, None)


def _own(connection: Any, place: str) -> None:
    """Take the right to write for as long as this connection lives."""
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
        cursor.execute("SELECT pg_try_advisory_lock(%s)", (OWNER_KEY,))
        if not cursor.fetchone()[0]:
            cursor.execute(_OWNER_PID, (OWNER_KEY >> 32, OWNER_KEY & 0xFFFF_FFFF))
            row = cursor.fetchone()
            owner = f"backend pid {row[0]}" if row else "it has just ended"
            raise Conflict(f"{place} is in use by another process ({owner}): stop it first")
    connection.commit()
