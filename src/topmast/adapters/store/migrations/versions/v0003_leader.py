"""One leader writes; what it decides by, and the work folders, may be kept beside the journal."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add three tables and a column."""
    op.add_column("journal", sa.Column("epoch", sa.BigInteger, nullable=True))
    leader = op.create_table(
        "leader",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("backend_pid", sa.BigInteger),
        sa.Column("renewed_at", sa.DateTime(timezone=True)),
        sa.Column("system", sa.Text),
        sa.Column("timeline", sa.BigInteger),
    )
    empty = dict.fromkeys(("holder", "address", "folder", "version"), "")
    op.bulk_insert(leader, [{"id": 1, "epoch": 0, **empty}])
    op.create_table(
        "options",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "blobs",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
