"""How long attempts held their GPUs without computing, and so the usage by the day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add columns."""
    for table, name in (("attempts", "idle_s"), ("usage_days", "idle_gpu_s")):
        op.add_column(table, sa.Column(name, sa.Float(53), nullable=False, server_default="0"))
