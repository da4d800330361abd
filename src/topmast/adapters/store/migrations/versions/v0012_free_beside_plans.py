"""Events hold what is free beside plans of regions, which programs before do not know."""

from __future__ import annotations

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Change no table: the version alone keeps older programs away."""
