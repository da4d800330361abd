"""Which version a database has, and bringing an older one up to date."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, select

from topmast.adapters.store.errors import JournalFailure
from topmast.adapters.store.tables import VERSION

VERSIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")
"""Every version this program knows, oldest first; the last is the one it speaks."""

MIGRATIONS = Path(__file__).parent / "migrations"


def known_version_of(connection: Connection) -> str:
    """The version of a database that this program can read, perhaps an older one."""
    version = version_of(connection)
    _refuse_newer(version)
    if version is None:
        raise JournalFailure("the database is empty")
    return version


def version_of(connection: Connection) -> str | None:
    """The version of a database; None when it is empty."""
    if inspect(connection).has_table(VERSION.name):
        found = connection.execute(select(VERSION.c.version_num)).scalars().all()
        if len(found) == 1:
            return str(found[0])
    elif not inspect(connection).get_table_names():
        return None
    raise JournalFailure("a database of another program: name another one")


def require_current(connection: Connection) -> None:
    """Refuse a database that this program cannot read as it is."""
    version = version_of(connection)
    _refuse_newer(version)
    if version != VERSIONS[-1]:
        age = "empty" if version is None else f"of an older Topmast (schema {version})"
        raise JournalFailure(
            f"the database is {age}: `topmast db upgrade` or a start of the server brings it up"
        )


def migrate(connection: Connection, to: str = VERSIONS[-1]) -> bool:
    """Bring the database up to a version, all or nothing; says whether there was need.

    Alembic is imported only when there is: it costs more than the rest of opening.
    """
    version = version_of(connection)
    _refuse_newer(version)
    if version is not None and version >= to:
        return False
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, to)
    return True


def _refuse_newer(version: str | None) -> None:
    if version is not None and version not in VERSIONS:
        raise JournalFailure(
            f"the database was written by a newer Topmast (schema {version}; this one knows up to "
            f"{VERSIONS[-1]}): install that version, or restore a backup made before the upgrade"
        )
