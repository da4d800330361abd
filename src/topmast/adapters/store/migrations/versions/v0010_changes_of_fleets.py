"""Records of a changed fleet say what was changed, and why, for the history."""

from __future__ import annotations

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Change no table: the version alone keeps older programs away."""
