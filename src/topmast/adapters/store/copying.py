"""All rows of a database, into another one and counted: whichever the two are."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Column, Connection, Table, inspect, select

from topmast.adapters.store.errors import JournalFailure, explained
from topmast.adapters.store.inserts import Inserts, insert_into
from topmast.adapters.store.tables import BLOBS, LEADER, METADATA, SNAPSHOTS

_ROWS = 5_000
_LARGE_ROWS = {SNAPSHOTS.name: 8, BLOBS.name: 1}
"""Rows that are in memory at once, of tables with large ones."""


class Sum(Struct, frozen=True):
    """What tells the rows of a table from others."""

    rows: int
    crc: int


Sums = dict[str, Sum]
"""By table, but for the one of the leader, which is about the database itself."""


def columns_in(connection: Connection, table: Table) -> list[Column[Any]]:
    """Those columns of a table that a database has, which may be of an older version."""
    if not inspect(connection).has_table(table.name):
        return []
    there = {column["name"] for column in inspect(connection).get_columns(table.name)}
    return [column for column in table.columns if column.name in there]


def copy_rows(source: Connection, target: Connection, more_epochs: int = 0) -> Sums:
    """Copy all rows into a database without any, of the same version. O(rows).

    The next leader's epoch is higher by ``more_epochs`` than it would be otherwise.
    Raises JournalFailure if a table is missing that a database of its version has.
    """
    sums = {}
    for table in METADATA.tables.values():
        columns = columns_in(source, table)
        if not columns:
            if columns_in(target, table):
                lacks = f"{_place_of(source)} lacks table {table.name}"
                raise JournalFailure(f"{lacks}: the database is damaged: restore a backup")
            continue
        missing = tuple(column.name for column in table.columns if column not in columns)
        insert = insert_into(table, target.dialect, omit=missing)
        found = Sum(0, 0)
        for rows in _parts(source, table, columns):
            found = _plus(found, rows)
            if table is LEADER:
                target.execute(LEADER.delete())  # the row that a migration made
                rows = [_elsewhere(row, columns, more_epochs) for row in rows]
            Inserts.rows(target, insert, rows)
        if table is not LEADER:
            sums[table.name] = found
    _continue_numbers(target)
    return sums


def sums_of(connection: Connection) -> Sums:
    """What tells the content of a database from any other. O(rows)."""
    return {
        table.name: sum_of(connection, table)
        for table in METADATA.tables.values()
        if table is not LEADER and columns_in(connection, table)
    }


def sum_of(connection: Connection, table: Table) -> Sum:
    """What tells the rows of one table, which may not be there, from any other. O(rows)."""
    columns, found = columns_in(connection, table), Sum(0, 0)
    for rows in _parts(connection, table, columns) if columns else ():
        found = _plus(found, rows)
    return found


def require_same(wanted: Sums, found: Sums) -> None:
    """Raise JournalFailure, naming the table, unless two databases have the same rows."""
    for name in sorted(wanted.keys() | found.keys()):
        if name not in wanted:
            raise JournalFailure(f"nothing says which rows table {name} must have")
        one, other = wanted[name], found.get(name, Sum(0, 0))
        if one.rows != other.rows:
            raise JournalFailure(f"table {name} has {other.rows} rows, and not {one.rows}")
        if one != other:
            raise JournalFailure(f"the rows of table {name} are not those that were written")


def _parts(
    connection: Connection, table: Table, columns: list[Column[Any]]
) -> Iterator[list[tuple[Any, ...]]]:
    query = select(*columns).order_by(*table.primary_key.columns)
    size = _LARGE_ROWS.get(table.name, _ROWS)
    with explained(_place_of(connection)):
        for part in connection.execute(query, execution_options={"yield_per": size}).partitions():
            yield [tuple(row) for row in part]


def _place_of(connection: Connection) -> str:
    """The name of a database, for people."""
    url = connection.engine.url
    if connection.dialect.name == "sqlite":
        return (url.database or "").removeprefix("file://").partition("?")[0]
    return url.set(drivername="postgresql").render_as_string(hide_password=True)


def _plus(found: Sum, rows: list[tuple[Any, ...]]) -> Sum:
    crc = found.crc
    for row in rows:
        crc = zlib.crc32(msgspec.msgpack.encode(row), crc)
    return Sum(found.rows + len(rows), crc)


def _elsewhere(
    row: tuple[Any, ...], columns: list[Column[Any]], more_epochs: int
) -> tuple[Any, ...]:
    """The row of the last leader, without what is true of its own database alone."""
    values = dict(zip((column.name for column in columns), row, strict=True))
    own = ("backend_pid", "renewed_at", "system", "timeline")
    return tuple((values | dict.fromkeys(own) | {"epoch": values["epoch"] + more_epochs}).values())


def _continue_numbers(target: Connection) -> None:
    """Let PostgreSQL number new rows after the copied ones; SQLite does so by itself."""
    if target.dialect.name != "postgresql":
        return
    for table in METADATA.tables.values():
        counted = table.autoincrement_column
        if counted is None or not columns_in(target, table):
            continue
        column = f"{table.name}.{counted.name}"
        target.exec_driver_sql(
            f"SELECT setval(pg_get_serial_sequence('{table.name}', '{counted.name}'),"  # noqa: S608  (names of columns)
            f" COALESCE((SELECT MAX({column}) FROM {table.name}), 0) + 1, false)"
        )
