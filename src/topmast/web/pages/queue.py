"""The queue: the jobs that hold GPUs, then those that wait, by rank."""

from __future__ import annotations

from typing import Any

from topmast.model.access import Permission
from topmast.web.page import Ask, Page

ROWS = 200
"""Jobs of one page."""


async def view(ask: Ask) -> dict[str, Any]:
    """A page of jobs, with what the URL asks for."""
    given = ask.filters("state", "tenant", "selector", "cursor")
    states = [state for state in given["state"].split(",") if state] or ["active"]
    page = await ask.service.jobs(
        ask.caller, states, given["tenant"], ROWS, given["cursor"], True, given["selector"]
    )
    return {"jobs": page, "given": given}


PAGE = Page("/", "Queue", Permission.JOBS_VIEW, "queue.html", view, place=10, follows="all")
