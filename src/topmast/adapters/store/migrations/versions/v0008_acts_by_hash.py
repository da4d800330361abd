"""Acts are found by the hash of their object: a list of many jobs is no key of a tree."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Replace an index."""
    op.drop_index("acts_object", "acts")
    op.create_index("acts_object", "acts", ["object"], postgresql_using="hash")
