"""PostgreSQL: one connection that holds the right to write, and how the next leader takes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, create_engine, event, make_url

from topmast.adapters.clock import elapsed_s
from topmast.adapters.store import schema
from topmast.adapters.store.database import Claim, Database, Leader
from topmast.adapters.store.errors import (
    InUse,
    JournalFailure,
    LeadershipLost,
    explain,
    explained,
)
from topmast.model.errors import InvalidInput

# Any number that other programs in the same database are unlikely to lock: "topmast" as bytes.
OWNER_KEY = int.from_bytes(b"topmast", "big")

LEASE_S = 3.0
"""A leader that has proven nothing for so long, by the clock of the database, is replaced."""
TRUST_S = 2.0
"""It stops earlier by itself, by its own clock: this long after the start of its last proof."""
RENEW_S = 1.0
"""A leader with nothing to write proves this often that it leads."""
HINT_S = 0.05
"""Those that follow are told of commits at most this often; they also look by themselves."""
LOCK_WAIT_S = 10.0
"""The longest wait for the lock in one go: a statement that runs keeps dead rows from going."""

# A network that is cut is noticed in about three seconds, on both sides.
_TCP = {"tcp_keepalives_idle": 1, "tcp_keepalives_interval": 1, "tcp_keepalives_count": 2}
_SERVER = {**_TCP, "tcp_user_timeout": 2500, "client_connection_check_interval": 1000}
CONNECT: dict[str, Any] = {
    "keepalives": 1,
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": 2,
    "tcp_user_timeout": 2500,
    "connect_timeout": 3,
    "application_name": "topmast",
    "options": " ".join(f"-c {name}={value}" for name, value in _SERVER.items()),
}

_SAFE = """
SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('synchronous_commit'),
       current_setting('fsync')
"""
LOCK = (OWNER_KEY >> 32, OWNER_KEY & 0xFFFF_FFFF)
"""The same number as `pg_locks` shows it."""
_HOLDER = """
SELECT pid FROM pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid = %s AND objid = %s
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_WAITERS = """
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND NOT granted AND objsubid = 1 AND classid = %s AND objid = %s
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_LEADER = """
SELECT EXTRACT(EPOCH FROM clock_timestamp() - renewed_at)::float8,
       epoch, holder, address, folder, version
FROM leader
"""
_ROOM = (
    "SET LOCAL temp_tablespaces = ''",  # where the database itself is
    "SET LOCAL work_mem = '64kB'",
    "SELECT max(length(row)) FROM (SELECT repeat('x', 1024) AS row"
    " FROM generate_series(1, 8192) AS number ORDER BY number DESC) AS sorted",
)
"""Sorts 8 MiB in a file, which takes no rights, leaves no trace, and writes nothing to the log."""
WITH_DRIVER = "pip install 'topmast[postgres]'"
_CLOCK = "SELECT extract(epoch FROM clock_timestamp()), current_setting('server_version')"
_LAST_SEEN = "SELECT holder, address FROM leader"
_VERSIONS = "SELECT version_num, version FROM alembic_version, leader"
_PLACE = """
SELECT s.system_identifier::text, c.timeline_id
FROM pg_control_system() s, pg_control_checkpoint() c
"""
_BEFORE = """
SELECT system, timeline, epoch, holder, address, folder, version FROM leader FOR UPDATE
"""
_TAKE = """
WITH taken AS (
    UPDATE leader SET epoch = GREATEST(epoch, %s) + 1, holder = %s, address = %s, folder = %s,
        version = %s, backend_pid = pg_backend_pid(), renewed_at = clock_timestamp(),
        system = %s, timeline = %s
    RETURNING epoch
)
SELECT epoch, pg_notify('topmast_journal', '') FROM taken
"""
_PROVE = "UPDATE leader SET renewed_at = clock_timestamp() WHERE epoch = %s"
_PROVE_AND_HINT = """
WITH proven AS (
    UPDATE leader SET renewed_at = clock_timestamp() WHERE epoch = %s RETURNING epoch
)
SELECT pg_notify('topmast_journal', ''), epoch FROM proven
"""
# A backend that works for its client is no sign of a client that hangs, however long it takes.
_END_EXPIRED = """
SELECT pg_terminate_backend(backend.pid)
FROM pg_stat_activity backend
JOIN leader ON leader.renewed_at < clock_timestamp() - make_interval(secs => %s)
WHERE backend.pid = %s AND backend.state_change < clock_timestamp() - interval '1 s'
  AND NOT (backend.state = 'active' AND backend.wait_event_type IS DISTINCT FROM 'Client')
