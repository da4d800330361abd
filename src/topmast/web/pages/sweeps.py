"""Sweeps: each as one object, with how far it is."""

from __future__ import annotations

from typing import Any

from topmast.model.access import Permission
from topmast.model.states import JobState
from topmast.web.page import Ask, Page

ROWS = 500
"""The newest; the others are on the command line."""


async def view(ask: Ask) -> dict[str, Any]:
    """The newest sweeps in the server's memory."""
    found = await ask.service.sweeps(ask.caller)
    return {"sweeps": found[:ROWS], "total": len(found), "states": list(JobState)}


PAGE = Page("/sweeps", "Sweeps", Permission.JOBS_VIEW, "sweeps.html", view, follows="all")
