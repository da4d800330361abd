"""The first tables: journal, snapshots, and the audit tables history, attempts, finished jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create everything."""
    big_key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "journal",
        sa.Column("seq", big_key, primary_key=True, autoincrement=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.Column("machine", sa.Text, nullable=False),
        sa.Column("event", sa.LargeBinary, nullable=False),
        sa.Column("facts", sa.LargeBinary, nullable=False),
        sa.Column("crc", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "snapshots",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("machine", sa.Text, primary_key=True),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.Column("blob", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "history",
        sa.Column("id", big_key, primary_key=True, autoincrement=True),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("history_job", "history", ["job", "id"])
    op.create_table(
        "attempts",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("region", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("gpus_milli", sa.BigInteger, nullable=False),
        sa.Column("start_s", sa.Float(53), nullable=False),
        sa.Column("end_s", sa.Float(53), nullable=False),
        sa.Column("kept_s", sa.Float(53), nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
    )
    op.create_index("attempts_end", "attempts", ["end_s"])
    op.create_table(
        "finished_jobs",
        sa.Column("number", big_key, primary_key=True, autoincrement=False),
        sa.Column("job", sa.Text, nullable=False, unique=True),
        sa.Column("finish_s", sa.Float(53), nullable=False),
        sa.Column("view", sa.Text, nullable=False),
    )
