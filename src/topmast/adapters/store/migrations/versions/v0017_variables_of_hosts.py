"""Clusters are recorded with the capability `env`, which programs before do not know.

Those would place a job with a secret ``env:NAME`` where no task can have it.
"""

from __future__ import annotations

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Change no table: the version alone keeps older programs away."""