"""


def clock_of(url: str) -> tuple[float, str]:
    """The time by the database's clock, and its version. Raises JournalFailure."""
    parts = make_url(url).set(drivername="postgresql+psycopg")
    try:
        engine = create_engine(parts, connect_args=dict(CONNECT))
    except ModuleNotFoundError as error:
        raise JournalFailure(f"{error.name} is missing: {WITH_DRIVER}") from error
    try:
        with explained(url), engine.connect() as connection:
            row = connection.exec_driver_sql(_CLOCK).one()
    finally:
        engine.dispose()
    return float(row[0]), str(row[1])


def open_database(url: URL, place: str, claim: Claim | None) -> Database:
    """Engines for reading and, with a ``claim``, for writing as the leader."""
    try:
        reader = create_engine(
            url,
            pool_size=4,
            max_overflow=28,
            pool_pre_ping=True,  # the server may have been restarted since
            connect_args=dict(CONNECT),
            execution_options={"postgresql_readonly": True},
            isolation_level="REPEATABLE READ",  # the rows of one read are of one moment
        )
    except ModuleNotFoundError as error:
        raise JournalFailure(f"{error.name} is missing: {WITH_DRIVER}") from error
    if claim is None:
        return Database(place, reader, None, None)
    # One connection, never replaced: with it the right to write would be lost.
    writer = create_engine(
        url, pool_size=1, max_overflow=0, paramstyle="format", connect_args=dict(CONNECT)
    )
    event.listen(writer, "connect", lambda raw, _record: _lock(raw, place, waits=claim.waits))
    return Database(place, reader, writer, DatabaseLease(claim, place))


def _lock(raw: Any, place: str, *, waits: bool) -> None:
    """Take the lock that only one connection can have, for as long as this one lives."""
    raw.autocommit = True  # no transaction may be open while it waits
    with raw.cursor() as cursor:
        _require_safe(raw, cursor, place)
        taken = cursor.execute("SELECT pg_try_advisory_lock(%s)", (OWNER_KEY,)).fetchone()[0]
        if not taken and not waits:
            raise InUse(place, _holder(cursor))
        if not taken:
            _wait_for_lock(cursor)
    raw.autocommit = False


def _wait_for_lock(cursor: Any) -> None:
    from psycopg.errors import LockNotAvailable

    cursor.execute(f"SET lock_timeout = '{LOCK_WAIT_S:g}s'")
    while True:
        if _has_leader(cursor):  # of a newer program it is no candidate
            schema.require_known(*cursor.execute(_VERSIONS).fetchone())
        try:
            cursor.execute("SELECT pg_advisory_lock(%s)", (OWNER_KEY,))
        except LockNotAvailable:
            continue
        cursor.execute("RESET lock_timeout")
        return


def waiting_for_lock(connection: Connection) -> bool:
    """Whether another process would take the lock as soon as it is free."""
    if connection.dialect.name != "postgresql":
        return False
    return bool(connection.exec_driver_sql(_WAITERS, LOCK).scalar())


def _holder(cursor: Any) -> str:
    """The process that has the lock, as far as can be told."""
    row = cursor.execute(_HOLDER, LOCK).fetchone()
    backend = f"backend pid {row[0]}" if row else "it has just ended"
    if not _has_leader(cursor):
        return backend
    holder, address = cursor.execute(_LAST_SEEN).fetchone()
    named = f"{holder} at {address}, " if holder else ""
    return f"{named}{backend}"


def _has_leader(cursor: Any) -> bool:
    """Whether the database has the table of the leader: it is neither empty nor very old."""
    return cursor.execute("SELECT to_regclass('leader')").fetchone()[0] is not None


def _require_safe(raw: Any, cursor: Any, place: str) -> None:
    """Refuse connections on which a lock or a commit would not mean what they must."""
    pid, in_recovery, synchronous, fsync = cursor.execute(_SAFE).fetchone()
    if raw.info.backend_pid != pid:
        raise InvalidInput(
            f"{place} is behind a connection pooler, which would lend the leader's lock to others",
            field="--store", remedy="name the database server itself",
        )  # fmt: skip
    if in_recovery:
        raise JournalFailure(f"{place} is a replica in recovery: name the primary")
    for setting, value in (("synchronous_commit", synchronous), ("fsync", fsync)):
        if value == "off":
            raise InvalidInput(
                f"{place} has {setting} off, and would lose what was acknowledged",
                field="--store", remedy=f"set {setting} = on for this database",
            )  # fmt: skip


