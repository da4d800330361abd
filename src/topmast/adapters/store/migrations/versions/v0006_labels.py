"""The labels of jobs beside their attempts, so that usage can be added up by them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add a column."""
    op.add_column("attempts", sa.Column("labels", sa.Text, nullable=False, server_default=""))
