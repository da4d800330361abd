"""System: which server leads, how long it takes for things, what waits, and the plans."""

from __future__ import annotations

from typing import Any

from topmast.model.access import Permission
from topmast.model.errors import Unavailable
from topmast.web.page import Ask, Page

STEPS = {
    "commit": "a commit to the journal",
    "queue": "the global queue",
    "desk": "the fleet placer",
    "placer": "a regional placer",
    "cluster": "a cluster manager",
}
"""In words, by the name that the metrics have."""


async def view(ask: Ask) -> dict[str, Any]:
    """The server at a glance."""
    service, caller = ask.service, ask.caller
    try:
        capacity = await service.capacity_plan(caller)
    except Unavailable:
        capacity = None
    return {
        "system": await service.system(caller),
        "capacity": capacity,
        "steps": STEPS,
        "warnings": [cluster for cluster in await service.list(caller, "clusters")
                     if cluster.state != "open"],
    }  # fmt: skip


PAGE = Page(
    "/system", "System", Permission.FLEET_VIEW, "system.html", view, place=80, follows="all"
)
