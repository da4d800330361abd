"""How rows get into the tables: statements compiled once, and for many rows binary COPY, or
statements that take hundreds of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from msgspec import Struct
from sqlalchemy import BigInteger, Connection, Dialect, Float, LargeBinary, Table, delete
from sqlalchemy.dialects import postgresql as postgresql_dialect
from sqlalchemy.dialects import sqlite as sqlite_dialect

from topmast.adapters.store.tables import (
    ACTS,
    ATTEMPTS,
    FINISHED_JOBS,
    HISTORY,
    JOURNAL,
    OPTIONS,
    SNAPSHOTS,
)

COPIED_ROWS = 1_000
"""From so many rows of a table on, COPY is quicker than a statement executed many times."""
ROWS_AT_ONCE = (250, 50, 10)
"""Rows of one statement of SQLite: other threads run during a statement, and it waits for its turn
after each."""
_TYPES = ((LargeBinary, "bytea"), (Float, "float8"), (BigInteger, "int8"))


class Insert(Struct, frozen=True):
    """The way of rows into a table."""

    sql: str
    """Takes a row as a tuple."""
    copy: str = ""
    """The same as a COPY, empty where there is none."""
    types: tuple[str, ...] = ()
    """Of the columns, in PostgreSQL's words."""
    at_once: tuple[tuple[int, str], ...] = ()
    """Take so many rows, one behind the other, the most first; empty where there is COPY."""


class Inserts:
    """The inserts of a journal."""

    def __init__(self, dialect: Dialect) -> None:
        self.record = insert_into(JOURNAL, dialect)
        self.snapshot = insert_into(SNAPSHOTS, dialect)
        self.history = insert_into(HISTORY, dialect, omit=("id",))
        self.attempt = insert_into(ATTEMPTS, dialect, replace=True)
        self.job = insert_into(FINISHED_JOBS, dialect, replace=True)
        self.act = insert_into(ACTS, dialect, omit=("id",))

    @staticmethod
    def rows(connection: Connection, insert: Insert, rows: list[tuple[Any, ...]]) -> None:
        """Insert rows; O(rows).

        By the driver: SQLAlchemy takes longer than the driver does for one row.
        """
        if not rows:
            return
        if insert.copy and len(rows) >= COPIED_ROWS:
            raw: Any = connection.connection.driver_connection
            with raw.cursor() as cursor, cursor.copy(insert.copy) as copy:
                copy.set_types(insert.types)
                for row in rows:
                    copy.write_row(row)
            return
        first, cursor = 0, connection.connection.cursor()
        for size, sql in insert.at_once:
            while len(rows) - first >= size:
                some = tuple(chain.from_iterable(rows[first : first + size]))
                cursor.execute(sql, some)
                first += size
        if rows[first:]:
            cursor.executemany(insert.sql, rows[first:])
        cursor.close()


def insert_into(
    table: Table, dialect: Dialect, omit: tuple[str, ...] = (), replace: bool = False
) -> Insert:
    """An insert of all columns in the table's order; ``replace`` overwrites by primary key.

    ``omit``: columns that the database fills in, or does not have.
    """
    sqlite = dialect.name == "sqlite"
    insert = sqlite_dialect.insert if sqlite else postgresql_dialect.insert
    columns = [column for column in table.columns if column.name not in omit]
    names = [column.name for column in columns]
    statement = insert(table)
    if replace:
        key = [column.name for column in table.primary_key]
        fresh = {name: statement.excluded[name] for name in names if name not in key}
        statement = statement.on_conflict_do_update(index_elements=key, set_=fresh)
    compiled = statement.compile(dialect=dialect, column_keys=names)
    assert getattr(compiled, "positiontup", None) == names, "tuples would not fit the statement"
    if sqlite:
        sql = str(compiled)
        return Insert(sql, at_once=tuple([(size, _at_once(sql, size)) for size in ROWS_AT_ONCE]))
    if replace:
        return Insert(str(compiled))
    listed = ", ".join(f'"{name}"' for name in names)
    types = tuple(
        next((name for kind, name in _TYPES if isinstance(column.type, kind)), "text")
        for column in columns
    )
    return Insert(str(compiled), f"COPY {table.name} ({listed}) FROM STDIN (FORMAT BINARY)", types)


def _at_once(sql: str, size: int) -> str:
    """The same insert of so many rows."""
    before, values, after = sql.partition("VALUES ")
    row, closes, after = after.partition(")")
    return f"{before}{values}{', '.join([row + closes] * size)}{after}"


def put_options(connection: Connection, values: Mapping[str, str]) -> None:
    """Keep options, each in place of the one of the same name."""
    for name, value in values.items():
        connection.execute(delete(OPTIONS).where(OPTIONS.c.name == name))
        connection.execute(OPTIONS.insert().values(name=name, value=value))
