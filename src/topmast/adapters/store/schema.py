"""Which version a database has, and bringing an older one up to date."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, select

import topmast
from topmast.adapters.store.errors import JournalFailure, WrittenByNewer
from topmast.adapters.store.tables import LEADER, VERSION

VERSIONS = (
    "0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012",
    "0013", "0014", "0015", "0016", "0017",
)  # fmt: skip
"""Every version this program knows, oldest first; the last is the one it speaks.

A new form of what records, snapshots or the profile hold is a version too, of the same tables.
"""

READABLE_FROM = "0007"
"""From this version on the tables have the columns of today: it can be read as it is."""

_ANOTHERS = "a database of another program: name another one"

MIGRATIONS = Path(__file__).parent / "migrations"


def known_version_of(connection: Connection) -> str:
    """The version of a database that this program can read, perhaps an older one."""
    version = version_of(connection)
    if version is None:
        raise JournalFailure("the database is empty")
    refuse_newer(connection)
    return version


def version_of(connection: Connection) -> str | None:
    """The version of a database; None when it is empty."""
    if inspect(connection).has_table(VERSION.name):
        found = connection.execute(select(VERSION.c.version_num)).scalars().all()
        if len(found) == 1:
            return str(found[0])
    elif not inspect(connection).get_table_names():
        return None
    raise JournalFailure(_ANOTHERS)


def require_readable(connection: Connection) -> None:
    """Refuse a database that this program cannot read as it is."""
    version = version_of(connection)
    if version is not None:
        refuse_newer(connection)
    if version is None or version < READABLE_FROM:
        age = "empty" if version is None else f"of an older Topmast (schema {version})"
        raise JournalFailure(
            f"the database is {age}: `topmast db upgrade` or a start of the server brings it up"
        )


def migrate(connection: Connection, to: str = VERSIONS[-1]) -> bool:
    """Bring the database up to a version, all or nothing; says whether there was need.

    Alembic is imported only when there is: it costs more than the rest of opening.
    """
    version = version_of(connection)
    if version is not None:
        refuse_newer(connection)
    if version is not None and version >= to:
        return False
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, to)
    return True


def refuse_newer(connection: Connection) -> None:
    """Raise `WrittenByNewer` for a database with a version that this program does not know."""
    version = connection.execute(select(VERSION.c.version_num)).scalar_one()
    if version in VERSIONS:
        return
    if not inspect(connection).has_table(LEADER.name):
        raise JournalFailure(_ANOTHERS)
    require_known(version, connection.execute(select(LEADER.c.version)).scalar_one())


def require_known(version: str, leader: str) -> None:
    """Raise `WrittenByNewer` for a version of a database that this program does not know.

    ``leader``: the version of the program that led last.
    """
    if version not in VERSIONS:
        raise WrittenByNewer(
            f"the database was written by a newer Topmast ({leader}, schema {version}; this one is "
            f"{topmast.__version__} and knows up to {VERSIONS[-1]}): install that version here, or "
            "restore a backup made before the upgrade"
        )
