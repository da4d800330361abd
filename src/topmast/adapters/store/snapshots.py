"""Which snapshots the journal has, and which of them go."""

from __future__ import annotations

from typing import Any

from isal import isal_zlib
from sqlalchemy import Connection, Select, delete, func, select

from topmast.adapters.store.retention import Kept, Past
from topmast.adapters.store.tables import JOURNAL, SNAPSHOTS
from topmast.ports import Snapshot

LEVEL = 1
MOST_BLOB_BYTES = 950_000_000
"""SQLite takes a row of 1,000,000,000 bytes, PostgreSQL a value of 1 GiB."""


def packed(snapshot: Snapshot) -> dict[str, bytes] | None:
    """The states of the machines as zlib writes them; None: one is too large for a database.

    O(bytes); the thread that decides waits for it (docs/adr/snapshots-by-isal.md).
    """
    found = {}
    for machine, state in snapshot.machines.items():
        blob = found[machine] = isal_zlib.compress(state, LEVEL)
        if len(blob) > MOST_BLOB_BYTES:
            return None
    return found


def snapshots() -> Select[Any]:
    """One row for each snapshot, oldest first."""
    table = SNAPSHOTS.c
    at_s, total = func.min(table.at_s).label("at_s"), func.max(table.total_bytes).label("bytes")
    columns = (table.seq, at_s, total)
    return select(*columns).group_by(table.seq).order_by(table.seq)


def total_bytes_at(connection: Connection, seq: int) -> int:
    """Bytes of all records ever written up to ``seq``, by the last snapshot and those since."""
    before = SNAPSHOTS.c.seq < seq
    last = connection.execute(
        snapshots().where(before).order_by(None).order_by(SNAPSHOTS.c.seq.desc())
    ).first()
    known, after = (0, 0) if last is None else (last.bytes or 0, last.seq)
    size = func.sum(func.length(JOURNAL.c.event) + func.length(JOURNAL.c.facts))
    fresh = select(size).where(JOURNAL.c.seq > after, JOURNAL.c.seq <= seq)
    return known + int(connection.scalar(fresh) or 0)


def retire(connection: Connection, past: Past) -> None:
    """Delete the snapshots that are not kept, and the records up to the oldest that is."""
    found = [Kept(row.seq, row.at_s, row.bytes or 0) for row in connection.execute(snapshots())]
    first = connection.execute(
        select(JOURNAL.c.seq, JOURNAL.c.at_s).order_by(JOURNAL.c.seq).limit(1)
    ).first()
    if first is not None and first.seq == 1:
        found.insert(0, Kept(0, first.at_s, 0))
    kept = past.keep(found[::-1])
    seqs = [one.seq for one in kept]
    connection.execute(delete(SNAPSHOTS).where(SNAPSHOTS.c.seq.not_in(seqs)))
    connection.execute(delete(JOURNAL).where(JOURNAL.c.seq <= seqs[-1]))
