"""Which database a path or URL names, opened."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url

from topmast.adapters.store import postgresql, sqlite
from topmast.adapters.store.database import Claim, Database
from topmast.adapters.store.errors import explained
from topmast.model.errors import InvalidInput


def open_database(target: str | Path, claim: Claim | None) -> Database:
    """The database at a path (SQLite) or URL; with a ``claim``, to write."""
    if isinstance(target, str) and "://" in target:
        url = make_url(target)
        place = url.render_as_string(hide_password=True)
        if url.get_backend_name() == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
            return postgresql.open_database(url, place, claim)
        if url.get_backend_name() != "sqlite" or not url.database:
            remedy = "write a path, or postgresql://HOST/DATABASE"
            raise InvalidInput(f"no journal can be at {place}", remedy=remedy)
        target = url.database
    path = Path(target).expanduser().absolute()
    with explained(str(path)):
        return sqlite.open_database(path, claim)


def dispose(database: Database) -> None:
    """Close its connections, and let the next owner in."""
    database.reader.dispose()
    if database.writer is not None:
        database.writer.dispose()
    if database.lease is not None:
        database.lease.release()
