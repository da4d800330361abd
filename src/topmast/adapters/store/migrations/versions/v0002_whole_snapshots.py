"""A snapshot says of how many machines it is, and how many bytes of records came before it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add two columns; what is there already says neither."""
    op.add_column("snapshots", sa.Column("machines", sa.BigInteger, nullable=True))
    op.add_column("snapshots", sa.Column("total_bytes", sa.BigInteger, nullable=True))
