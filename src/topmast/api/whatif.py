"""Routes of what-ifs: begin one, and look how far it is."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from topmast.api.bodies import read_object
from topmast.api.wire import answer, returns, takes
from topmast.model.access import Permission
from topmast.model.errors import InvalidInput, refuse_all
from topmast.model.files.changes import changes_within
from topmast.model.whatif_views import WhatIfAsk, WhatIfView
from topmast.routing import caller_of, guarded_router, needs
from topmast.service.service import Service

_COUNTS = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
_ASK: dict[str, Any] = {
    "for_s": {"type": "number"},
    "add_hosts": _COUNTS,
    "quotas": _COUNTS,
    "profile": {"type": "string"},
    "lose_regions": {"type": "array", "items": {"type": "string"}},
    "jobs": {"type": "object", "additionalProperties": {"type": "object"}},
}
MOST_OF_ONE = 1_000_000
"""Hosts or GPUs of one change."""


def _check_counts(body: dict[str, Any], field: str, remedy: str) -> None:
    """Raises InvalidInput."""
    counts = body.get(field, {})
    if not isinstance(counts, dict):
        raise InvalidInput("must be whole numbers by name", field=field, remedy=remedy)
    refuse_all(
        InvalidInput(
            f"must be a whole number from 0 to {MOST_OF_ONE:,}", field=f"{field}.{name[:100]}",
            remedy=remedy,
        )
        for name, count in counts.items()
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_OF_ONE
    )  # fmt: skip


def _check_jobs(body: dict[str, Any]) -> None:
    """Raises InvalidInput."""
    jobs = body.get("jobs", {})
    if not isinstance(jobs, dict):
        remedy = "such as {j7: {priority: high}}"
        raise InvalidInput("must be changes by job", field="jobs", remedy=remedy)
    for job, document in jobs.items():
        changes_within(document, f"jobs.{job[:40]}")


_CHECKS = (
    partial(_check_counts, field="add_hosts", remedy="hosts by CLUSTER or CLUSTER:KIND"),
    partial(_check_counts, field="quotas", remedy="GPUs by TENANT:MODEL, such as vision:H100"),
    _check_jobs,
)


def _readable(body: dict[str, Any]) -> WhatIfAsk:
    """What can be read of a request that is refused anyway."""
    asked = WhatIfAsk()
    for name, value in body.items():
        with suppress(msgspec.ValidationError):
            one = msgspec.convert({name: value}, WhatIfAsk)
            asked = msgspec.structs.replace(asked, **{name: getattr(one, name)})
    return asked


def routes(service: Service) -> APIRouter:
    """All routes about what-ifs."""
    router = guarded_router()

    @router.post(
        "/whatif", tags=["fleet"],
        summary="Run the system ahead twice, as it is and with something changed",
        **takes(_ASK), **returns(WhatIfView, 202),
    )  # fmt: skip
    @needs(Permission.FLEET_EDIT, verb="whatif")
    async def start(request: Request) -> Response:
        async def check(rest: dict[str, Any]) -> None:
            await service.check_whatif(caller_of(request), _readable(rest))

        body = await read_object(request, _ASK, checks=_CHECKS, beside=check)
        asked = msgspec.convert({k: v for k, v in body.items() if v is not None}, WhatIfAsk)
        return answer(await service.start_whatif(caller_of(request), asked), 202)

    @router.get(
        "/whatif/{number}", tags=["fleet"], summary="A what-if on its way, or its result",
        **returns(WhatIfView),
    )  # fmt: skip
    @needs(Permission.FLEET_EDIT)
    async def show(number: str, request: Request) -> Response:
        return answer(service.whatif(caller_of(request), number))

    return router
