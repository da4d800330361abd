"""Usage by the day, for ever, of jobs that are forgotten; and how these are found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add a table and an index."""
    names = ("tenant", "user", "region", "cluster", "model")
    op.create_table(
        "usage_days",
        sa.Column("day_s", sa.Float(53), primary_key=True),
        *(sa.Column(name, sa.Text, primary_key=True) for name in names),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("held_gpu_s", sa.Float(53), nullable=False),
        sa.Column("kept_gpu_s", sa.Float(53), nullable=False),
    )
    op.create_index("finished_jobs_finish", "finished_jobs", ["finish_s"])
