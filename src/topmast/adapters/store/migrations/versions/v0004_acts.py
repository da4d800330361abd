"""The audit log: what principals did, and what they were refused."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add a table."""
    big_key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    names = (
        "actor", "via", "address", "request", "verb", "object", "tenant", "before", "after",
        "outcome",
    )  # fmt: skip
    op.create_table(
        "acts",
        sa.Column("id", big_key, primary_key=True, autoincrement=True),
        sa.Column("at_s", sa.Float(53), nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in names),
    )
    op.create_index("acts_object", "acts", ["object", "id"])
