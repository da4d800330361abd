"""Records hold plans that were chosen of several regions, which programs before do not know."""

from __future__ import annotations

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Change no table: the version alone keeps older programs away."""
