"""Jobs that ended months ago are forgotten; what they used is kept by the day."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from msgspec.structs import astuple
from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects import postgresql as postgresql_dialect
from sqlalchemy.dialects import sqlite as sqlite_dialect

from topmast.adapters.store.retention import DAY_S
from topmast.adapters.store.tables import ATTEMPTS, FINISHED_JOBS, HISTORY, USAGE_DAYS
from topmast.model.job import MILLI
from topmast.ports import AttemptRow, UsageDay

EPOCH_YEAR = 1970
"""Times are seconds since its begin."""
_SUMS = ("attempts", "held_gpu_s", "kept_gpu_s", "idle_gpu_s")
"""What is added up for each day: the last fields of a row."""


def month_start_s(now_s: float, months: int) -> float:
    """The begin of the month, in UTC, that lies so many whole months before the present one.

    0 for a month before all jobs: calendars do not reach as far as a number of months may.
    """
    now = datetime.fromtimestamp(now_s, UTC)
    years, month = divmod(now.year * 12 + now.month - 1 - months, 12)
    if years < EPOCH_YEAR:
        return 0.0
    return datetime(years, month + 1, 1, tzinfo=UTC).timestamp()


def days_of(rows: Iterable[AttemptRow]) -> Iterator[UsageDay]:
    """What attempts used, by the day in UTC; each one counts on the day of its end."""
    for row in rows:
        whole_s = row.end_s - row.start_s
        if whole_s <= 0:
            continue
        gpus = row.gpus_milli / MILLI
        kept, idle = row.kept_s / whole_s, row.idle_s / whole_s
        day_s = row.start_s // DAY_S * DAY_S
        while day_s < row.end_s:
            held_s = min(row.end_s, day_s + DAY_S) - max(row.start_s, day_s)
            held_gpu_s = gpus * held_s
            yield UsageDay(
                day_s, row.tenant, row.user, row.region, row.cluster, row.model,
                int(row.end_s <= day_s + DAY_S), held_gpu_s, held_gpu_s * kept, held_gpu_s * idle,
            )  # fmt: skip
            day_s += DAY_S


def forget(connection: Connection, before_s: float, most: int) -> int:
    """Delete the jobs that ended first, before a time; says how many. O(their rows)."""
    table = FINISHED_JOBS.c
    oldest = select(table.job).where(table.finish_s < before_s).order_by(table.finish_s).limit(most)
    jobs = connection.scalars(oldest).all()
    if not jobs:
        return 0
    found = connection.execute(select(ATTEMPTS).where(ATTEMPTS.c.job.in_(jobs)))
    _add(connection, _summed(days_of(AttemptRow(*row) for row in found)))
    for rows in (HISTORY, ATTEMPTS, FINISHED_JOBS):
        connection.execute(delete(rows).where(rows.c.job.in_(jobs)))
    return len(jobs)


def _summed(days: Iterable[UsageDay]) -> list[tuple[object, ...]]:
    sums: dict[tuple[object, ...], list[float]] = {}
    for day in days:
        values = astuple(day)
        key, added = values[: -len(_SUMS)], values[-len(_SUMS) :]
        total = sums.setdefault(key, [0, 0.0, 0.0, 0.0])
        for at, value in enumerate(added):
            total[at] += value
    return [(*key, *total) for key, total in sums.items()]


def _add(connection: Connection, days: list[tuple[object, ...]]) -> None:
    sqlite = connection.dialect.name == "sqlite"
    insert = (sqlite_dialect if sqlite else postgresql_dialect).insert(USAGE_DAYS)
    sums = {name: USAGE_DAYS.c[name] + insert.excluded[name] for name in _SUMS}
    statement = insert.on_conflict_do_update(
        index_elements=list(USAGE_DAYS.primary_key.columns), set_=sums
    )
    names = [column.name for column in USAGE_DAYS.columns]
    if days:
        connection.execute(statement, [dict(zip(names, day, strict=True)) for day in days])
