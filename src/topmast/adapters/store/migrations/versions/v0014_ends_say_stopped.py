"""News of an end may say that a stop had been ordered, which programs before do not know."""

from __future__ import annotations

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Change no table: the version alone keeps older programs away."""
