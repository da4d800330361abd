"""Finished jobs as a table: pages of all of them, or of those of some tenants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Dialect, Select, select, text

from topmast.adapters.store.tables import FINISHED_JOBS

# The index is on what the view says (migration 0016), so that a row has no column that an older
# version would not fill in. Both ways take the newest rows of each tenant from it, and no others:
# SQLite ends its walk through a tenant at the limit by itself, PostgreSQL must be told to.
_NEWEST = {
    "sqlite": """
SELECT number FROM finished_jobs
WHERE json_extract(view, '$.tenant') IN (SELECT value FROM json_each(:tenants))
    AND number < :before
ORDER BY number DESC LIMIT :limit
""",
    "postgresql": """
SELECT one.number
FROM json_array_elements_text(CAST(:tenants AS json)) AS named(tenant)
CROSS JOIN LATERAL (
    SELECT number FROM finished_jobs
    WHERE substring(view from '"tenant":("(?:[^"\\\\]|\\\\.)*")') = named.tenant
        AND number < :before
    ORDER BY number DESC LIMIT :limit
) AS one
ORDER BY one.number DESC LIMIT :limit
""",
}
_ABOVE_ALL = 2**63 - 1


def jobs() -> Select[Any]:
    """All rows, as `ports.JobRow`."""
    table = FINISHED_JOBS.c
    return select(table.job, table.number, table.finish_s, table.view)


def page(
    dialect: Dialect, before_number: int | None, limit: int, tenants: Sequence[str] | None
) -> Select[Any]:
    """The newest rows before a number: O(limit), and of some tenants O(tenants x limit)."""
    number = FINISHED_JOBS.c.number
    query = jobs().order_by(number.desc())
    before = _ABOVE_ALL if before_number is None else before_number
    if tenants is None:
        return query.where(number < before).limit(limit)
    names = msgspec.json.encode(tenants).decode()
    if dialect.name == "postgresql":
        names = msgspec.json.encode([msgspec.json.encode(one).decode() for one in tenants]).decode()
    newest = text(_NEWEST[dialect.name]).bindparams(tenants=names, before=before, limit=limit)
    return query.where(number.in_(newest))
