"""A checksum of what a record says; SQLite has none of its own."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from topmast.ports import Record

_TIME = struct.Struct("<d")
WITH_TIME = 1 << 32
"""In a checksum: that it covers the time of the record too."""


def crc_of(record: Record) -> int:
    """The checksum that is written with a record."""
    said = (record.machine.encode(), record.event, record.facts, _TIME.pack(record.at_s))
    return WITH_TIME | zlib.crc32(b"".join(said), record.seq & 0xFFFF_FFFF)


def crc_without_time(record: Record) -> int:
    """As earlier versions wrote it."""
    start = zlib.crc32(record.machine.encode(), record.seq & 0xFFFF_FFFF)
    return zlib.crc32(record.facts, zlib.crc32(record.event, start))


def record_of(row: Any) -> Record | None:
    """The record of a row of the journal, None if it is not what was written."""
    values = row.seq, row.at_s, row.machine, row.event, row.facts
    if None in values:
        return None
    record = Record(*values)
    try:
        wanted = crc_of(record) if row.crc >= WITH_TIME else crc_without_time(record)
    except (TypeError, AttributeError, struct.error):  # SQLite keeps values of any type
        return None
    return record if row.crc == wanted else None
