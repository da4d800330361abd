"""Routes of what people do to many jobs at once, by id or by selector."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from topmast.api.access import caller_of, guarded_router, needs
from topmast.api.bodies import BULK_BYTES, read_object
from topmast.api.wire import answer, returns, takes, text, texts, truth
from topmast.model.access import Permission
from topmast.model.act_views import JobsActed
from topmast.service.service import Service
from topmast.service.verbs import JobsAct

_TEXT: dict[str, Any] = {"type": "string"}
_TARGETS: dict[str, Any] = {
    "jobs": {"type": "array", "items": _TEXT},
    "selector": _TEXT,
    "user": _TEXT,
    "reason": _TEXT,
    "dry_run": {"type": "boolean"},
}
SUMMARIES = {
    "cancel": "Cancel jobs",
}
"""By verb."""


def routes(service: Service) -> APIRouter:
    """All routes below /jobs that act on many."""
    router = guarded_router()
    for verb, summary in SUMMARIES.items():
        router.add_api_route(
            f"/jobs/{verb}",
            _actor(service, verb),
            methods=["POST"],
            tags=["jobs"],
            summary=summary,
            name=f"{verb} jobs",
            **takes(_TARGETS),
            **returns(JobsActed),
        )
    return router


def _actor(service: Service, verb: str) -> Callable[..., Awaitable[Response]]:
    @needs(Permission.JOBS_CANCEL)
    async def act(request: Request) -> Response:
        body = await read_object(request, _TARGETS, BULK_BYTES)
        wanted = JobsAct(
            verb, texts(body, "jobs"), text(body, "selector"), text(body, "user"),
            text(body, "reason"), truth(body, "dry_run"),
        )  # fmt: skip
        return answer(await service.act_on_jobs(caller_of(request), wanted))

    return act
