"""A profile may say that received time is forgotten, which programs before do not know."""

from __future__ import annotations

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Change no table: the version alone keeps older programs away."""
