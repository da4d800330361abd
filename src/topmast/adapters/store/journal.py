"""`ports.Journal` over SQL: what `append` returned from is on the disk."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import structlog
from msgspec.structs import astuple
from sqlalchemy import Connection, Select, delete, func, select

from topmast.adapters.clock import elapsed_s
from topmast.adapters.store import acts, finished, schema
from topmast.adapters.store.checksum import crc_of, record_of
from topmast.adapters.store.database import Claim, Database, Leader
from topmast.adapters.store.errors import JournalFailure, Retired, explained
from topmast.adapters.store.inserts import COPIED_ROWS, Inserts, put_options
from topmast.adapters.store.months import forget
from topmast.adapters.store.opening import dispose, open_database
from topmast.adapters.store.retention import DAY_S, Past
from topmast.adapters.store.snapshots import packed, retire, snapshots, total_bytes_at
from topmast.adapters.store.tables import (
    ATTEMPTS,
    BLOBS,
    FINISHED_JOBS,
    HISTORY,
    JOURNAL,
    LEADER,
    OPTIONS,
    SNAPSHOTS,
    USAGE_DAYS,
)
from topmast.ports import (
    ActFilter,
    ActRow,
    AttemptRow,
    Audit,
    HistoryRow,
    JobRow,
    Record,
    Snapshot,
    UsageDay,
)

RECORDS_PER_FETCH = 256
JOBS_PER_QUERY = 1_000

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


def open_journal(
    target: str | Path,
    *,
    read_only: bool = False,
    claim: Claim = Claim(),  # noqa: B008 (frozen)
) -> SqlJournal:
    """Open the journal at a path (SQLite) or URL, creating or migrating it as needed.

    To write is the right of one process at a time, the leader: a second is refused with `Conflict`,
    naming the first, or waits for its turn if its ``claim`` says so. ``read_only`` asks for no such
    right and changes nothing, not even the version.
    """
    database = open_database(target, None if read_only else claim)
    try:
        return SqlJournal(database)
    except BaseException as error:
        dispose(database)
        if isinstance(error, JournalFailure) and database.place not in str(error):
            raise type(error)(f"{database.place}: {error}") from error
        raise


class SqlJournal:
    """The journal in SQLite or PostgreSQL; made by `open_journal`.

    Any thread may call any method. Writes wait for one another; reads use connections of their own
    and never wait.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._place = database.place
        self._broken: BaseException | None = None
        self._closed = False
        self._write_lock = threading.Lock()
        self._writer: Connection | None = None
        self._last_seq = 0
        with explained(self._place):
            if database.writer is None:
                with database.reader.begin() as connection:
                    schema.require_readable(connection)
                return
            assert database.lease is not None
            self._writer = database.writer.connect()
            self._lease = database.lease
            try:
                with self._writer.begin():
                    schema.migrate(self._writer)
                with self._writer.begin():
                    self._lease.take(self._writer)
            except BaseException:
                self._writer.close()  # with it goes the lock, also while the error is kept
                raise
            self._insert = Inserts(self._writer.dialect)
            with self._writer.begin():
                self._last_seq = self._writer.scalar(select(_newest_seq())) or 0

    # --- leading ------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """Of this process as the leader; 0 if it only reads."""
        return self._lease.epoch if self._writer is not None else 0

    @property
    def before(self) -> Leader | None:
        """The leader before this process, as far as it is known."""
        return self._lease.before

    @property
    def must_renew(self) -> bool:
        """Whether another process may lead if this one proves nothing for a while."""
        return self._lease.lasts_s is not None

    @property
    def shared_by(self) -> str:
        """Tells the database from all others if several processes may come to lead; else empty."""
        return self._lease.shared_by

    def leads(self) -> bool:
        """Whether no other process can lead by now, as far as this one can tell by itself."""
        return self._lease.leads()

    def renew(self, *, at_once: bool = False) -> None:
        """Prove that this process leads, if it is time to. Raises `LeadershipLost` if not."""
        if (at_once or self._lease.due()) and not self._closed:
            with self._writing():
                pass

    def leader(self) -> Leader:
        """The process that leads, or was the last to."""
        table = LEADER.c
        row = (table.epoch, table.holder, table.address, table.folder, table.version)
        return self._all(select(*row), Leader)[0]

    # --- writing ------------------------------------------------------------------------------

    def append(self, records: Sequence[Record], audit: Audit) -> None:
        """Commit records and audit rows in one transaction; they are on the disk on return.

        O(rows), plus one fsync. ``seq`` must go up by one, from that of the newest record or
        snapshot.
        """
        last_seq = self._last_seq
        for record in records:
            if record.seq != last_seq + 1:
                raise JournalFailure(f"{self._place}: record {record.seq} after {last_seq}")
            last_seq = record.seq
        if len(records) >= COPIED_ROWS:
            self.renew(at_once=True)  # a whole lease to send them in
        with self._writing() as connection:
            insert = self._insert
            rows = [_record_row(record, self.epoch) for record in records]
            insert.rows(connection, insert.record, rows)
            insert.rows(connection, insert.history, [astuple(row) for row in audit.history])
            insert.rows(connection, insert.attempt, [astuple(row) for row in audit.attempts])
            insert.rows(connection, insert.job, [_job_row(row) for row in audit.jobs])
            insert.rows(connection, insert.act, [acts.row_of(row) for row in audit.acts])
            put_options(connection, audit.options)
            self._last_seq = max(self._last_seq, last_seq)

    def save_snapshot(self, snapshot: Snapshot, past: Past = Past()) -> None:  # noqa: B008 (frozen)
        """Store a snapshot; delete what ``past`` does not keep, and records that no snapshot needs.

        The empty beginning counts as the oldest of the snapshots, as long as its records are there.
        One that no database takes is left out, with a warning: a start reads more records then.
        O(bytes of the snapshot + records since the last one + records deleted).
        """
        seq, count = snapshot.seq, len(snapshot.machines)
        blobs = packed(snapshot)
        if blobs is None:
            _log.warning("snapshot too large", place=self._place, seq=seq)
            return
        with self._writing() as connection:
            connection.execute(delete(SNAPSHOTS).where(SNAPSHOTS.c.seq == seq))
            total_bytes = total_bytes_at(connection, seq)
            rows = [
                (seq, machine, snapshot.at_s, blob, count, total_bytes)
                for machine, blob in blobs.items()
            ]
            self._insert.rows(connection, self._insert.snapshot, rows)
            retire(connection, past)
        self._last_seq = max(self._last_seq, seq)

    def forget(self, before_s: float, most: int) -> int:
        """Forget jobs that ended before a time, at most so many, but for what they used by the day.

        Says how many. O(their lines of history and attempts).
        """
        with self._writing() as connection:
            return forget(connection, before_s, most)

    def set_option(self, name: str, value: str) -> None:
        """Keep something that a leader decides by, as JSON, for the leaders after it."""
        self.set_options({name: value})

    def set_options(self, values: Mapping[str, str]) -> None:
        """Keep several, in one transaction: decisions wait for it as for any other."""
        with self._writing() as connection:
            put_options(connection, values)

    def put_blob(self, digest: str, data: bytes) -> None:
        """Keep a file for the leaders after this one."""
        with self._writing() as connection:
            connection.execute(delete(BLOBS).where(BLOBS.c.digest == digest))
            connection.execute(BLOBS.insert().values(digest=digest, data=data))

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """One transaction of the writer; after a failure there is no other."""
        with self._write_lock, explained(self._place):
            if self._writer is None:
                raise JournalFailure(f"{self._place}: the journal is open for reading only")
            if self._closed:
                raise JournalFailure(f"{self._place}: the journal is closed")
            if self._broken is not None:
                raise JournalFailure(f"{self._place}: an earlier write failed: {self._broken}")
            begun_s = elapsed_s()
            try:
                with self._writer.begin():
                    self._lease.prove(self._writer)
                    yield self._writer
            except BaseException as error:
                self._broken = error
                raise
            self._lease.confirm(begun_s)

    # --- reading ------------------------------------------------------------------------------

    def latest_snapshot(self, until_s: float | None = None) -> Snapshot | None:
        """The newest snapshot (taken at or before ``until_s``) that can be read.

        A damaged one is passed over, with a warning: the records since the one before are kept.
        """
        with self._reading() as connection:
            schema.refuse_newer(connection)
            seqs = select(SNAPSHOTS.c.seq).distinct().order_by(SNAPSHOTS.c.seq.desc())
            if until_s is not None:
                seqs = seqs.where(SNAPSHOTS.c.at_s <= until_s)
            found = connection.scalars(seqs).all()
            for seq in found:
                rows = connection.execute(select(SNAPSHOTS).where(SNAPSHOTS.c.seq == seq)).all()
                try:
                    machines = {row.machine: zlib.decompress(row.blob) for row in rows}
                except (zlib.error, TypeError) as error:
                    _log.warning("snapshot damaged", place=self._place, seq=seq, error=str(error))
                    continue
                wanted = rows[0].machines
                if wanted is not None and wanted != len(machines):
                    lack = f"{len(machines)} of its {wanted} machines are there"
                    _log.warning("snapshot damaged", place=self._place, seq=seq, error=lack)
                    continue
                return Snapshot(seq, rows[0].at_s, machines)
        if found:
            raise JournalFailure(f"{self._place}: every snapshot is damaged: restore a backup")
        return None

    def records(self, after: int = 0, until_s: float | None = None) -> Iterator[Record]:
        """Records with ``seq`` > ``after``, in order, up to the first later than ``until_s``.

        All are of one moment, and few are in memory at a time. Raises when some that were asked
        for are retired, or may have been written by a newer program, which took over meanwhile.
        """
        query = select(JOURNAL).where(JOURNAL.c.seq > after).order_by(JOURNAL.c.seq)
        with self._reading() as connection:
            schema.refuse_newer(connection)
            self._refuse_retired(connection, after)
            streamed = connection.execution_options(yield_per=RECORDS_PER_FETCH)
            previous, epoch = after, 0
            for row in streamed.execute(query):
                if row.seq != previous + 1:
                    lost = f"records {previous + 1} to {row.seq - 1} are missing"
                    raise JournalFailure(f"{self._place}: {lost}: restore a backup")
                previous = row.seq
                if (row.epoch or 0) < epoch:
                    text = f"{self._place}: record {row.seq} is of a leader that was replaced"
                    raise JournalFailure(text)
                epoch = row.epoch or 0
                record = record_of(row)
                if record is None:
                    text = f"{self._place}: record {row.seq} is damaged: restore a backup"
                    raise JournalFailure(text)
                if until_s is not None and record.at_s > until_s:
                    return
                yield record

    def times_s(self, count: int) -> list[float]:
        """The times of so many records, evenly spaced among those that are kept."""
        with self._reading() as connection:
            seqs = select(func.min(JOURNAL.c.seq), func.max(JOURNAL.c.seq))
            first, last = connection.execute(seqs).one()
            if first is None:
                return []
            chosen = range(first, last + 1, max(1, (last - first) // count))
            query = select(JOURNAL.c.at_s).where(JOURNAL.c.seq.in_(chosen))
            return list(connection.scalars(query))

    def span_s(self) -> tuple[float, float] | None:
        """The first and the last time for which the state can be rebuilt; None: there is none."""
        with self._reading() as connection:
            kept = connection.execute(snapshots()).all()
            seqs = select(func.min(JOURNAL.c.seq), func.max(JOURNAL.c.seq))
            first, last = connection.execute(seqs).one()
            ends = connection.execute(
                select(JOURNAL.c.seq, JOURNAL.c.at_s).where(JOURNAL.c.seq.in_((first, last)))
            ).all()
        times = {row.seq: row.at_s for row in ends}
        begins = times[1] if first == 1 else kept[0].at_s if kept else None
        if begins is None:
            return None
        return begins, max([begins, *times.values(), *(one.at_s for one in kept)])

    def history(self, job: str, limit: int = 1000) -> list[HistoryRow]:
        """The audit trail of one job, oldest first; of more than ``limit`` lines the newest."""
        table = HISTORY.c
        query = select(table.at_s, table.job, table.kind, table.text, table.detail)
        query = query.where(table.job == job).order_by(table.id.desc()).limit(limit)
        return self._all(query, HistoryRow)[::-1]

    def history_after(self, after: int, limit: int) -> list[tuple[int, HistoryRow]]:
        """Lines of all histories behind one, oldest first, with their numbers."""
        table = HISTORY.c
        query = select(table.id, table.at_s, table.job, table.kind, table.text, table.detail)
        query = query.where(table.id > after).order_by(table.id).limit(limit)
        with self._reading() as connection:
            found = connection.execute(query).all()
        return [(row[0], HistoryRow(*row[1:])) for row in found]

    def history_until(self, until_s: float, limit: int) -> list[HistoryRow]:
        """The newest lines of all histories up to a time, oldest first. O(lines since then)."""
        table = HISTORY.c
        query = select(table.at_s, table.job, table.kind, table.text, table.detail)
        query = query.where(table.at_s <= until_s).order_by(table.id.desc()).limit(limit)
        return self._all(query, HistoryRow)[::-1]

    def history_count(self) -> int:
        """A number that grows with every line of the audit trail, by one at least."""
        with self._reading() as connection:
            return connection.scalar(select(func.max(HISTORY.c.id))) or 0

    def attempts(self, since_s: float, until_s: float) -> list[AttemptRow]:
        """Finished attempts that overlap a period, ordered by start, job, epoch."""
        table = ATTEMPTS.c
        query = select(ATTEMPTS).where(table.end_s > since_s, table.start_s < until_s)
        return self._all(query.order_by(table.start_s, table.job, table.epoch), AttemptRow)

    def usage_days(self, since_s: float, until_s: float) -> list[UsageDay]:
        """What forgotten jobs used, by the days that overlap a period."""
        day_s = USAGE_DAYS.c.day_s
        query = select(USAGE_DAYS).where(day_s > since_s - DAY_S, day_s < until_s)
        return self._all(query.order_by(*USAGE_DAYS.primary_key.columns), UsageDay)

    def attempts_of(self, job: str) -> list[AttemptRow]:
        """Finished attempts of one job by epoch."""
        query = select(ATTEMPTS).where(ATTEMPTS.c.job == job).order_by(ATTEMPTS.c.epoch)
        return self._all(query, AttemptRow)

    def acts(self, wanted: ActFilter) -> list[ActRow]:
        """Lines of the audit log, the newest first."""
        return self._all(acts.chosen(wanted), acts.act_of)

    def finished_job(self, job: str) -> JobRow | None:
        """One finished job."""
        found = self._all(finished.jobs().where(FINISHED_JOBS.c.job == job), JobRow)
        return found[0] if found else None

    def finished_jobs_of(self, jobs: Sequence[str]) -> list[JobRow]:
        """Those of the jobs that have finished, by one query for each thousand."""
        found: list[JobRow] = []
        for at in range(0, len(jobs), JOBS_PER_QUERY):
            some = jobs[at : at + JOBS_PER_QUERY]
            found += self._all(finished.jobs().where(FINISHED_JOBS.c.job.in_(some)), JobRow)
        return found

    def finished_jobs(
        self,
        before_number: int | None = None,
        limit: int = 100,
        tenants: Sequence[str] | None = None,
    ) -> list[JobRow]:
        """Finished jobs, newest number first; the last one's number is the next cursor."""
        dialect = self._database.reader.dialect
        return self._all(finished.page(dialect, before_number, limit, tenants), JobRow)

    def option(self, name: str) -> str | None:
        """What `set_option` kept."""
        with self._reading() as connection:
            return connection.scalar(select(OPTIONS.c.value).where(OPTIONS.c.name == name))

    def blob(self, digest: str) -> bytes | None:
        """What `put_blob` kept."""
        with self._reading() as connection:
            return connection.scalar(select(BLOBS.c.data).where(BLOBS.c.digest == digest))

    def blob_bytes(self) -> dict[str, int]:
        """How long each file is that `put_blob` kept."""
        return dict(self._all(select(BLOBS.c.digest, func.length(BLOBS.c.data)), _pair))

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with explained(self._place):
            if self._closed:
                raise JournalFailure(f"{self._place}: the journal is closed")
            with self._database.reader.begin() as connection:
                yield connection

    def _all(self, query: Select[Any], make: Callable[..., _T]) -> list[_T]:
        with self._reading() as connection:
            found = connection.execute(query).all()
        if any(value is None for row in found for value in row):
            raise JournalFailure(
                f"{self._place}: a row of the history is damaged: restore a backup"
            )
        return [make(*row) for row in found]

    def _refuse_retired(self, connection: Connection, after: int) -> None:
        """Retiring leaves no record at or before the oldest snapshot kept."""
        oldest = connection.execute(snapshots().limit(1)).first()
        if oldest is None or after >= oldest.seq:
            return
        first = connection.scalar(select(func.min(JOURNAL.c.seq)))
        if first is None or first > oldest.seq:
            when = datetime.fromtimestamp(oldest.at_s, UTC).astimezone()
            raise Retired(
                f"{self._place}: the past is kept from {when:%Y-%m-%d %H:%M:%S} on, not before"
            )

    def close(self) -> None:
        """Release connections and the right to write; a second call does nothing."""
        with self._write_lock, explained(self._place):
            if self._closed:
                return
            self._closed = True
            if self._writer is not None:
                self._writer.close()
            dispose(self._database)


def _newest_seq() -> Any:
    newest_record = select(func.max(JOURNAL.c.seq)).scalar_subquery()
    newest_snapshot = select(func.max(SNAPSHOTS.c.seq)).scalar_subquery()
    return func.coalesce(newest_record, newest_snapshot)


def _pair(digest: str, size_bytes: int) -> tuple[str, int]:
    return digest, size_bytes


def _record_row(record: Record, epoch: int) -> tuple[Any, ...]:
    return (*astuple(record), crc_of(record), epoch)


def _job_row(row: JobRow) -> tuple[Any, ...]:
    return row.number, row.job, row.finish_s, row.view
