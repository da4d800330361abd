"""The fleet as a fleet file: what `topmast fleet show` writes, its version, and what changed it."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi.responses import Response

from topmast.model.access import Permission
from topmast.model.files.fleetdump import fleet_text
from topmast.routing import SECURITY_HEADERS
from topmast.web.page import Ask, Page

CHANGES = 20
"""Changes that are shown; the audit log has all."""
FILE_HEADERS = {
    **SECURITY_HEADERS, "Cache-Control": "no-store",
    "Content-Disposition": 'attachment; filename="fleet.yaml"',
}  # fmt: skip


async def view(ask: Ask) -> dict[str, Any] | Response:
    """The file, on a page or to be kept."""
    found = await ask.service.fleet(ask.caller)
    text = await asyncio.to_thread(fleet_text, found.fleet, found.version)
    if ask.query.get("as") == "yaml":
        return Response(text, media_type="application/yaml", headers=FILE_HEADERS)
    return {
        "version": found.version,
        "file": text,
        "changes": ask.service.recent_events(ask.caller, CHANGES, "fleet-changed"),
        "may_audit": ask.caller.principal.may_somewhere(Permission.AUDIT_VIEW),
    }


PAGE = Page(
    "/fleet/file", "The fleet as a file", Permission.FLEET_EDIT, "fleet_file.html", view,
    follows="fleet-changed",
)  # fmt: skip
