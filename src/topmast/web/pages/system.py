"""System: which server leads, how long it takes for things, what waits, the plans, the webhooks."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from topmast.model.access import ROOT, Permission
from topmast.model.errors import Unavailable
from topmast.model.webhooks import TEMPLATES, WebhookView
from topmast.service.policies import listing
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
    system = await service.system(caller)
    return {
        "system": system,
        "timing": {one.step: one for one in system.timings},
        "capacity": capacity,
        "places": ask.part(capacity.clusters if capacity else (), "places"),
        "steps": STEPS,
        "warnings": [cluster for cluster in await service.list(caller, "clusters")
                     if cluster.state != "open"],
        "profile": await service.profiles.view(),
        "profiles": await asyncio.to_thread(_profiles),
        "webhooks": await _webhooks(ask),
        "forms": TEMPLATES,
    }  # fmt: skip


@cache
def _profiles() -> dict[str, str]:
    """What each profile does, by its name."""
    return {profile["name"]: profile["what"] for profile in listing()["profiles"]}


async def _webhooks(ask: Ask) -> tuple[WebhookView, ...] | None:
    """None: the caller may not see them, or the server tells none."""
    may = ask.caller.principal.may(Permission.NOTIFY_EDIT, (ROOT,))
    if not may or ask.service.webhooks is None:
        return None
    return await ask.service.webhooks.listed(ask.caller)


PAGE = Page(
    "/system", "System", Permission.FLEET_VIEW, "system.html", view, place=80, follows="all"
)
