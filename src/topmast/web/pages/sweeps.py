"""Sweeps: each as one object, with how far it is."""

from __future__ import annotations

from typing import Any

from topmast.model.access import Permission
from topmast.model.states import JobState
from topmast.web.page import Ask, Page


async def view(ask: Ask) -> dict[str, Any]:
    """The sweeps in the server's memory, the newest first."""
    found = await ask.service.sweeps(ask.caller)
    return {"sweeps": ask.part(found), "states": list(JobState)}


PAGE = Page("/sweeps", "Sweeps", Permission.JOBS_VIEW, "sweeps.html", view, follows="all")
