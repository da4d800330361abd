"""The queue records which jobs leave its memory, which programs before decide as they go on.

Those do not know the fact, and would forget others.
"""

from __future__ import annotations

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Change no table: the version alone keeps older programs away."""
