"""Finished jobs are found by their tenant: in the order of numbers, by what their view says."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"

_TENANT = {
    "sqlite": "json_extract(view, '$.tenant')",
    "postgresql": """substring(view from '"tenant":("(?:[^"\\\\]|\\\\.)*")')""",
}
"""PostgreSQL gives nothing out of JSON that has a NUL anywhere, and would then refuse the row: its
index is on the first tenant that the text names, as JSON."""


def upgrade() -> None:
    """Add an index. A column would keep a newer standby from following an older leader."""
    tenant = _TENANT[op.get_bind().dialect.name]
    op.execute(f"CREATE INDEX finished_jobs_tenant ON finished_jobs ({tenant}, number)")
