"""One sweep: how far it is, its jobs, and what can be done to all of them."""

from __future__ import annotations

from typing import Any

from topmast.model.access import Permission
from topmast.model.job import Band
from topmast.model.states import TERMINAL, JobState
from topmast.web.page import Ask, Page

ROWS = 200
"""Jobs that are shown; the page of the queue has the others."""


async def view(ask: Ask) -> dict[str, Any]:
    """A sweep with the first of its jobs."""
    sweep = await ask.service.sweep(ask.caller, ask.path["sweep"])
    selector = f"sweep={sweep.id}"
    given = ask.filters("state")
    states = [given["state"]] if given["state"] in list(JobState) else []
    page = await ask.service.jobs(ask.caller, states, "", ROWS, "", False, selector)
    over = sum(count for state, count in sweep.states.items() if state in TERMINAL)
    return {
        "title": f"{sweep.id} {sweep.name}",
        "sweep": sweep,
        "given": given,
        "jobs": sorted(page.jobs, key=lambda job: (job.sweep_index or 0, job.id)),
        "more": page.next_cursor is not None,
        "is_over": over == sweep.jobs,
        "failed": sweep.states.get(JobState.FAILED, 0) + sweep.states.get(JobState.CANCELLED, 0),
        "bands": [band.name.lower() for band in Band],
        "states": list(JobState),
    }


PAGE = Page("/sweeps/{sweep}", "Sweep", Permission.JOBS_VIEW, "sweep.html", view, follows="all")