def _require_room(connection: Connection) -> None:
    """Let no process lead while the disk is full: it would write a little, and end again."""
    room = connection.begin_nested()
    try:
        for statement in _ROOM:
            connection.exec_driver_sql(statement)
    finally:
        room.rollback()


class DatabaseLease:
    """The epoch in the table ``leader``, proven by each transaction on the one connection."""

    def __init__(self, claim: Claim, place: str) -> None:
        self.epoch = 0
        self.lasts_s: float | None = LEASE_S
        self.before: Leader | None = None
        self.shared_by = ""
        self._claim = claim
        self._place = place
        self._proven_s = 0.0
        self._hinted_s = 0.0

    def take(self, connection: Connection) -> None:
        """Raise the epoch: orders and writes of every leader before are refused from now on."""
        _require_room(connection)
        begun_s = elapsed_s()
        claim, place = self._claim, connection.exec_driver_sql(_PLACE).one()
        before = connection.exec_driver_sql(_BEFORE).one()
        self._require_same(before, place)
        self.shared_by = f"postgresql-{place.system_identifier}"
        self.before = Leader(*before[2:]) if before.epoch else None
        given = (claim.above, claim.holder, claim.address, claim.folder, claim.version, *place)
        self.epoch = connection.exec_driver_sql(_TAKE, given).scalar_one()
        self._proven_s = begun_s

    def _require_same(self, written: Any, found: Any) -> None:
        """Never write to a copy, nor to a primary that was replaced and came back."""
        if written.system is not None and written.system != found.system_identifier:
            raise JournalFailure(
                f"{self._place} is a copy of the database that was written before (system "
                f"{written.system}, now {found.system_identifier}): name the original; if that is "
                "gone for good, set system and timeline of the table leader to NULL"
            )
        if written.timeline is not None and written.timeline > found.timeline_id:
            raise JournalFailure(
                f"{self._place} is an old primary (timeline {found.timeline_id}, and timeline "
                f"{written.timeline} was written before): name the new one"
            )

    def prove(self, connection: Connection) -> None:
        """Renew the lease, unless another process leads; tell those that follow, now and then."""
        now_s = elapsed_s()
        hints = now_s - self._hinted_s > HINT_S
        statement = _PROVE_AND_HINT if hints else _PROVE
        if connection.exec_driver_sql(statement, (self.epoch,)).rowcount != 1:
            raise LeadershipLost(f"{self._place}: another process leads since epoch {self.epoch}")
        if hints:
            self._hinted_s = now_s

    def confirm(self, begun_s: float) -> None:
        """The proof holds from when it was begun, for that is before the database saw it."""
        self._proven_s = max(self._proven_s, begun_s)

    def due(self) -> bool:
        """Whether nothing was proven for a second."""
        return elapsed_s() - self._proven_s >= RENEW_S

    def leads(self) -> bool:
        """Whether the last proof is so young that no other can have taken over."""
        return elapsed_s() - self._proven_s < TRUST_S

    def release(self) -> None:
        """The lock goes with the connection."""


class Watch:
    """What those that follow see of the leader, on a connection of their own."""

    def __init__(self, url: URL, place: str) -> None:
        self._place = place
        self._url = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._connection: Any = None
        self._left_s = 0.0
        """How long the lease lasted when it was last looked at."""

    def wait(self, most_s: float) -> None:
        """Until a commit is hinted at, the lease that was seen runs out, or the time is over."""
        timeout_s = min(most_s, self._left_s) if self._left_s > 0 else most_s
        with self._connected() as connection:
            for _ in connection.notifies(timeout=timeout_s, stop_after=1):
                pass

    def leader(self) -> Leader:
        """The row of the leader."""
        age_s, *row = self._row(_LEADER)
        self._left_s = LEASE_S - (age_s or 0.0)
        return Leader(*row)

    def end_expired(self) -> bool:
        """End the connection of a leader that has proven nothing for too long; says whether."""
        holder = self._row(_HOLDER, LOCK)
        return bool(holder) and bool(self._row(_END_EXPIRED, (LEASE_S, *holder)))

    def _row(self, statement: str, given: tuple[Any, ...] = ()) -> tuple[Any, ...]:
        with self._connected() as connection:
            return tuple(connection.execute(statement, given).fetchone() or ())

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        import psycopg

        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self._url, autocommit=True, **CONNECT)
                self._connection.execute("LISTEN topmast_journal")
            yield self._connection
        except psycopg.Error as error:
            self.close()
            raise explain(error, self._place) from error

    def close(self) -> None:
        """Close the connection; it is opened again when it is needed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
