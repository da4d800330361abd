"""Whether a database is whole: its version, every record, every snapshot, every row."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, func, null, or_, select

from topmast.adapters.store import schema
from topmast.adapters.store.checksum import record_of
from topmast.adapters.store.copying import columns_in
from topmast.adapters.store.tables import BLOBS, HISTORY, JOURNAL, LEADER, METADATA, SNAPSHOTS

_ROWS = 2_000
MOST_FAULTS = 20
"""The rest of the faults is not looked for."""
MOST_EPOCH = 2**62
"""There is room above it, in 64 bits, for all leaders to come."""
_KINDS: dict[type, str] = {int: "integer", float: "real", str: "text", bytes: "blob"}
"""What SQLite calls values of Python's types."""


class Report(Struct, frozen=True):
    """What was found in a database."""

    schema: str
    current: bool
    """Whether its version is the one of this program."""
    first: int
    """The first record; 0: there is none."""
    last: int
    epoch: int
    """Of the leader, or the last one."""
    snapshots: int
    rows: dict[str, int]
    """By table."""
    faults: tuple[str, ...]


def examine(connection: Connection) -> Report:
    """Read all that a database has, at one moment. O(rows). Raises JournalFailure for another's."""
    version = schema.known_version_of(connection)
    faults: list[str] = []
    faults.extend(_of_file(connection))
    rows: dict[str, int] = {}
    for table in METADATA.tables.values():
        columns = columns_in(connection, table)
        lacking = [column.name for column in table.columns if column not in columns]
        if lacking and version == schema.VERSIONS[-1]:
            faults.append(f"table {table.name} lacks {', '.join(lacking)}")
        if columns:
            needed = [column.is_(null()) for column in columns if not column.nullable]
            rows[table.name] = connection.scalar(select(func.count()).select_from(table)) or 0
            empty = select(func.count()).select_from(table).where(or_(*needed))
            if connection.scalar(empty):
                faults.append(f"table {table.name} has rows that lack a value")
    kinds = _of_kinds(connection)
    if kinds:  # nothing can be made of such values
        faults = [*faults, *kinds][:MOST_FAULTS]
        return Report(version, version == schema.VERSIONS[-1], 0, 0, 0, 0, rows, tuple(faults))
    first, last, epoch = _look_at_records(connection, faults)
    snapshots, newest = _look_at_snapshots(connection, faults)
    if first > newest + 1:
        faults.append(f"records {newest + 1} to {first - 1} are missing")
    if _lacks_end(connection):
        faults.append(f"records after {max(last, newest)} are missing: stories of jobs go on")
    faults.extend(_of_blobs(connection))
    leader = _leader_epoch(connection)
    if leader > MOST_EPOCH:
        faults.append(f"the last leader's epoch was {leader}, which none comes to")
    if epoch > leader:
        faults.append(f"records are of epoch {epoch}, and the last leader's was {leader}")
    return Report(
        version, version == schema.VERSIONS[-1], first, max(last, newest), leader, snapshots, rows,
        tuple(faults[:MOST_FAULTS]),
    )  # fmt: skip


def _of_file(connection: Connection) -> list[str]:
    """What SQLite finds; PostgreSQL checks the pages that are read by itself, if it has to."""
    if connection.dialect.name != "sqlite":
        return []
    found = connection.exec_driver_sql(f"PRAGMA integrity_check({MOST_FAULTS})").scalars().all()
    return [f"the file is damaged: {text}" for text in found if text != "ok"]


def _of_kinds(connection: Connection) -> list[str]:
    """Values that are no numbers or texts where these must be: SQLite keeps them all the same."""
    if connection.dialect.name != "sqlite":
        return []
    faults = []
    for table in METADATA.tables.values():
        for column in columns_in(connection, table):
            kind = _KINDS.get(column.type.python_type, "text")  # a date is a text
            others = select(func.count()).select_from(table)
            if connection.scalar(others.where(func.typeof(column).not_in([kind, "null"]))):
                faults.append(f"{column.name} of table {table.name} has values that are no {kind}")
    return faults


def _look_at_records(connection: Connection, faults: list[str]) -> tuple[int, int, int]:
    """The first and the last record, and the highest epoch."""
    query = select(*columns_in(connection, JOURNAL)).order_by(JOURNAL.c.seq)
    first = last = epoch = 0
    for row in connection.execute(query, execution_options={"yield_per": _ROWS}):
        first = first or row.seq
        if last and row.seq != last + 1:
            faults.append(f"records {last + 1} to {row.seq - 1} are missing")
        last, its = row.seq, getattr(row, "epoch", None) or 0
        if record_of(row) is None:
            faults.append(f"record {row.seq} is damaged")
        if its < epoch:
            faults.append(f"record {row.seq} is of a leader that was replaced")
        epoch = max(epoch, its)
        if len(faults) >= MOST_FAULTS:
            break
    return first, last, epoch


def _lacks_end(connection: Connection) -> bool:
    """Whether a line of a job's story is newer than all records: it was written with one.

    Its time is that of its record, and the clock of servers never goes back.
    """
    if not columns_in(connection, HISTORY):
        return False
    of_jobs = select(HISTORY.c.at_s).where(HISTORY.c.job != "").order_by(HISTORY.c.id.desc())
    told_s = connection.scalar(of_jobs.limit(1))
    known_s = [connection.scalar(select(func.max(t.c.at_s))) or 0.0 for t in (JOURNAL, SNAPSHOTS)]
    return told_s is not None and told_s > max(known_s)


def _look_at_snapshots(connection: Connection, faults: list[str]) -> tuple[int, int]:
    """How many there are, and the newest that can be read (0: the empty beginning)."""
    count = newest = 0
    for seq, rows in _snapshots(connection):
        count += 1
        wanted = getattr(rows[0], "machines", None)
        if wanted is not None and wanted != len(rows):
            faults.append(f"snapshot {seq} has {len(rows)} of its {wanted} machines")
        elif not all(_is_whole(row.blob) for row in rows):
            faults.append(f"snapshot {seq} is damaged")
        else:
            newest = seq
    return count, newest


def _snapshots(connection: Connection) -> Iterator[tuple[int, list[Any]]]:
    """One at a time, oldest first."""
    seqs = connection.scalars(select(SNAPSHOTS.c.seq).distinct().order_by(SNAPSHOTS.c.seq)).all()
    for seq in seqs:
        query = select(*columns_in(connection, SNAPSHOTS)).where(SNAPSHOTS.c.seq == seq)
        yield seq, list(connection.execute(query))


def _is_whole(blob: Any) -> bool:
    try:
        zlib.decompress(blob)
    except (zlib.error, TypeError):
        return False
    return True


def _of_blobs(connection: Connection) -> list[str]:
    if not columns_in(connection, BLOBS):
        return []
    found = connection.execute(select(BLOBS), execution_options={"yield_per": 1})
    damaged = (row.digest for row in found if digest_of(row.data) != row.digest)
    return [f"the work folder {digest} is damaged" for digest in damaged]


def digest_of(data: object) -> str:
    """The name of a file by its content; empty for what cannot be one."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}" if isinstance(data, bytes) else ""


def _leader_epoch(connection: Connection) -> int:
    if not columns_in(connection, LEADER):
        return 0
    return connection.scalar(select(LEADER.c.epoch)) or 0
