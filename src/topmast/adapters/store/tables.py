"""The tables, in SQL that SQLite and PostgreSQL both speak.

`migrations` creates them; a test holds the two together.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

# In SQLite only INTEGER (64 bits there) makes a primary key the row's own address: one tree
# instead of two.
BIG_KEY = BigInteger().with_variant(Integer(), "sqlite")

METADATA = MetaData()

JOURNAL = Table(
    "journal",
    METADATA,
    Column("seq", BIG_KEY, primary_key=True, autoincrement=False),
    Column("at_s", Float(53), nullable=False),
    Column("machine", Text, nullable=False),
    Column("event", LargeBinary, nullable=False),
    Column("facts", LargeBinary, nullable=False),
    Column("crc", BigInteger, nullable=False),
    Column("epoch", BigInteger),  # of the leader that wrote it; NULL before version 0003
)

SNAPSHOTS = Table(
    "snapshots",
    METADATA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("machine", Text, primary_key=True),
    Column("at_s", Float(53), nullable=False),
    Column("blob", LargeBinary, nullable=False),
    Column("machines", BigInteger),  # rows of this snapshot; NULL before version 0002
    Column("total_bytes", BigInteger),  # of all records up to it, kept or not
)

HISTORY = Table(
    "history",
    METADATA,
    Column("id", BIG_KEY, primary_key=True, autoincrement=True),
    Column("at_s", Float(53), nullable=False),
    Column("job", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Index("history_job", "job", "id"),
)

ATTEMPTS = Table(
    "attempts",
    METADATA,
    Column("job", Text, primary_key=True),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("region", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("gpus_milli", BigInteger, nullable=False),
    Column("start_s", Float(53), nullable=False),
    Column("end_s", Float(53), nullable=False),
    Column("kept_s", Float(53), nullable=False),
    Column("outcome", Text, nullable=False),
    Column("labels", Text, nullable=False, server_default=""),  # of the job, as JSON
    Column("idle_s", Float(53), nullable=False, server_default="0"),  # held without computing
    Index("attempts_end", "end_s"),
)

FINISHED_JOBS = Table(
    "finished_jobs",
    METADATA,
    Column("number", BIG_KEY, primary_key=True, autoincrement=False),
    Column("job", Text, nullable=False, unique=True),
    Column("finish_s", Float(53), nullable=False),
    Column("view", Text, nullable=False),
    Index("finished_jobs_finish", "finish_s"),
    # Another is by the tenant in the view, which each database says in its own words (0016).
)

USAGE_DAYS = Table(
    "usage_days",
    METADATA,
    Column("day_s", Float(53), primary_key=True),  # when it began, in UTC
    Column("tenant", Text, primary_key=True),
    Column("user", Text, primary_key=True),
    Column("region", Text, primary_key=True),
    Column("cluster", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("attempts", BigInteger, nullable=False),  # that ended on it
    Column("held_gpu_s", Float(53), nullable=False),
    Column("kept_gpu_s", Float(53), nullable=False),
    Column("idle_gpu_s", Float(53), nullable=False, server_default="0"),
)

LEADER = Table(
    "leader",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 1: there is one row
    Column("epoch", BigInteger, nullable=False),  # goes up whenever the right to write is taken
    Column("holder", Text, nullable=False),  # the process, for people
    Column("address", Text, nullable=False),  # where clients find it
    Column("folder", Text, nullable=False),  # tells its state folder from all others
    Column("version", Text, nullable=False),  # of Topmast
    Column("backend_pid", BigInteger),  # of its connection, in PostgreSQL
    Column("renewed_at", DateTime(timezone=True)),  # by the clock of the database
    Column("system", Text),  # the database cluster that it was written in,
    Column("timeline", BigInteger),  # and its history
)

OPTIONS = Table(
    "options",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),  # JSON
)

BLOBS = Table(
    "blobs",
    METADATA,
    Column("digest", Text, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

ACTS = Table(
    "acts",
    METADATA,
    Column("id", BIG_KEY, primary_key=True, autoincrement=True),
    Column("at_s", Float(53), nullable=False),
    Column("actor", Text, nullable=False),
    Column("via", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("verb", Text, nullable=False),
    Column("object", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    # The object of one act may be a list of 100,000 jobs; a tree refuses keys of 2,700 bytes.
    Index("acts_object", "object", postgresql_using="hash"),
)

VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
"""Alembic's own; one row with the newest migration applied."""
