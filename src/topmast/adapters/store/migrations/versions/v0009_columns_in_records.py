"""Records hold the plans and gangs of a burst in columns, which programs before do not know."""

from __future__ import annotations

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Change no table: the version alone keeps older programs away."""
